// MooncakeDistributedStore: one client of a store, as Python sees it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "native/arguments.h"
#include "native/setup.h"

namespace mooncake::python {

// Any thread, under the GIL, which guards all fields; it is let go of while a call waits. In a
// forked child it is a store that isn't set up: what the parent has isn't touched.
class DistributedStore {
 public:
  DistributedStore();
  ~DistributedStore();
  DistributedStore(const DistributedStore&) = delete;
  DistributedStore& operator=(const DistributedStore&) = delete;

  int setup(SetupTexts given);
  int put(Key key, Buffer value, const ReplicateConfig* config);
  nb::bytes get(Key key);
  int is_exist(Key key);
  int remove(Key key, bool force);
  int close();

 private:
  // Null when there is none that this process may use.
  std::shared_ptr<Store> open_store() const;
  // Gives the store up; the caller closes it. A parent's is left alone for good.
  std::shared_ptr<Store> take_store();

  std::shared_ptr<Store> store_;
  pid_t owner_ = 0;  // process that set it up
  bool setting_up_ = false;
  std::uint64_t closes_ = 0;   // a setup that has been closed meanwhile counts for nothing
  std::size_t last_size_ = 0;  // of the value got last: the next is likely to be as large

  friend std::vector<std::function<void()>> take_all_stores();
};

// Gives up all stores; each function closes one.
std::vector<std::function<void()>> take_all_stores();

}  // namespace mooncake::python
