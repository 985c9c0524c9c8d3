// Transfer Engine: batched reads and writes between registered buffers, over whatever path is best.
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

#include "mooncake/result.h"

namespace mooncake {

enum class Opcode : std::uint8_t { kRead = 0, kWrite = 1 };  // read: remote to local

// Who goes first where several transfers share a way. Between kUrgent, kNormal and kBackground its
// bytes are shared 16 : 4 : 1; nobody is kept waiting for good.
enum class Priority : std::uint8_t { kBackground = 0, kNormal = 1, kUrgent = 2 };
inline constexpr std::size_t kPriorities = 3;

// Process-local name of an opened segment; 0 is this engine's own.
enum class SegmentHandle : std::uint64_t { kLocal = 0 };

struct TransferRequest {
  Opcode opcode = Opcode::kRead;
  void* source = nullptr;  // local address, inside registered memory
  SegmentHandle target = SegmentHandle::kLocal;
  std::uint64_t target_offset = 0;  // address in the target's process
  std::uint64_t length = 0;         // bytes; 0 succeeds at once
  Priority priority = Priority::kNormal;
};

struct TransferOptions {
  // "host" or "host:port". Without a port a free one is taken; the full name is local_name().
  std::string local_name = "127.0.0.1";
  // "P2PHANDSHAKE": a segment's name is its address. Else http://host:port/metadata or
  // memory://name.
  std::string metadata_server = "P2PHANDSHAKE";
  // "auto": the best. "tcp": sockets only; MC_FORCE_TCP=1 in the environment says the same. "shm":
  // only within this host, but for the memory of a store, which has its own ways. "unix" and
  // "ring": to peers on this host through Unix sockets, or rings of shared memory; for trials.
  std::string path = "auto";
  // Both sides of every connection must show it; empty = open.
  std::string cluster_secret;
  // False: nothing listens, and peers can't reach this engine; for a process alone.
  bool serve = true;
  // Bytes for pools, and for what peers make this process keep: receive buffers, quarantine,
  // mappings of the dead. 0 = MOONCAKE_MEMORY_BUDGET, or else three quarters of the memory.
  std::uint64_t memory_budget = 0;
};

// Outcome of a batch: one code per request, in order, 0 = done. Numbers as on the transfer surface.
struct TransferOutcome {
  std::vector<std::int32_t> codes;
  std::uint64_t bytes = 0;                             // moved by the requests that succeeded
  std::map<std::string, std::uint64_t> bytes_by_path;  // "local", "tcp", ...
  std::map<std::string, std::string> reasons;          // path -> why it was chosen
  bool ok() const;
  // First failure with its detail; no error when ok().
  Result<void> status = {};
  // Of the notification, if there was one: no error once it lies in the target's inbox.
  Result<void> notified = {};
};

// A note from one engine to the process of another. Bytes of any kind: a peer chose them.
struct Notification {
  Notification() = default;
  Notification(std::string name_, std::string message_)
      : name(std::move(name_)), message(std::move(message_)) {}
  std::string name;     // at most 4 KiB
  std::string message;  // at most 1 MiB
};

struct MemoryRange {
  void* address = nullptr;
  std::uint64_t length = 0;  // bytes
};

// A batch that was submitted. Thread-safe. The handle may be dropped, which does not end the batch,
// and may outlive the engine, whose end is the batch's. In a forked child nothing changes any more.
class TransferBatch {
 public:
  using Milliseconds = std::chrono::milliseconds;
  virtual ~TransferBatch() = default;

  // True once every request has its final code: the last byte is in place, and from here on none of
  // the batch's buffers is touched. Its notification has been delivered, or given up.
  virtual bool done() const = 0;
  // True when it is done within the time.
  virtual bool wait(Milliseconds timeout) const = 0;
  // Once done, and then for good; before, one without codes whose status is kBatchBusy.
  virtual const TransferOutcome& outcome() const = 0;
  // What is not moved yet ends with kCancelled, soon. Does not wait for it.
  virtual void cancel() = 0;
  // An eventfd, made when first asked for, that is readable once done; not to be read from or
  // closed, since it is the batch's. -1 when none can be made.
  virtual int completion_fd() = 0;
  // Calls back once: on the engine's thread, which must not be kept waiting, so that only submit()
  // may be called of the engine; or at once when it is done already. Any number of callbacks.
  virtual void on_done(std::function<void()> callback) = 0;
};

namespace transfer {
class Engine;
}
namespace memory {
class Preparer;
}
namespace net {
class Runtime;
}

// Blocking facade over the one engine; safe to call from many threads. When a call returns, no byte
// of its buffers is touched any more, and it returns by its deadline. In a forked child every call
// fails with kNotReady.
class TransferEngine {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // kInvalidArgument, kAddressInUse, kMetadataError name the setting and the value.
  static Result<std::unique_ptr<TransferEngine>> create(const TransferOptions& options);
  ~TransferEngine();  // stops; calls and batches under way end with kCancelled
  TransferEngine(const TransferEngine&) = delete;
  TransferEngine& operator=(const TransferEngine&) = delete;

  // "host:port" under which peers find this engine's segment; a name of its own when it does not
  // serve, and then port() is 0.
  const std::string& local_name() const;
  std::uint16_t port() const;

  // Registering a range again, or one that overlaps, succeeds and is counted. An unmapped range is
  // kInvalidArgument.
  Result<void> register_memory(void* address, std::uint64_t length,
                               std::string_view location = "*");
  // kBusy when a peer's access could not be ended within `timeout`; the range must then stay alive
  // and unused until the same call, made again, has succeeded. kInvalidArgument in managed memory
  // (Python's), which has its own call for that.
  Result<void> unregister_memory(void* address, Milliseconds timeout = Milliseconds(5000));
  // All of them, or with the first error none.
  Result<void> register_memory_batch(std::span<const MemoryRange> ranges,
                                     std::string_view location = "*");
  // As many as can be; the first error.
  Result<void> unregister_memory_batch(std::span<void* const> addresses,
                                       Milliseconds timeout = Milliseconds(5000));

  // Memory from a pool of ours: registered, prepared, and mappable by peers of this host. Returns
  // when the first 64 MiB are prepared, or after a quarter of a second; the rest follows.
  Result<void*> allocate_memory(std::uint64_t length);
  Result<void> free_memory(void* address);

  // kSegmentNotFound or kUnreachable. The same name gives the same handle.
  Result<SegmentHandle> open_segment(std::string_view name,
                                     Milliseconds timeout = Milliseconds(5000));

  // Moves a batch of any length and waits for it. Never fails as a whole for one bad entry. Sources
  // are touched as by memcpy, some on the engine's thread: they stay mapped until the end, and
  // pages of them that come late hold up the engine as they would the caller. What a failed write
  // has left under way lands before a later one to the same range, or not at all. Where the source
  // and the target of one request overlap, both within this engine (kLocal), the target ends up as
  // memmove leaves it; what overlaps otherwise, the ranges of two requests or memory that two
  // engines have registered, ends up as a mixture. The notification goes to the target of the first
  // request after all of them are done, and to nobody when one has failed; whether it arrived does
  // not change the codes.
  TransferOutcome transfer(std::span<const TransferRequest> requests, Milliseconds timeout,
                           std::optional<Notification> notification = std::nullopt);
  // The same, without waiting: the batch runs on the engine's thread; a small one may be copied
  // here, and requests whose own ranges overlap are. kNotReady when the engine is being closed.
  Result<std::shared_ptr<TransferBatch>> submit(
      std::vector<TransferRequest> requests, Milliseconds timeout,
      std::optional<Notification> notification = std::nullopt);

  // Puts it into the inbox of the segment's process; those of one caller arrive in order. kBusy
  // when the inbox is full (65536 entries, 16 MiB). After another error it may have arrived all the
  // same.
  Result<void> notify(std::string_view segment, const Notification& notification,
                      Milliseconds timeout = Milliseconds(5000));
  // What has arrived since the last time, in the order of arrival.
  std::vector<Notification> take_notifications();

  // Whether the segment's process answers. When it does, what has failed with it before is tried
  // anew at once, without the usual pause.
  Result<void> probe(std::string_view segment, Milliseconds timeout = Milliseconds(5000));
  // Address of the oldest buffer that is registered there; kAddressNotRegistered when there is
  // none.
  Result<std::uint64_t> first_buffer(std::string_view segment,
                                     Milliseconds timeout = Milliseconds(5000));

  // What the engine has counted, in the text format of Prometheus. Empty when it is being closed.
  std::string metrics();

  // For managed memory (transfer/managed_memory.h): a pool in which nothing is registered, which is
  // there until it is freed, when nothing is registered in it again, or until the engine ends.
  Result<void*> allocate_pool(std::uint64_t length);
  void free_pool(void* pool);
  // For the store: the engine below. Not for other users.
  transfer::Engine& engine();
  memory::Preparer& preparer();
  net::Runtime& runtime();

 private:
  struct State;
  explicit TransferEngine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace mooncake
