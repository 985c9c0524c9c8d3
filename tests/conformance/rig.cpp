#include "rig.h"

#include <algorithm>
#include <cstring>

namespace mooncake::transfer {

Engine& Rig::start_engine(Host& host, const std::string& name, std::uint16_t port,
                          const std::string& secret, std::vector<std::string> transports,
                          bool knows_host) {
  EngineOptions options;
  options.identity.role = "engine";
  options.identity.name = name;
  options.identity.incarnation = static_cast<base::Incarnation>(base::secure_random() | 1);
  options.identity.cluster_secret = secret;
  if (knows_host) options.identity.boot_id = base::boot_id();
  options.transports = std::move(transports);
  options.listen = listen_at(name);
  options.listen.port = port;
  auto engine = host.run(Engine::start(host.env(), std::move(options)));
  if (!engine) {
    ADD_FAILURE() << engine.error().message();
    std::abort();
  }
  Engine& result = **engine;
  engines_.emplace(&result, std::pair(*std::move(engine), &host));
  return result;
}

void Rig::stop_engine(Engine& engine) {
  const auto it = engines_.find(&engine);
  if (it == engines_.end()) return;
  it->second.second->run(engine.stop());
  engines_.erase(it);
}

void Rig::stop_all() {
  wake_hosts();
  while (!engines_.empty())
    stop_engine(*engines_.begin()->first);
}

struct SimRig::Node final : Host {
  Node(SimRig& rig_, std::string name_)
      : rig(rig_), name(std::move(name_)), executor(rig_.executor_) {}
  os::Env env() override {
    return {executor, rig.random_, rig.world_.host(name, executor), rig.disk_};
  }
  void run_task(Task<void> task) override { rig.executor_.run(std::move(task)); }
  SimRig& rig;
  const std::string name;
  os::SimHost executor;
};

SimRig::SimRig(std::uint64_t seed, bool shuffle)
    : executor_(seed, shuffle), random_(seed), world_(executor_, random_) {
  world_.faults.copy_step = 64u << 10;
}
SimRig::~SimRig() { stop_all(); }

void SimRig::wake_hosts() {
  for (const auto& node : nodes_)
    node->executor.thaw();
}

Host& SimRig::host(const std::string& name) {
  nodes_.push_back(std::make_unique<Node>(*this, name));
  return *nodes_.back();
}

os::SimHost& SimRig::executor_of(const std::string& name) {
  for (auto it = nodes_.rbegin(); it != nodes_.rend(); ++it) {
    if ((*it)->name == name) return (*it)->executor;
  }
  std::abort();
}

struct SocketRig::Node final : Host {
  explicit Node(const std::string& name) : runtime(*net::Runtime::start(name)) {}
  os::Env env() override { return runtime->env(); }
  void run_task(Task<void> task) override {
    ASSERT_TRUE(os::run_blocking(runtime->env().executor, std::move(task)));
  }
  std::unique_ptr<net::Runtime> runtime;
};

SocketRig::SocketRig() = default;
SocketRig::~SocketRig() { stop_all(); }

namespace {
Task<Engine::Counters> ask_counters(Engine* engine) { co_return engine->counters(); }
}  // namespace

Engine::Counters SocketRig::counters(Engine& engine) {
  return host_of(engine).run(ask_counters(&engine));
}

Host& SocketRig::host(const std::string& name) {
  nodes_.push_back(std::make_unique<Node>(name));
  return *nodes_.back();
}

namespace {

std::byte pattern(std::uint64_t seed, std::size_t at) {
  if (seed == 0) return std::byte{0};
  const std::uint64_t mixed = (at + 1) * 0x9E3779B97F4A7C15u + seed * 0xD1B54A32D192ED03u;
  return static_cast<std::byte>(mixed >> 56);
}

}  // namespace

Buffer::Buffer(std::size_t size, std::uint64_t seed) {
  memory::Pool::Options options;
  options.size = std::max<std::size_t>(size, 1);
  options.name = "test-buffer";
  auto pool = memory::Pool::create(options);
  if (!pool) {
    ADD_FAILURE() << pool.error().message();
    std::abort();
  }
  pool_ = *std::move(pool);
  bytes_ = pool_->bytes().first(size);
  if (seed != 0) fill(seed);
}

Buffer::Buffer(const Buffer& other) : Buffer(other.size()) {
  std::ranges::copy(other.bytes_, bytes_.begin());
}

Buffer::~Buffer() {
  if (shared_in_) shared_in_->unshare_pool(*pool_);
}

void Buffer::share(memory::Registry& registry) {
  shared_in_ = &registry;
  registry.share_pool(*pool_);
}

void Buffer::fill(std::uint64_t seed, std::size_t offset, std::size_t size) {
  for (std::size_t i = offset; i < offset + size; ++i)
    bytes_[i] = pattern(seed, i);
}

bool Buffer::holds(std::uint64_t seed, std::size_t offset, std::size_t size) const {
  for (std::size_t i = offset; i < offset + size; ++i) {
    if (bytes_[i] != pattern(seed, i)) return false;
  }
  return true;
}

Entry::Entry(Opcode opcode, std::span<std::byte> local, std::uint64_t remote, SegmentHandle target)
    : Entry(opcode, std::vector<base::MutableBuffer>{local}, remote, target) {}

Entry::Entry(Opcode opcode, std::vector<base::MutableBuffer> parts_, std::uint64_t remote,
             SegmentHandle target)
    : parts(std::move(parts_)) {
  request.target = target;
  request.slice.opcode = opcode;
  request.slice.remote = remote;
  for (const base::MutableBuffer& part : parts)
    request.slice.length += part.size();
}

Task<std::vector<Code>> move_all(Engine& engine, std::vector<Entry>& entries, TimePoint deadline,
                                 std::map<std::string, std::uint64_t>* moved,
                                 os::CancelToken* cancel) {
  std::vector<EngineRequest> requests;
  for (Entry& entry : entries) {
    requests.push_back(entry.request);
    requests.back().slice.local = entry.parts;
  }
  co_await engine.transfer(requests, deadline, moved, cancel);
  std::vector<Code> codes;
  for (const EngineRequest& request : requests)
    codes.push_back(request.slice.code);
  co_return codes;
}

Task<void> a_moment(os::Executor& executor) {
  os::Completion<bool> over(executor);
  executor.run_at(executor.now() + 20us, [&over] { over.set(true); });
  co_await over;
}

base::Version version_of(std::uint32_t sequence) {
  return base::Version(static_cast<base::Epoch>(1), sequence);
}

memory::ExtentRecord record_of(std::uint32_t sequence, std::uint64_t size, std::string_view key) {
  memory::ExtentRecord record;
  record.version = version_of(sequence).value();
  record.size = size;
  record.key_length = static_cast<std::uint16_t>(key.size());
  record.kind = memory::kPut;
  return record;
}

}  // namespace mooncake::transfer
