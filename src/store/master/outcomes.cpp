#include "store/master/outcomes.h"

#include <algorithm>
#include <bit>

namespace mooncake::store::master {

namespace {

constexpr std::size_t kFirstSlots = 64;
// A ring up to this size is kept when it is empty.
constexpr std::size_t kKeptSlots = 4096;

}  // namespace

void Outcomes::Outcome::set(const Effect& effect) {
  version = effect.version;
  size = effect.size;
  std::copy(std::begin(effect.placements), std::end(effect.placements), placements);
  code = effect.code;
  replicas = effect.replicas;
}

Effect Outcomes::Outcome::effect() const {
  Effect effect;
  effect.code = code;
  effect.replicas = replicas;
  effect.version = version;
  effect.size = size;
  std::copy(std::begin(placements), std::end(placements), effect.placements);
  if (kind == CommandKind::kSweep) effect.cursor = entry;
  return effect;
}

Outcomes::~Outcomes() { budget_.left += ring_.size(); }

void Outcomes::shrink() {
  if (ring_.size() <= kKeptSlots) return;
  budget_.left += ring_.size();
  std::vector<Outcome>().swap(ring_);
}

Outcomes::Outcome* Outcomes::at(std::uint64_t number) {
  if (number < floor_ || number - floor_ >= kWindow) return nullptr;
  if (number - floor_ >= ring_.size() && !grow(number - floor_ + 1)) return nullptr;
  end_ = std::max(end_, number + 1);
  return &ring_[number & (ring_.size() - 1)];
}

bool Outcomes::grow(std::uint64_t slots) {
  const std::size_t wanted = std::bit_ceil(std::max<std::size_t>(slots, kFirstSlots));
  const std::size_t more = wanted - ring_.size();
  if (more > budget_.left) return false;
  budget_.left -= more;
  std::vector<Outcome> larger(wanted);
  for (std::size_t i = 0; i < ring_.size(); ++i) {
    const std::uint64_t number = floor_ + i;
    larger[number & (wanted - 1)] = ring_[number & (ring_.size() - 1)];
  }
  ring_ = std::move(larger);
  return true;
}

}  // namespace mooncake::store::master
