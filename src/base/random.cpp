#include "base/random.h"

#include <sys/random.h>

#include <bit>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace mooncake::base {

namespace {

// Spreads one word over the state, so that near seeds give unlike sequences.
std::uint64_t splitmix(std::uint64_t& state) {
  std::uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

Random::Random(std::uint64_t seed) {
  for (std::uint64_t& word : state_)
    word = splitmix(seed);
}

// xoshiro256**.
std::uint64_t Random::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

// The high half of next() * bound; the few low halves that would favour some results are drawn
// again.
std::uint64_t Random::below(std::uint64_t bound) {
  assert(bound > 0);
  __extension__ using Wide = unsigned __int128;
  Wide product = static_cast<Wide>(next()) * bound;
  if (static_cast<std::uint64_t>(product) < bound) {
    const std::uint64_t uneven = (0 - bound) % bound;
    while (static_cast<std::uint64_t>(product) < uneven)
      product = static_cast<Wide>(next()) * bound;
  }
  return static_cast<std::uint64_t>(product >> 64);
}

double Random::unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

void secure_random(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::getrandom(out.data(), out.size(), 0);
    if (got > 0) {
      out = out.subspan(static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      // Without it keys and incarnations could be guessed or repeat: nothing is safe then.
      std::perror("getrandom");
      std::abort();
    }
  }
}

std::uint64_t secure_random() {
  std::uint64_t value = 0;
  secure_random(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

}  // namespace mooncake::base
