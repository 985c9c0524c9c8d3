// Ghosts: hashes of objects that were evicted of late.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mooncake::store::master {

// Remembers about as many as there are candidates, in two bytes each: a hash leads to a group of 32
// prints, of which the newest is the first and the oldest is overwritten. One in two thousand
// strangers is taken for one of them. When the number of candidates grows by an eighth or falls by
// half, what was remembered is forgotten. One thread.
class Ghosts {
 public:
  void add(std::uint64_t hash, std::uint64_t candidates) {
    fit(candidates);
    Group& group = groups_[index_of(hash)];
    std::copy_backward(group.prints, group.prints + kPrints - 1, group.prints + kPrints);
    group.prints[0] = print_of(hash);
  }

  // Whether it was there. It is forgotten.
  bool take(std::uint64_t hash) {
    if (groups_.empty()) return false;
    std::uint16_t* const begin = groups_[index_of(hash)].prints;
    std::uint16_t* const end = begin + kPrints;
    std::uint16_t* const found = std::find(begin, end, print_of(hash));
    if (found == end) return false;
    std::copy(found + 1, end, found);
    *(end - 1) = 0;
    return true;
  }

  std::size_t memory_bytes() const { return groups_.capacity() * sizeof(Group); }

 private:
  static constexpr std::size_t kPrints = 32;
  struct alignas(64) Group {
    std::uint16_t prints[kPrints] = {};  // 0 = none
  };
  static_assert(sizeof(Group) == 64);

  void fit(std::uint64_t candidates) {
    const std::uint64_t wanted = candidates / kPrints + 1;
    if (wanted <= groups_.size() && wanted >= groups_.size() / 2) return;
    groups_ = std::vector<Group>(wanted + wanted / 8);
  }
  std::size_t index_of(std::uint64_t hash) const {
    return static_cast<std::size_t>((hash >> 32) * groups_.size() >> 32);
  }
  static std::uint16_t print_of(std::uint64_t hash) {
    return std::max<std::uint16_t>(static_cast<std::uint16_t>(hash), 1);
  }

  std::vector<Group> groups_;
};

}  // namespace mooncake::store::master
