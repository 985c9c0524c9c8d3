// Transfer Engine: batched reads and writes between registered buffers, over whatever path is best.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mooncake/result.h"

namespace mooncake {

enum class Opcode : std::uint8_t { kRead = 0, kWrite = 1 };  // read: remote to local

// Process-local name of an opened segment; 0 is this engine's own.
enum class SegmentHandle : std::uint64_t { kLocal = 0 };

struct TransferRequest {
  Opcode opcode = Opcode::kRead;
  void* source = nullptr;  // local address, inside registered memory
  SegmentHandle target = SegmentHandle::kLocal;
  std::uint64_t target_offset = 0;  // address in the target's process
  std::uint64_t length = 0;         // bytes; 0 succeeds at once
};

struct TransferOptions {
  // "host" or "host:port". Without a port a free one is taken; the full name is local_name().
  std::string local_name = "127.0.0.1";
  // "P2PHANDSHAKE": a segment's name is its address. Else http://host:port/metadata or
  // memory://name.
  std::string metadata_server = "P2PHANDSHAKE";
  // "auto": the best. "tcp": sockets only; MC_FORCE_TCP=1 in the environment says the same. "shm":
  // only within this host.
  std::string path = "auto";
  // Both sides of every connection must show it; empty = open.
  std::string cluster_secret;
  // False: nothing listens, and peers can't reach this engine; for a process alone.
  bool serve = true;
  std::uint64_t memory_budget = 0;  // bytes for pools and receive buffers; 0 = no limit of our own
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
};

// A note from one engine to the process of another. Bytes of any kind: a peer chose them.
struct Notification {
  Notification() = default;
  Notification(std::string name_, std::string message_)
      : name(std::move(name_)), message(std::move(message_)) {}
  std::string name;     // at most 4 KiB
  std::string message;  // at most 1 MiB
};

namespace transfer {
class Engine;
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
  ~TransferEngine();  // stops; calls under way end with kCancelled
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
  // kBusy when a peer's access could not be ended within `timeout`; the range must then stay alive.
  Result<void> unregister_memory(void* address, Milliseconds timeout = Milliseconds(5000));

  // Memory from a pool of ours: registered, prepared, and mappable by peers of this host.
  Result<void*> allocate_memory(std::uint64_t length);
  Result<void> free_memory(void* address);

  // kSegmentNotFound or kUnreachable. The same name gives the same handle.
  Result<SegmentHandle> open_segment(std::string_view name,
                                     Milliseconds timeout = Milliseconds(5000));

  // Moves a batch of any length and waits for it. Never fails as a whole for one bad entry.
  TransferOutcome transfer(std::span<const TransferRequest> requests, Milliseconds timeout);

  // For the store: the engine below. Not for other users.
  transfer::Engine& engine();
  net::Runtime& runtime();

 private:
  struct State;
  explicit TransferEngine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace mooncake
