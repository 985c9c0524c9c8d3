// IntervalIndex: values under intervals that may overlap; which of them covers a range, in O(log
// n).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace mooncake::memory {

// A treap ordered by (begin, age) in which each node knows the largest end below it. Intervals are
// [begin, end), not empty. Not thread-safe.
template <typename T>
class IntervalIndex {
 public:
  void insert(std::uint64_t begin, std::uint64_t end, T value) {
    auto node = std::make_unique<Node>(begin, end, next_age_++, next_priority(), std::move(value));
    Link left, right;
    split(std::move(root_), begin, node->age, left, right);
    root_ = merge(merge(std::move(left), std::move(node)), std::move(right));
    ++size_;
  }

  // An interval that contains [begin, end): the one that begins first, of equal ones the oldest.
  const T* covering(std::uint64_t begin, std::uint64_t end) const { return find(begin, end); }
  // An interval that has at least one byte in common with [begin, end).
  const T* overlapping(std::uint64_t begin, std::uint64_t end) const {
    return find(end - 1, begin + 1);
  }

  // Removes the youngest of the intervals that begin here.
  std::optional<T> take_youngest(std::uint64_t begin) {
    return take_youngest(begin, [](const T&) { return true; });
  }
  // Of those for whose value `wanted` is true.
  template <typename Wanted>
  std::optional<T> take_youngest(std::uint64_t begin, Wanted wanted) {
    Link left, middle, right;
    split(std::move(root_), begin, 0, left, right);
    split(std::move(right), begin + 1, 0, middle, right);
    std::optional<T> taken;
    middle = remove_last(std::move(middle), taken, wanted);
    if (taken) --size_;
    root_ = merge(merge(std::move(left), std::move(middle)), std::move(right));
    return taken;
  }

  void clear() {
    root_.reset();
    size_ = 0;
  }
  std::size_t size() const { return size_; }

 private:
  struct Node;
  using Link = std::unique_ptr<Node>;
  struct Node {
    Node(std::uint64_t begin_, std::uint64_t end_, std::uint64_t age_, std::uint64_t priority_,
         T value_)
        : begin(begin_),
          end(end_),
          max_end(end_),
          age(age_),
          priority(priority_),
          value(std::move(value_)) {}
    const std::uint64_t begin, end;
    std::uint64_t max_end;
    const std::uint64_t age;
    const std::uint64_t priority;
    Link left, right;
    T value;

    bool before(std::uint64_t other_begin, std::uint64_t other_age) const {
      return begin != other_begin ? begin < other_begin : age < other_age;
    }
    void update() {
      max_end = end;
      if (left) max_end = std::max(max_end, left->max_end);
      if (right) max_end = std::max(max_end, right->max_end);
    }
  };

  // The first node with begin <= `from` and end >= `to`.
  const T* find(std::uint64_t from, std::uint64_t to) const {
    const Node* node = root_.get();
    while (node && node->max_end >= to) {
      if (node->left && node->left->max_end >= to) {
        // Somewhere on the left an interval reaches far enough; it begins early enough if this node
        // does, and if it doesn't, nothing right of here can.
        node = node->left.get();
      } else if (node->begin > from) {
        return nullptr;
      } else if (node->end >= to) {
        return &node->value;
      } else {
        node = node->right.get();
      }
    }
    return nullptr;
  }

  static void split(Link tree, std::uint64_t begin, std::uint64_t age, Link& left, Link& right) {
    if (!tree) {
      left.reset();
      right.reset();
    } else if (tree->before(begin, age)) {
      Link rest;
      split(std::move(tree->right), begin, age, rest, right);
      tree->right = std::move(rest);
      tree->update();
      left = std::move(tree);
    } else {
      Link rest;
      split(std::move(tree->left), begin, age, left, rest);
      tree->left = std::move(rest);
      tree->update();
      right = std::move(tree);
    }
  }
  static Link merge(Link left, Link right) {
    if (!left) return right;
    if (!right) return left;
    if (left->priority < right->priority) {
      left->right = merge(std::move(left->right), std::move(right));
      left->update();
      return left;
    }
    right->left = merge(std::move(left), std::move(right->left));
    right->update();
    return right;
  }
  // The last one that is wanted.
  template <typename Wanted>
  static Link remove_last(Link tree, std::optional<T>& taken, Wanted wanted) {
    if (!tree) return tree;
    tree->right = remove_last(std::move(tree->right), taken, wanted);
    if (!taken && wanted(std::as_const(tree->value))) {
      taken.emplace(std::move(tree->value));
      return merge(std::move(tree->left), std::move(tree->right));
    }
    if (!taken) tree->left = remove_last(std::move(tree->left), taken, wanted);
    tree->update();
    return tree;
  }

  // SplitMix64: balances the tree whatever the order of the intervals.
  std::uint64_t next_priority() {
    std::uint64_t z = seed_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }

  Link root_;
  std::size_t size_ = 0;
  std::uint64_t next_age_ = 1;
  std::uint64_t seed_ = 0;
};

}  // namespace mooncake::memory
