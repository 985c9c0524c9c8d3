// The demo's nodes: each a process with one Store and one TransferEngine, which does what its
// parent says over the control channel. Uses what any user of the library has.
#pragma once

#include <mooncake/store.h>
#include <mooncake/transfer.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "demo_control.h"

namespace mooncake::demo {

// `mooncake demo-node`, started by the demo alone: the exit status.
int node_command();

// Receives on a thread of its own, so that the end of the parent is noticed in any call.
class Inbox {
 public:
  // The end of the stream, or a line that is no message, ends the process.
  explicit Inbox(ControlChannel& channel);
  ~Inbox();  // joins
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  Message next();

 private:
  void receive();

  ControlChannel& channel_;
  std::mutex mutex_;  // guards the two below
  std::condition_variable arrived_;
  std::deque<Message> messages_;
  bool closing_ = false;
  std::thread thread_;  // last: it uses the others
};

// What every node has.
class Node {
 public:
  static Result<std::unique_ptr<Node>> create(const Setup& setup);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const Setup& setup() const { return setup_; }
  TransferEngine& engine() { return *engine_; }
  Store& store() { return *store_; }
  // The place for block `i` of the window in `slot`.
  std::span<std::byte> place(std::uint64_t slot, std::uint64_t i);
  Ready ready() const;

  // Compares the window's blocks with what they should be; `check` takes what is found.
  void verify(std::uint64_t request, std::uint64_t slot, std::uint64_t first,
              std::span<const std::uint64_t> ids, const char* stage, Check& check);
  // Overwrites places whose old bytes could pass for new ones: the same block often comes again.
  void wipe(std::uint64_t slot, std::uint64_t blocks);

 private:
  explicit Node(const Setup& setup) : setup_(setup) {}

  const Setup setup_;
  std::unique_ptr<TransferEngine> engine_;
  std::unique_ptr<Store> store_;  // behind the engine, which it uses
  std::byte* buffer_ = nullptr;
};

}  // namespace mooncake::demo
