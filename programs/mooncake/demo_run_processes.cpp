// The part of DemoRun that starts and ends the processes.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "demo_run.h"
#include "net/http.h"
#include "net/runtime.h"
#include "os/run_blocking.h"

namespace mooncake::demo {

namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

// A process that dies is noticed at once; this is for one that hangs, on a machine that is busy.
constexpr seconds kStartTimeout{60};
constexpr seconds kStopTimeout{10};
constexpr seconds kMetricsTimeout{5};
constexpr int kPortTries = 5;
// Blocks once read must soon be evictable, but not while the node that found them reads them.
constexpr std::string_view kLeaseTtl = "500ms";

constexpr const char* kSelf = "/proc/self/exe";

// The programs lie in one folder.
Result<std::string> path_of_master() {
  std::array<char, PATH_MAX> self;
  const ssize_t size = ::readlink(kSelf, self.data(), self.size());
  if (size <= 0) return fail(Code::kSystemCall, fmt::format("readlink {}", kSelf));
  const std::string_view path(self.data(), static_cast<std::size_t>(size));
  return std::string(path.substr(0, path.rfind('/'))) + "/mooncake_master";
}

// "rpc=127.0.0.1:1 http=127.0.0.1:2" -> the text behind `key`.
std::string word_of(std::string_view line, std::string_view key) {
  const auto begin = line.find(key);
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = line.substr(begin + key.size());
  return std::string(rest.substr(0, rest.find_first_of(" \n")));
}

// The value of a metric without labels in Prometheus text.
std::uint64_t metric(std::string_view page, std::string_view name) {
  for (std::size_t begin = 0; begin < page.size();) {
    const std::size_t end = std::min(page.find('\n', begin), page.size());
    const std::string_view line = page.substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ' ') continue;
    return static_cast<std::uint64_t>(
        std::strtod(std::string(line.substr(name.size() + 1)).c_str(), nullptr));
  }
  return 0;
}

Result<std::string> fetch(const std::string& url) {
  MC_TRY(const auto runtime, net::Runtime::start("demo-http"));
  const os::Env env = runtime->env();
  auto response = os::run_blocking(
      env.executor, net::http_request(env, "GET", url, "", env.now() + kMetricsTimeout));
  if (!response) return fail(Code::kInternal, "the reactor has stopped");
  if (!*response) return fail(std::move(*response).error().with_context(url));
  if ((*response)->status != 200) {
    return fail(Code::kProtocolError, fmt::format("{}: status {}", url, (*response)->status));
  }
  return (*response)->body;
}

}  // namespace

Result<void> DemoRun::start_master() {
  MC_TRY(const std::string path, path_of_master());
  for (int i = 0; i < kPortTries; ++i) {
    MC_TRY(const bool started, try_master(path));
    if (started) return {};
  }
  return fail(Code::kAddressInUse,
              fmt::format("master: other programs took its ports in {} tries", kPortTries));
}

Result<bool> DemoRun::try_master(const std::string& path) {
  MC_TRY(const std::uint16_t rpc_port, free_port());
  MC_TRY(const std::uint16_t http_port, free_port());
  ProgramSpec spec;
  spec.name = "master";
  spec.path = path;
  spec.arguments = {"-rpc_address=127.0.0.1",
                    fmt::format("-rpc_port={}", rpc_port),
                    "-metrics_host=127.0.0.1",
                    fmt::format("-metrics_port={}", http_port),
                    fmt::format("-default_kv_lease_ttl={}", kLeaseTtl),
                    "-log_level=warning"};
  MC_TRY(master_, cluster_->spawn(spec));
  const Time until = steady_clock::now() + kStartTimeout;
  while (steady_clock::now() < until) {
    auto events = next_events(until);
    if (!events && !cluster_->alive(master_)) {
      const bool taken = cluster_->last_words(master_).find("in use") != std::string::npos;
      if (taken) return false;
    }
    if (!events) return fail(std::move(events).error());
    for (const auto& [child, line] : events->lines) {
      if (!line.starts_with("mooncake_master ready ")) continue;
      master_rpc_ = word_of(line, "rpc=");
      master_http_ = word_of(line, "http=");
      return true;
    }
  }
  return fail(Code::kDeadlineExceeded,
              fmt::format("master did not say in {} s that it serves{}", kStartTimeout.count(),
                          cluster_->last_words(master_)));
}

Result<void> DemoRun::start_nodes() {
  for (std::uint64_t i = 0; i < kPrefillNodes; ++i) {
    MC_CHECK(start_node("prefill", i, 1));
  }
  for (std::uint64_t i = 0; i < kDecodeNodes; ++i) {
    MC_CHECK(start_node("decode", i, kDecodeSlots));
  }
  for (std::uint64_t i = 0; i < kStorageNodes; ++i) {
    MC_CHECK(start_node("storage", i, 0));
  }
  return {};
}

Result<void> DemoRun::start_node(const std::string& role, std::uint64_t number,
                                 std::uint64_t slots) {
  ProgramSpec spec;
  spec.name = fmt::format("{}-{}", role, number);
  spec.path = kSelf;
  spec.arguments = {"demo-node"};
  spec.controlled = true;
  MC_TRY(const std::size_t child, cluster_->spawn(spec));
  nodes_.push_back(child);
  if (role == "prefill") prefill_.push_back({child});
  if (role == "decode") {
    DecodeNode decode;
    decode.child = child;
    decode.peer.name = spec.name;
    for (std::uint64_t slot = 0; slot < slots; ++slot)
      decode.free_slots.push_back(slot);
    decode_.push_back(std::move(decode));
  }
  Setup setup;
  setup.role = role;
  setup.name = spec.name;
  setup.master = master_rpc_;
  setup.segment_bytes = options_.segment_bytes;
  setup.block_bytes = options_.block_bytes;
  setup.slots = slots;
  setup.slot_blocks = plan_.slot_blocks;
  setup.seed = options_.seed;
  setup.path = options_.path;
  setup.replicas = options_.replicas;
  cluster_->send(child, setup);
  return {};
}

Result<void> DemoRun::greet_nodes() {
  const Time until = steady_clock::now() + kStartTimeout;
  std::size_t ready_nodes = 0;
  while (ready_nodes < nodes_.size()) {
    MC_TRY(const Cluster::Events events, next_events(until));
    for (const auto& [child, message] : events.messages) {
      const auto* const ready = std::get_if<Ready>(&message);
      if (ready == nullptr) return fail(unexpected(child, message));
      ++ready_nodes;
      for (DecodeNode& decode : decode_) {
        if (decode.child != child) continue;
        decode.peer.segment = ready->segment;
        decode.peer.address = ready->address;
      }
    }
    if (steady_clock::now() >= until) {
      return fail(Code::kDeadlineExceeded,
                  fmt::format("only {} of {} nodes were ready in {} s", ready_nodes, nodes_.size(),
                              kStartTimeout.count()));
    }
  }
  Peers peers;
  for (const DecodeNode& decode : decode_)
    peers.decode.push_back(decode.peer);
  for (const PrefillSlot& prefill : prefill_)
    cluster_->send(prefill.child, peers);
  return {};
}

Result<void> DemoRun::read_master_metrics() {
  auto page = fetch(fmt::format("http://{}/metrics", master_http_));
  if (!page) return fail(std::move(page).error().with_context("master"));
  report_.evicted_objects = metric(*page, "master_evicted_key_count");
  report_.evicted_bytes = metric(*page, "master_evicted_size_bytes");
  return {};
}

Result<void> DemoRun::stop_nodes() {
  for (std::size_t child : nodes_)
    cluster_->send(child, Stop{});
  const Time until = steady_clock::now() + kStopTimeout;
  for (;;) {
    std::string alive;
    for (std::size_t child : nodes_) {
      if (cluster_->alive(child)) alive += (alive.empty() ? "" : ", ") + cluster_->name(child);
    }
    if (alive.empty()) return {};
    if (steady_clock::now() >= until) {
      return fail(Code::kDeadlineExceeded,
                  fmt::format("{} did not end in {} s", alive, kStopTimeout.count()));
    }
    MC_TRY(const Cluster::Events events, next_events(until, true));
    for (const auto& [child, message] : events.messages) {
      const auto* const stopped = std::get_if<Stopped>(&message);
      if (stopped == nullptr) return fail(unexpected(child, message));
      for (const auto& [path, bytes] : stopped->bytes_by_path)
        report_.paths[path].bytes += bytes;
    }
  }
}

Result<void> DemoRun::stop_master() {
  cluster_->terminate(master_);
  const Time until = steady_clock::now() + kStopTimeout;
  while (cluster_->alive(master_)) {
    if (steady_clock::now() >= until) {
      return fail(Code::kDeadlineExceeded,
                  fmt::format("master did not end in {} s", kStopTimeout.count()));
    }
    MC_TRY(const Cluster::Events events, next_events(until, true));
  }
  return {};
}

}  // namespace mooncake::demo
