#include "demo_node.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/log.h"
#include "base/task.h"
#include "common/say.h"
#include "demo_prefill.h"
#include "net/runtime.h"
#include "os/run_blocking.h"
#include "transfer/engine.h"
#include "workload/block_content.h"

namespace mooncake::demo {

namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
// Of one call of the Store. The parent gives up on a request that stands still for longer.
constexpr std::chrono::milliseconds kStoreTimeout{20'000};
constexpr int kWiped = 0xdb;

bool inherited_control() {
  struct stat about {};
  return ::fstat(kControlFd, &about) == 0 && S_ISSOCK(about.st_mode);
}

int report_failure(const std::string& name, const Error& error) {
  program::say(stderr, "{}: {}\n", name, error.message());
  return kExitFailed;
}

void verify_window(Node& node, ControlChannel& control, const Verify& order) {
  Verified answer;
  answer.request = order.request;
  answer.slot = order.slot;
  node.verify(order.request, order.slot, order.first, order.ids, "hand-off", answer.check);
  node.wipe(order.slot, order.ids.size());
  control.send_all(answer);
}

// The engine's counters are read on its own thread.
base::Task<std::map<std::string, std::uint64_t>> bytes_moved(transfer::Engine& engine) {
  co_return engine.bytes_by_path();
}

// Until Stop. Orders come one after another; each is done before the next is looked at.
Result<void> follow_orders(Node& node, ControlChannel& control, Inbox& inbox) {
  PrefillNode prefill(node, control, inbox);
  for (;;) {
    const Message message = inbox.next();
    if (std::holds_alternative<Stop>(message)) return {};
    if (const auto* peers = std::get_if<Peers>(&message)) {
      MC_CHECK(prefill.meet(*peers));
    } else if (const auto* work = std::get_if<Work>(&message)) {
      MC_CHECK(prefill.serve(*work));
    } else if (const auto* order = std::get_if<Verify>(&message)) {
      verify_window(node, control, *order);
    } else {
      return fail(Code::kProtocolError, "did not expect " + encode(message).substr(0, 200));
    }
  }
}

}  // namespace

int node_command() {
  if (!inherited_control()) {
    program::say(stderr, "mooncake demo-node: started by `mooncake demo` only; try that\n");
    return kExitUsage;
  }
  ControlChannel control(kControlFd);
  Inbox inbox(control);
  const Message first = inbox.next();
  const Setup* const setup = std::get_if<Setup>(&first);
  if (setup == nullptr) return report_failure("demo-node", Error(Code::kProtocolError, "no setup"));
  auto node = Node::create(*setup);
  if (!node) return report_failure(setup->name, node.error());
  control.send_all((*node)->ready());
  const Result<void> followed = follow_orders(**node, control, inbox);
  if (!followed) return report_failure(setup->name, followed.error());
  TransferEngine& engine = (*node)->engine();
  const auto moved =
      os::run_blocking(engine.runtime().env().executor, bytes_moved(engine.engine()));
  node->reset();
  control.send_all(Stopped{moved.value_or(std::map<std::string, std::uint64_t>())});
  return 0;
}

Inbox::Inbox(ControlChannel& channel) : channel_(channel), thread_([this] { receive(); }) {
  ::pthread_setname_np(thread_.native_handle(), "demo-inbox");
}

Inbox::~Inbox() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  channel_.shut_down();
  thread_.join();
}

Message Inbox::next() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return !messages_.empty(); });
  Message message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

void Inbox::receive() {
  for (;;) {
    pollfd entry = {channel_.fd(), POLLIN, 0};
    ::poll(&entry, 1, -1);
    auto messages = channel_.receive();
    std::lock_guard lock(mutex_);
    if (closing_) return;
    if (!messages) {
      // The parent is gone: nobody is left to answer to, and nothing to save.
      program::say(stderr, "{}\n", messages.error().message());
      ::_exit(kExitFailed);
    }
    for (Message& message : *messages)
      messages_.push_back(std::move(message));
    arrived_.notify_one();
  }
}

Result<std::unique_ptr<Node>> Node::create(const Setup& setup) {
  std::unique_ptr<Node> node(new Node(setup));
  TransferOptions transfer;
  transfer.local_name = "127.0.0.1";
  transfer.path = setup.path;
  MC_TRY(node->engine_, TransferEngine::create(transfer));
  const std::uint64_t bytes = setup.slots * setup.slot_blocks * setup.block_bytes;
  if (bytes > 0) {
    MC_TRY(void* const buffer, node->engine_->allocate_memory(bytes));
    node->buffer_ = static_cast<std::byte*>(buffer);
  }
  StoreOptions store;
  store.local_name = node->engine_->local_name();
  store.master_server_address = setup.master;
  store.global_segment_size = setup.segment_bytes;
  store.timeout = kStoreTimeout;
  store.engine = node->engine_.get();
  MC_TRY(node->store_, Store::create(store));
  return node;
}

Node::~Node() {
  if (store_) store_->close();
  if (buffer_ == nullptr) return;
  const Result<void> freed = engine_->free_memory(buffer_);
  if (!freed) base::log_warning("{}: {}", setup_.name, freed.error().message());
}

std::span<std::byte> Node::place(std::uint64_t slot, std::uint64_t i) {
  const std::uint64_t block = slot * setup_.slot_blocks + i;
  return {buffer_ + block * setup_.block_bytes, setup_.block_bytes};
}

Ready Node::ready() const {
  return {engine_->local_name(), reinterpret_cast<std::uintptr_t>(buffer_)};
}

void Node::verify(std::uint64_t request, std::uint64_t slot, std::uint64_t first,
                  std::span<const std::uint64_t> ids, const char* stage, Check& check) {
  for (std::uint64_t i = 0; i < ids.size(); ++i) {
    const auto wrong = workload::verify_block(place(slot, i), ids[i], first + i, setup_.seed);
    check.bytes += setup_.block_bytes;
    if (!wrong) continue;
    ++check.wrong_blocks;
    if (check.wrong.size() >= kMaxWrongNamed) continue;
    check.wrong.push_back({request, ids[i], first + i, *wrong, setup_.name, stage});
  }
}

void Node::wipe(std::uint64_t slot, std::uint64_t blocks) {
  std::memset(place(slot, 0).data(), kWiped, blocks * setup_.block_bytes);
}

}  // namespace mooncake::demo
