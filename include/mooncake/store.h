// Store: a cluster's spare memory as one pool of immutable objects. Blocking API of one client.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mooncake/config.h"
#include "mooncake/result.h"
#include "mooncake/transfer.h"
#include "mooncake/why.h"

namespace mooncake {

// A soft pin keeps an object from eviction until a fixed time, as long as anything else may go; at
// that time, or by kDisable, the object is an ordinary one again.
enum class SoftPin : std::uint8_t {
  kPreserve = 0,  // as the object has it that an upsert replaces; a new object has none
  kEnable = 1,
  kDisable = 2,
};

// What an object is. Counted by the Master, for whoever operates it; changes nothing else.
enum class ObjectDataType : std::uint8_t {
  kUnknown = 0,
  kKvCache,
  kTensor,
  kWeight,
  kSample,
  kActivation,
  kGradient,
  kOptimizerState,
  kMetadata,
  kGeneral = 9,
};

// How objects are placed and kept; each call works with the values that it was given.
struct ReplicateConfig {
  ReplicateConfig() = default;  // no aggregate: calls of it travel through coroutines

  // In distinct segments, on distinct hosts where there are several; 1 or more. Fewer are given
  // when there is no room for all, at least one. At most 4 are.
  std::uint32_t replica_num = 1;

  SoftPin soft_pin = SoftPin::kPreserve;
  // From publishing on; only with kEnable. None: the Master's default_kv_soft_pin_ttl; 0: no pin.
  // More than its max_kv_soft_pin_ttl is kInvalidArgument.
  std::optional<std::chrono::milliseconds> soft_pin_ttl;
  // Never evicted, until it is removed. An upsert can add a hard pin, not take one away.
  bool hard_pin = false;

  // Names of segments to try first, in this order: `local_name()` of their stores. At most 64.
  // Where none of them has room another one is taken.
  std::vector<std::string> preferred_segments;
  // Next the segments of this store, then those of its host.
  bool prefer_same_node = false;

  ObjectDataType data_type = ObjectDataType::kUnknown;
  // One for each object of the call, "" = none; at most 4096 bytes each. Members of a group are
  // published, read and evicted each for itself.
  std::optional<std::vector<std::string>> group_ids;
};

struct StoreOptions {
  // "host" or "host:port" of this client's segment; the full name is local_name().
  std::string local_name = "127.0.0.1";
  std::string metadata_server = "P2PHANDSHAKE";
  // "host:port", or "embedded": a Master in this process, for one process alone, with no ports.
  std::string master_server_address = "127.0.0.1:50051";
  std::uint64_t global_segment_size = 16u << 20;  // bytes given to the pool; 0 = none
  std::string cluster_secret;
  std::chrono::milliseconds timeout{5000};  // deadline of a call that names none
  // Shares this engine (and its memory registrations) instead of making one. Must outlive the
  // store.
  TransferEngine* engine = nullptr;
  // Asked on the calling thread, some ten times a second, while a call waits, create() included.
  // Once it is true, the calls under way that wait for the Master end with kCancelled. Empty =
  // never.
  std::function<bool()> interrupted;
};

// The same as settings: names as in setup(dict), variables as in the environment. For callers that
// are configured by text, and for the doctor.
std::span<const Setting> store_settings();
Result<StoreOptions> store_options(const Settings& settings);

using ConstBytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// One replica of an object: `size` bytes at `address` of the engine called `segment_name`. They are
// there as long as the object is; who reads them by other means than get() reads unguarded.
struct ReplicaDescriptor {
  std::string segment_name;  // host:port
  std::uint64_t address = 0;
  std::uint64_t size = 0;
};

// One object of a batch put or upsert: the concatenation of `parts`.
struct PutItem {
  std::string_view key;
  std::span<const ConstBytes> parts;
};
// One object of a batch get, scattered over `parts`, which must have room for all of it.
struct GetItem {
  std::string_view key;
  std::span<const MutableBytes> parts;
};

// What came of one key of a call, with the reason of a miss or a failure.
struct ItemOutcome {
  // kOk; of a put kObjectExists when the key was there already, or is being written by somebody
  // else; of a question kObjectNotFound on a miss; else what failed.
  Code code = Code::kOk;
  // Of a miss; kMasterUnreachable also stands beside the code that says how.
  MissReason miss = MissReason::kNone;
  std::uint64_t size = 0;  // of a get: bytes
  std::string detail;      // one sentence; empty when there is nothing to say
};

// The value of an object, seen where it lies in memory of this host. It stays as it is for as long
// as this lives, whatever becomes of the object, of the store and of the process that gave the
// memory. Any thread, one at a time.
class PinnedObject {
 public:
  PinnedObject() = default;
  PinnedObject(PinnedObject&& other) noexcept
      : data_(std::exchange(other.data_, {})), hold_(std::move(other.hold_)) {}
  PinnedObject& operator=(PinnedObject&& other) noexcept {
    data_ = std::exchange(other.data_, {});
    hold_ = std::move(other.hold_);
    return *this;
  }

  ConstBytes data() const { return data_; }
  // Nothing of the bytes may be touched from here on. Idempotent.
  void release() { *this = PinnedObject(); }

 private:
  friend class Store;
  PinnedObject(ConstBytes data, std::shared_ptr<void> hold) : data_(data), hold_(std::move(hold)) {}
  ConstBytes data_;
  std::shared_ptr<void> hold_;
};

// Codes are those of the Store surface: 0 or a negative number; get_into gives bytes >= 0.
// Safe to call from many threads. When a call returns, no byte of its buffers is touched any more.
// A failure is a miss within the deadline.
class Store {
 public:
  // Mounts the segment. Returns when its first 64 MiB are ready; the rest follows in the
  // background.
  static Result<std::unique_ptr<Store>> create(const StoreOptions& options);
  ~Store();  // close()
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  const std::string& local_name() const;

  // An existing key is left as it is, which is success, and so is one that somebody else publishes
  // meanwhile. An empty value or key is kInvalidArgument, as is a config that contradicts itself;
  // kNoSpace says how many bytes were needed and what holds the rest.
  Result<void> put(std::string_view key, ConstBytes value, const ReplicateConfig& config = {});
  std::vector<std::int32_t> put_batch(std::span<const PutItem> items,
                                      const ReplicateConfig& config = {});

  // Like put, but an existing object is replaced, whatever leases it has: readers find the old one,
  // whole, until the new one is published, and the new one from then on. Of several upserts the
  // last to be published stays.
  Result<void> upsert(std::string_view key, ConstBytes value, const ReplicateConfig& config = {});
  std::vector<std::int32_t> upsert_batch(std::span<const PutItem> items,
                                         const ReplicateConfig& config = {});

  // kObjectNotFound on a miss.
  Result<std::vector<std::byte>> get(std::string_view key);
  // Reads into the place that `allocate(size)` gives, without a copy; kInvalidArgument when that is
  // smaller than the object, whose size is returned. It is called on the store's own thread, so it
  // may neither wait nor call the store; again when another version is found, after which the
  // earlier place is touched no more.
  using Allocate = std::function<MutableBytes(std::uint64_t size)>;
  Result<std::uint64_t> get(std::string_view key, const Allocate& allocate);
  // Without a copy: the memory holds nothing else until the pin ends, so that an object should not
  // be pinned for longer than it is used. kNotSupported where the object lies on another host, or
  // in memory that this process can't see; kBusy when this host's processes have pinned too much;
  // kObjectNotFound on a miss.
  Result<PinnedObject> pin(std::string_view key);
  std::vector<std::int64_t> get_into_batch(std::span<const GetItem> items);

  // 1, 0 or a negative code for each key; 0 when the Master is out of reach. Takes a lease.
  std::vector<std::int32_t> exist_batch(std::span<const std::string_view> keys);
  // Bytes of an object; kObjectNotFound on a miss.
  Result<std::uint64_t> size(std::string_view key);
  // The same of many: bytes, or a negative code, for each key.
  std::vector<std::int64_t> size_batch(std::span<const std::string_view> keys);

  // The same calls with more to say, item by item: what was there already, and why a key missed.
  // They ask the Master once more when there is a miss.
  std::vector<ItemOutcome> put_outcomes(std::span<const PutItem> items,
                                        const ReplicateConfig& config = {});
  // `allocate(index, size)` as in get().
  using AllocateItem = std::function<MutableBytes(std::size_t index, std::uint64_t size)>;
  std::vector<ItemOutcome> get_outcomes(std::span<const std::string_view> keys,
                                        const AllocateItem& allocate);
  std::vector<ItemOutcome> exist_outcomes(std::span<const std::string_view> keys);

  // What became of a key, as far as the Master remembers: its newest events, at most 32. Takes no
  // lease. The error names the Master when that can't be asked.
  Result<KeyReport> why(std::string_view key);

  // Where the object of each key lies; empty on a miss and when the Master is out of reach. Takes a
  // lease.
  std::vector<std::vector<ReplicaDescriptor>> replicas_batch(
      std::span<const std::string_view> keys);

  // kObjectNotFound, kObjectHasLease (unless forced), kReplicaNotReady while it is first being
  // written.
  std::vector<std::int32_t> remove_batch(std::span<const std::string_view> keys,
                                         bool force = false);

  // Remove the objects whose keys match, or all, and give their number. Leased ones stay unless it
  // is forced; those that are first being written stay. The pattern has RE2's syntax, and may match
  // anywhere in a key; a wrong one, the empty one too, is kInvalidArgument, and so is one that
  // needs more than 256 steps for a byte of a key: about one for each character, as often as that
  // is repeated ("a.{200}z" needs 400). What is put meanwhile may stay. Done in steps, each of
  // which has the deadline of a call; an error says how many had gone before it.
  Result<std::uint64_t> remove_by_regex(std::string_view pattern, bool force = false);
  Result<std::uint64_t> remove_all(bool force = false);

  // The segment that this store gives to the pool gets nothing new from now on, stays readable for
  // `grace`, to 49 days, and is given back then; the store goes on without. Objects that lie
  // nowhere else are lost with it. kSegmentNotFound when it gives none.
  Result<void> unmount_segment(std::chrono::milliseconds grace);

  // 0 healthy, 1 closed, 2 Master out of reach.
  int health() const;

  // Prometheus text of this client.
  std::string metrics() const;

  // Unmounts and stops within two seconds, whatever the Master does. Idempotent.
  void close();

  TransferEngine& engine();

 private:
  struct State;
  explicit Store(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace mooncake
