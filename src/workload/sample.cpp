#include "workload/sample.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <numeric>
#include <span>
#include <utility>

#include "base/random.h"

namespace mooncake::workload {
namespace {

using base::Random;

// A distribution by a few points of its quantile function; straight lines between them. Fitted by
// eye to what the publication says about the conversation trace.
struct Knot {
  std::uint64_t share_ppm;
  std::uint64_t tokens;
};
// Flat around the 99th percentile, where the nearest rank of 200 requests wanders most.
constexpr Knot kInputTokens[] = {{0, 890},          {100'000, 960},    {250'000, 2'200},
                                 {500'000, 6'900},  {750'000, 15'200}, {850'000, 21'400},
                                 {900'000, 27'400}, {950'000, 39'500}, {970'000, 52'000},
                                 {987'500, 80'000}, {992'500, 89'000}, {1'000'000, 126'000}};
constexpr Knot kOutputTokens[] = {
    {0, 1},         {100'000, 20},    {300'000, 230},    {800'000, 490},
    {950'000, 740}, {990'000, 1'120}, {1'000'000, 2'000}};

constexpr std::uint64_t kFullShare = 1'000'000;  // ppm

std::uint64_t quantile(std::span<const Knot> knots, std::uint64_t share_ppm) {
  std::size_t i = 1;
  while (i + 1 < knots.size() && knots[i].share_ppm < share_ppm) {
    ++i;
  }
  const Knot& low = knots[i - 1];
  const Knot& high = knots[i];
  return low.tokens + (high.tokens - low.tokens) * (share_ppm - low.share_ppm) /
                          (high.share_ppm - low.share_ppm);
}

// One length from each of `count` equal slices of the distribution, in random order: percentiles
// and mean then hold for a few hundred draws as for many. From a slice's middle half only, because
// at the 99th percentile the slices of a few hundred draws are wide.
std::vector<std::uint64_t> stratified_lengths(std::size_t count, Random& random) {
  constexpr std::uint64_t kParts = 1024;
  std::vector<std::uint64_t> lengths(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t part = kParts / 4 + random.below(kParts / 2);
    lengths[i] = quantile(kInputTokens, (i * kParts + part) * kFullShare / (count * kParts));
  }
  for (std::size_t i = count; i > 1; --i) {
    std::swap(lengths[i - 1], lengths[random.below(i)]);
  }
  return lengths;
}

std::uint64_t blocks_of(std::uint64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

class Generator {
 public:
  explicit Generator(const SampleOptions& options)
      : random_(options.seed), lengths_(stratified_lengths(options.requests, random_)) {
    std::uint64_t blocks = 0;
    for (const std::uint64_t length : lengths_) {
      blocks += blocks_of(length);
    }
    tolerance_ = static_cast<std::int64_t>(std::max<std::uint64_t>(1, blocks * kTolerancePermille));
  }

  std::vector<Request> run() && {
    requests_.reserve(lengths_.size());
    continued_.assign(lengths_.size(), false);
    for (const std::uint64_t length : lengths_) {
      add(length);
    }
    return std::move(requests_);
  }

 private:
  // All sums about reuse are thousandths of blocks.
  static constexpr std::int64_t kHitPermille = 366;
  static constexpr std::uint64_t kTolerancePermille = 6;
  static constexpr std::uint64_t kContinuePermille = 400;  // requests that are a further turn
  static constexpr std::uint64_t kEditPermille = 100;      // of those, that edit an earlier turn
  static constexpr std::size_t kRecent = 4096;             // requests whose users are still there
  static constexpr int kLooks = 16;
  // Requests are collected every 3 s, as in the publication; 588 ms at most lie between two.
  static constexpr std::uint64_t kCollectMs = 3'000;
  static constexpr std::uint64_t kGapMs = 589;

  // The prompt to build on and the number of its blocks to share.
  struct Reuse {
    std::size_t request = 0;
    std::uint64_t blocks = 0;
  };

  void add(std::uint64_t length) {
    arrive();
    const std::uint64_t blocks = blocks_of(length);
    const Reuse reuse = choose(blocks);
    Request request{.timestamp_ms = now_ms_ / kCollectMs * kCollectMs,
                    .input_length = length,
                    .output_length = quantile(kOutputTokens, random_.below(kFullShare))};
    request.hash_ids.reserve(blocks);
    if (reuse.blocks > 0) {
      const std::vector<std::uint64_t>& from = requests_[reuse.request].hash_ids;
      request.hash_ids.assign(from.begin(),
                              from.begin() + static_cast<std::ptrdiff_t>(reuse.blocks));
    }
    while (request.hash_ids.size() < blocks) {
      request.hash_ids.push_back(next_id_++);
    }
    missing_ = missing_after(blocks, reuse.blocks);
    requests_.push_back(std::move(request));
  }

  // Time of the next request; those that were there at the last collection can have a next turn.
  void arrive() {
    const std::uint64_t before = now_ms_ / kCollectMs;
    now_ms_ += requests_.empty() ? 0 : random_.below(kGapMs);
    if (now_ms_ / kCollectMs != before) {
      answered_ = requests_.size();
    }
  }

  Reuse choose(std::uint64_t blocks) {
    // Everybody shares the system prompt, the first block of the first request.
    const Reuse fresh{.request = 0, .blocks = requests_.empty() ? 0u : 1u};
    if (answered_ == 0) {
      return fresh;
    }
    Reuse reuse = fresh;
    if (random_.below(1000) < continue_permille()) {
      reuse = random_turn(blocks, fresh);
    }
    const std::int64_t after = missing_after(blocks, reuse.blocks);
    if (std::abs(after) > tolerance_ && std::abs(after) > std::abs(missing_)) {
      reuse = best_turn(blocks, fresh);
    }
    if (reuse.blocks > 1) {
      continued_[reuse.request] = true;
    }
    return reuse;
  }

  // Leans towards reuse when hits are missing and away from it when there are too many.
  std::uint64_t continue_permille() const {
    const std::int64_t lean =
        std::clamp(missing_ * 400 / tolerance_, std::int64_t{-350}, std::int64_t{500});
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(kContinuePermille) + lean);
  }

  // A next turn of the longest of some recent conversations that is shorter than the prompt; now
  // and then of a part of one, after an edit.
  Reuse random_turn(std::uint64_t blocks, Reuse fresh) {
    const bool edit = random_.below(1000) < kEditPermille;
    Reuse best = fresh;
    for (int look = 0; look < kLooks; ++look) {
      const std::size_t from = some_recent();
      std::uint64_t shared = full_blocks(from);
      if (edit) {
        shared = std::min(shared, 1 + random_.below(blocks - 1));
      } else if (continued_[from] || shared >= blocks) {
        continue;
      }
      if (shared > best.blocks) {
        best = {from, shared};
      }
    }
    return best;
  }

  // What brings the sum of hits closest to the aim.
  Reuse best_turn(std::uint64_t blocks, Reuse fresh) const {
    const std::int64_t wanted = missing_after(blocks, 0) / 1000;
    if (wanted <= 1) {
      return fresh;
    }
    const std::uint64_t most = std::min(static_cast<std::uint64_t>(wanted), blocks - 1);
    Reuse best = fresh;
    for (std::size_t from = oldest(); from < answered_; ++from) {
      const std::uint64_t shared = std::min(full_blocks(from), most);
      if (shared > best.blocks) {
        best = {from, shared};
      }
    }
    return best;
  }

  // Half of all draws lie in the last fifth of the window: people mostly answer soon.
  std::size_t some_recent() {
    const std::uint64_t window = answered_ - oldest();
    return answered_ - 1 - random_.below(1 + random_.below(window));
  }
  std::size_t oldest() const { return answered_ > kRecent ? answered_ - kRecent : 0; }
  // The last block, when not full, is another one once the prompt goes on.
  std::uint64_t full_blocks(std::size_t request) const {
    return requests_[request].input_length / kBlockTokens;
  }
  // Hits that are missing to the aim when a request of `blocks` with `hits` is added.
  std::int64_t missing_after(std::uint64_t blocks, std::uint64_t hits) const {
    return missing_ + static_cast<std::int64_t>(blocks) * kHitPermille -
           static_cast<std::int64_t>(hits) * 1000;
  }

  Random random_;
  std::vector<std::uint64_t> lengths_;
  std::vector<Request> requests_;
  std::vector<bool> continued_;  // by a next turn
  std::int64_t tolerance_ = 0;
  std::int64_t missing_ = 0;
  std::uint64_t now_ms_ = 0;
  std::size_t answered_ = 0;  // requests before this one can be continued
  std::uint64_t next_id_ = 0;
};

}  // namespace

std::vector<Request> generate_sample(const SampleOptions& options) {
  assert(options.requests <= kMaxSampleRequests);
  return Generator(options).run();
}

}  // namespace mooncake::workload
