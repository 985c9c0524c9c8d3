// MooncakeDistributedStore: one client of a store, as Python sees it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "native/arguments.h"
#include "native/integers.h"
#include "native/keys.h"
#include "native/replicate.h"
#include "native/setup.h"
#include "native/store_session.h"

namespace mooncake::python {

enum class Write : std::uint8_t { kPut, kUpsert };

// Addresses and lengths of the memory of a batch: row `i` of both is that of object `i`.
struct MemoryRows {
  NumberRows addresses;
  NumberRows lengths;
};

// Any thread, under the GIL, which guards all fields; it is let go of while a call waits. In a
// forked child it is a store that isn't set up: what the parent has isn't touched. Codes are those
// of the Store surface, one for each key, also when it isn't set up.
class DistributedStore {
 public:
  DistributedStore();
  ~DistributedStore();
  DistributedStore(const DistributedStore&) = delete;
  DistributedStore& operator=(const DistributedStore&) = delete;

  int setup(SetupTexts given, std::shared_ptr<EngineSession> engine = nullptr);
  int close();
  int health();
  std::string hostname();
  // Null when there is none that this process may use.
  std::shared_ptr<StoreSession> session() const;

  int write(Write kind, Key key, Buffer value, const ReplicaSettings* config);
  int write_parts(Write kind, Key key, const nb::args& parts, const ReplicaSettings* config);
  int write_batch(Write kind, const KeyList& keys, nb::handle values,
                  const ReplicaSettings* config);
  nb::bytes get(Key key);
  nb::list get_batch(const KeyList& keys);
  nb::object get_buffer(Key key);
  nb::object get_pinned(Key key);
  nb::list get_buffers(const KeyList& keys);

  int is_exist(Key key);
  nb::object exist_batch(const KeyList& keys);
  std::int64_t size(Key key);
  int remove(Key key, bool force);
  nb::object remove_batch(const KeyList& keys, bool force);
  std::int64_t remove_by_regex(const std::string& pattern, bool force);
  std::int64_t remove_all(bool force);
  // With reasons (store_outcomes.cpp).
  nb::list put_outcomes(const KeyList& keys, nb::handle values, const ReplicaSettings* config);
  nb::list get_outcomes(const KeyList& keys);
  nb::list exist_outcomes(const KeyList& keys);
  nb::object why(Key key);

  nb::list replicas(Key key);
  nb::dict replicas_batch(const KeyList& keys);

  // In registered memory (store_memory.cpp).
  int register_buffer(Word address, Word length);
  int unregister_buffer(Word address);
  int write_from(Write kind, Key key, Word address, Word length, const ReplicaSettings* config);
  int put_from_with_metadata(Key key, Word address, Word metadata_address, Word length,
                             Word metadata_length, const ReplicaSettings* config);
  nb::object write_batch_from(Write kind, const KeyList& keys, const MemoryRows& memory,
                              const ReplicaSettings* config, SameNode same_node);
  std::int64_t get_into(Key key, Word address, Word length);
  nb::object get_batch_into(const KeyList& keys, const MemoryRows& memory);

 private:
  // Gives the session up; the caller closes it. A parent's is left alone for good.
  std::shared_ptr<StoreSession> take_session();

  std::shared_ptr<StoreSession> session_;
  pid_t owner_ = 0;  // process that set it up
  bool setting_up_ = false;
  std::uint64_t closes_ = 0;   // a setup that has been closed meanwhile counts for nothing
  std::size_t last_size_ = 0;  // of the value got last: the next is likely to be as large

  friend std::vector<std::function<void()>> take_all_stores();
};

// Gives up all stores; each function closes one.
std::vector<std::function<void()>> take_all_stores();

}  // namespace mooncake::python
