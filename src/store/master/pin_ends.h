// PinEnds: when soft pins end, the first one first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace mooncake::store::master {

// A heap of 16 bytes for each pin. Pins that are gone by now stay in it until their time, or until
// they are more than half of it: whoever takes one out asks whether it is still true. One thread.
class PinEnds {
 public:
  struct End {
    std::uint64_t at = 0;  // ns
    std::uint32_t entry = 0;
    bool operator>(const End& other) const { return at > other.at; }
  };

  // `alive` pins are there, this one among them; `is_true(end)` tells them from the others.
  template <typename IsTrue>
  void add(End end, std::uint64_t alive, IsTrue is_true) {
    if (ends_.size() >= 2 * alive + kSlack) {
      std::erase_if(ends_, [&](const End& old) { return !is_true(old); });
      std::make_heap(ends_.begin(), ends_.end(), std::greater<>());
    }
    ends_.push_back(end);
    std::push_heap(ends_.begin(), ends_.end(), std::greater<>());
  }
  bool any_by(std::uint64_t now) const { return !ends_.empty() && ends_.front().at <= now; }
  // any_by() said so.
  End take() {
    std::pop_heap(ends_.begin(), ends_.end(), std::greater<>());
    const End end = ends_.back();
    ends_.pop_back();
    return end;
  }
  std::size_t size() const { return ends_.size(); }
  bool holds(std::uint64_t at, std::uint32_t entry) const {
    return std::any_of(ends_.begin(), ends_.end(),
                       [&](const End& end) { return end.at == at && end.entry == entry; });
  }

 private:
  static constexpr std::size_t kSlack = 64;
  std::vector<End> ends_;
};

}  // namespace mooncake::store::master
