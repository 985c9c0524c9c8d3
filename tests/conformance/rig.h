// Two engines to test transports with: on one simulated thread, or on sockets with a thread for
// each.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "memory/pool.h"
#include "net/runtime.h"
#include "net/sim_network.h"
#include "os/run_blocking.h"
#include "transfer/engine.h"

namespace mooncake::transfer {

using namespace std::chrono_literals;

// Where an engine of the tests lives.
class Host {
 public:
  virtual ~Host() = default;
  virtual os::Env env() = 0;

  // Runs the task on this host's executor, to its end.
  template <typename T>
  T run(Task<T> task) {
    std::optional<T> result;
    run_task(store(std::move(task), &result));
    return std::move(*result);
  }
  void run(Task<void> task) { run_task(std::move(task)); }

  // What is that thread's alone is asked for there.
  template <typename Question>
  auto ask(Question question) {
    return run(answer(std::move(question)));
  }

 protected:
  virtual void run_task(Task<void> task) = 0;

 private:
  template <typename Question>
  static Task<std::invoke_result_t<Question>> answer(Question question) {
    co_return question();
  }
  template <typename T>
  static Task<void> store(Task<T> task, std::optional<T>* result) {
    result->emplace(co_await task);
  }
};

// The world that hosts share.
class Rig {
 public:
  virtual ~Rig() = default;
  // Lives as long as the rig. A name is used once.
  virtual Host& host(const std::string& name) = 0;
  virtual net::Address listen_at(const std::string& host) const = 0;

  // An engine on this host; stopped and destroyed with the rig at the latest. One that knows its
  // host finds that others live there, too.
  Engine& start_engine(Host& host, const std::string& name, std::uint16_t port = 0,
                       const std::string& secret = "", std::vector<std::string> transports = {},
                       bool knows_host = false);
  void stop_engine(Engine& engine);
  void stop_all();

  // Of an engine of this rig, asked for on its thread.
  virtual Engine::Counters counters(Engine& engine) { return engine.counters(); }
  // Dead hosts go on for as long as their tasks need to end: what is suspended can't be destroyed.
  virtual void wake_hosts() {}

 protected:
  Host& host_of(Engine& engine) { return *engines_.at(&engine).second; }

 private:
  std::map<Engine*, std::pair<std::unique_ptr<Engine>, Host*>> engines_;
};

class SimRig final : public Rig {
 public:
  explicit SimRig(std::uint64_t seed, bool shuffle = true);
  ~SimRig() override;
  Host& host(const std::string& name) override;
  net::Address listen_at(const std::string& host) const override { return {host, 0}; }

  os::SimHost& executor_of(const std::string& name);
  os::SimExecutor& executor() { return executor_; }
  net::SimWorld& world() { return world_; }
  base::Random& random() { return random_; }
  void wake_hosts() override;

 private:
  struct Node;
  os::SimExecutor executor_;
  base::Random random_;
  os::FakeDisk disk_;
  net::SimWorld world_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

class SocketRig final : public Rig {
 public:
  SocketRig();
  ~SocketRig() override;
  Host& host(const std::string& name) override;
  net::Address listen_at(const std::string&) const override { return {"127.0.0.1", 0}; }
  Engine::Counters counters(Engine& engine) override;

 private:
  struct Node;
  std::vector<std::unique_ptr<Node>> nodes_;
};

// Memory with a pattern, in a pool of its own.
class Buffer {
 public:
  explicit Buffer(std::size_t size, std::uint64_t seed = 0);
  Buffer(const Buffer& other);
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  // Peers of this host may map it, until its end, which the registry outlives.
  void share(memory::Registry& registry);

  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(bytes_.data()); }
  std::size_t size() const { return bytes_.size(); }
  std::byte* data() { return bytes_.data(); }
  std::span<std::byte> span() { return bytes_; }
  std::span<std::byte> sub(std::size_t offset, std::size_t size) {
    return bytes_.subspan(offset, size);
  }
  // Seed 0: zeros.
  void fill(std::uint64_t seed) { fill(seed, 0, bytes_.size()); }
  void fill(std::uint64_t seed, std::size_t offset, std::size_t size);
  bool holds(std::uint64_t seed) const { return holds(seed, 0, bytes_.size()); }
  bool holds(std::uint64_t seed, std::size_t offset, std::size_t size) const;

 private:
  std::unique_ptr<memory::Pool> pool_;
  std::span<std::byte> bytes_;
  memory::Registry* shared_in_ = nullptr;
};

// One request of a batch, with the local buffers that it points to.
struct Entry {
  Entry() = default;
  Entry(Opcode opcode, std::span<std::byte> local, std::uint64_t remote, SegmentHandle target);
  // The same, scattered.
  Entry(Opcode opcode, std::vector<base::MutableBuffer> parts, std::uint64_t remote,
        SegmentHandle target);

  std::vector<base::MutableBuffer> parts;
  EngineRequest request;
};

// Moves the entries as one batch; their codes.
Task<std::vector<Code>> move_all(Engine& engine, std::vector<Entry>& entries, TimePoint deadline,
                                 std::map<std::string, std::uint64_t>* moved = nullptr,
                                 os::CancelToken* cancel = nullptr);

// Lets other work go first, and the simulated clock move.
Task<void> a_moment(os::Executor& executor);

memory::ExtentRecord record_of(std::uint32_t sequence, std::uint64_t size, std::string_view key);
base::Version version_of(std::uint32_t sequence);

}  // namespace mooncake::transfer
