#include "demo_prefill.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "workload/block_content.h"

namespace mooncake::demo {

namespace {

// Of one hand-off. The parent gives up on a request that stands still for longer.
constexpr std::chrono::milliseconds kHandOffTimeout{20'000};

// Else each request would take as long as a call may, and the run would seem to go on.
bool does_not_answer(std::int32_t code) {
  return code == code_info(Code::kUnreachable).store ||
         code == code_info(Code::kDeadlineExceeded).store;
}

class Stopwatch {
 public:
  std::uint64_t microseconds() const {
    const auto passed = std::chrono::steady_clock::now() - begin_;
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(passed).count());
  }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

PrefillNode::PrefillNode(Node& node, ControlChannel& control, Inbox& inbox)
    : node_(node), control_(control), inbox_(inbox) {}

Result<void> PrefillNode::meet(const Peers& peers) {
  peers_ = peers.decode;
  for (const DecodePeer& peer : peers_) {
    auto segment = node_.engine().open_segment(peer.segment);
    if (!segment) return fail(std::move(segment).error().with_context(peer.name));
    segments_.push_back(*segment);
  }
  return {};
}

Result<void> PrefillNode::serve(const Work& work) {
  const std::uint64_t blocks = work.ids.size();
  const std::uint64_t step = node_.setup().slot_blocks;
  std::uint64_t hits = find_prefix(work);
  control_.send_all(Found{work.request, hits});
  for (std::uint64_t first = 0; first < blocks; first += step) {
    const std::span<const std::uint64_t> rest = std::span(work.ids).subspan(first);
    const Window window = {work.request, first,
                           rest.first(std::min<std::size_t>(step, rest.size()))};
    Stored report;
    report.request = work.request;
    report.up_to = window.end();
    const std::uint64_t read_to = read(window, hits, report);
    if (read_to < std::min(hits, window.end())) {
      hits = read_to;
      // Before the first byte of them is written: others must know.
      control_.send_all(Found{work.request, hits});
    }
    const std::uint64_t computed_from = std::clamp(hits, window.first, window.end());
    compute(window, computed_from);
    MC_CHECK(put(window, computed_from, report));
    control_.send_all(report);
    if (work.corruption) corrupt(window, *work.corruption);
    MC_CHECK(hand_off(window, window.end() == blocks));
  }
  return {};
}

std::uint64_t PrefillNode::find_prefix(const Work& work) {
  keys_.clear();
  for (std::uint64_t id : work.ids) {
    keys_.push_back(workload::block_key("demo", node_.setup().seed, id));
  }
  const std::vector<std::string_view> keys(keys_.begin(), keys_.end());
  const std::vector<std::int32_t> exist = node_.store().exist_batch(keys);
  const auto missing =
      std::find_if(exist.begin(), exist.end(), [](auto code) { return code != 1; });
  return static_cast<std::uint64_t>(missing - exist.begin());
}

std::uint64_t PrefillNode::read(const Window& window, std::uint64_t hits, Stored& report) {
  if (hits <= window.first) return hits;
  const std::uint64_t count = std::min(hits, window.end()) - window.first;
  node_.wipe(0, count);
  std::vector<MutableBytes> places;
  for (std::uint64_t i = 0; i < count; ++i)
    places.push_back(node_.place(0, i));
  std::vector<GetItem> items;
  for (std::uint64_t i = 0; i < count; ++i) {
    items.push_back({keys_[window.first + i], std::span(&places[i], 1)});
  }
  const Stopwatch watch;
  const std::vector<std::int64_t> sizes = node_.store().get_into_batch(items);
  const std::uint64_t microseconds = watch.microseconds();

  // A block of another size is read, and then found wrong by its bytes.
  const auto missing = std::find_if(sizes.begin(), sizes.end(), [](auto size) { return size < 0; });
  const auto got = static_cast<std::uint64_t>(missing - sizes.begin());
  report.get = {got * node_.setup().block_bytes, microseconds};
  node_.verify(window.request, 0, window.first, window.ids.first(got), "store get", report.check);
  return window.first + got;
}

void PrefillNode::compute(const Window& window, std::uint64_t from) {
  for (std::uint64_t position = from; position < window.end(); ++position) {
    const std::uint64_t i = position - window.first;
    workload::fill_block(node_.place(0, i), window.ids[i], position, node_.setup().seed);
  }
}

Result<void> PrefillNode::put(const Window& window, std::uint64_t from, Stored& report) {
  if (from >= window.end()) return {};
  std::vector<ConstBytes> places;
  for (std::uint64_t position = from; position < window.end(); ++position) {
    places.push_back(node_.place(0, position - window.first));
  }
  std::vector<PutItem> items;
  for (std::size_t i = 0; i < places.size(); ++i) {
    items.push_back({keys_[from + i], std::span(&places[i], 1)});
  }
  ReplicateConfig config;
  config.replica_num = node_.setup().replicas;
  const Stopwatch watch;
  const std::vector<std::int32_t> codes = node_.store().put_batch(items, config);
  const std::uint64_t microseconds = watch.microseconds();
  std::uint64_t stored = 0;
  for (std::int32_t code : codes) {
    if (code == 0) {
      ++stored;
    } else if (does_not_answer(code)) {
      return fail(Code::kUnreachable,
                  fmt::format("the Store does not answer: put of request {} "
                              "ended with code {} after {:.1f} s",
                              window.request, code, static_cast<double>(microseconds) / 1e6));
    } else {
      ++report.not_stored[code];
    }
  }
  report.put = {stored * node_.setup().block_bytes, microseconds};
  return {};
}

void PrefillNode::corrupt(const Window& window, const Corruption& corruption) {
  if (corruption.position < window.first || corruption.position >= window.end()) return;
  node_.place(0, corruption.position - window.first)[corruption.offset] ^= std::byte{1};
}

Result<void> PrefillNode::hand_off(const Window& window, bool last) {
  const Message granted = inbox_.next();
  const Slot* const slot = std::get_if<Slot>(&granted);
  if (slot == nullptr || slot->request != window.request || slot->decode >= peers_.size()) {
    return fail(Code::kProtocolError, "expected a slot for request " +
                                          std::to_string(window.request) + ", got " +
                                          encode(granted).substr(0, 200));
  }
  const std::uint64_t block_bytes = node_.setup().block_bytes;
  const DecodePeer& peer = peers_[slot->decode];
  const std::uint64_t base = peer.address + slot->slot * node_.setup().slot_blocks * block_bytes;
  std::vector<TransferRequest> requests;
  for (std::uint64_t i = 0; i < window.ids.size(); ++i) {
    requests.push_back({.opcode = Opcode::kWrite,
                        .source = node_.place(0, i).data(),
                        .target = segments_[slot->decode],
                        .target_offset = base + i * block_bytes,
                        .length = block_bytes});
  }
  const Stopwatch watch;
  const TransferOutcome outcome = node_.engine().transfer(requests, kHandOffTimeout);
  if (!outcome.ok()) {
    std::string why = outcome.status ? "unknown" : outcome.status.error().message();
    return fail(Code::kTransferFailed,
                fmt::format("hand-off of request {} to {}: {}", window.request, peer.name, why));
  }
  Handed handed;
  handed.request = window.request;
  handed.first = window.first;
  handed.count = window.ids.size();
  handed.last = last;
  handed.call = {outcome.bytes, watch.microseconds()};
  handed.reasons = outcome.reasons;
  control_.send_all(handed);
  return {};
}

}  // namespace mooncake::demo
