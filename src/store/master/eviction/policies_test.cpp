// All policies: without holds each is its textbook, kept in plain lists; with holds nothing held
// goes, nothing that may go is forgotten, and the work does not grow with what is held (case C21).
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/random.h"
#include "store/master/eviction/policy_testing.h"

namespace mooncake::store::master {
namespace {

// Oldest first; every call may cost as much as there are entries.
class Textbook {
 public:
  explicit Textbook(EvictionKind kind) : kind_(kind) {}

  void publish(std::uint32_t entry) {
    reads_[entry] = 0;
    const bool known = std::erase(ghosts_, entry) > 0;
    (known ? main_ : queue_).push_back(entry);
  }
  void access(std::uint32_t entry) {
    reads_[entry] = std::min(reads_[entry] + 1, kind_ == EvictionKind::kSieve ? 1 : 3);
    if (kind_ != EvictionKind::kLru) return;
    queue_.remove(entry);
    queue_.push_back(entry);
  }
  void remove(std::uint32_t entry) {
    if (hand_ != queue_.end() && *hand_ == entry) ++hand_;
    queue_.remove(entry);
    main_.remove(entry);
  }
  std::uint32_t next() {
    if (queue_.empty() && main_.empty()) return kNobody;
    if (kind_ == EvictionKind::kSieve) return next_of_sieve();
    if (kind_ == EvictionKind::kS3Fifo) return next_of_s3fifo();
    return queue_.front();
  }
  void evict(std::uint32_t entry) {
    const bool in_small = std::find(queue_.begin(), queue_.end(), entry) != queue_.end();
    remove(entry);
    if (kind_ != EvictionKind::kS3Fifo || !in_small) return;
    ghosts_.push_back(entry);
    if (ghosts_.size() > 32) ghosts_.erase(ghosts_.begin());
  }

 private:
  std::uint32_t next_of_sieve() {
    for (;; ++hand_) {
      if (hand_ == queue_.end()) hand_ = queue_.begin();
      if (reads_[*hand_] == 0) return *hand_;
      reads_[*hand_] = 0;
    }
  }
  std::uint32_t next_of_s3fifo() {
    for (;;) {
      const std::size_t all = queue_.size() + main_.size();
      const bool small = !queue_.empty() && (queue_.size() >= all / 10 || main_.empty());
      std::list<std::uint32_t>& from = small ? queue_ : main_;
      const std::uint32_t entry = from.front();
      if (reads_[entry] == 0) return entry;
      reads_[entry] = small ? 0 : reads_[entry] - 1;
      from.pop_front();
      main_.push_back(entry);
    }
  }

  const EvictionKind kind_;
  std::list<std::uint32_t> queue_;  // of s3fifo: the small one
  std::list<std::uint32_t> main_;
  std::list<std::uint32_t>::iterator hand_ = queue_.end();
  std::vector<std::uint32_t> ghosts_;
  std::map<std::uint32_t, int> reads_;
};

class Policies : public testing::TestWithParam<EvictionKind> {};
INSTANTIATE_TEST_SUITE_P(All, Policies, testing::ValuesIn(kEvictionKinds),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

TEST_P(Policies, WithoutHoldsAsInTheBook) {
  base::Random random(3);
  PolicyFixture f(GetParam(), 60, 0);
  Textbook book(GetParam());
  for (int step = 0; step < 50'000; ++step) {
    ++f.now;
    const auto entry = static_cast<std::uint32_t>(random.below(f.items.size()));
    if (f.is_candidate(entry)) {
      if (random.chance(0.9)) {
        f.access(entry);
        book.access(entry);
      } else {
        f.remove(entry);
        book.remove(entry);
      }
    } else {
      // Few enough for one group of ghosts.
      while (f.candidates.size() > 20) {
        const std::uint32_t victim = book.next();
        ASSERT_EQ(f.evict(), victim) << "step " << step;
        book.evict(victim);
      }
      f.publish(entry);
      book.publish(entry);
    }
    if (step % 1000 == 0) {
      ASSERT_EQ(f.policy->verify().value(), f.candidates.size());
    }
  }
}

TEST_P(Policies, NothingHeldGoesAndNothingElseIsForgotten) {
  base::Random random(5);
  PolicyFixture f(GetParam(), 100, 100'000);
  std::set<std::uint32_t> passed;  // of Fifo: before all others once they are free
  std::uint64_t with_nobody = 0;
  std::uint64_t after_a_hold = 0;
  for (int step = 0; step < 100'000; ++step) {
    // Now few are held, now nearly all.
    const std::uint64_t most = f.hold / (step / 1000 % 2 == 0 ? 50 : 2000);
    f.now += random.chance(0.001) ? f.hold * 3 : random.below(most);
    const auto entry = static_cast<std::uint32_t>(random.below(f.items.size()));
    if (!f.is_candidate(entry)) {
      f.publish(entry);
      passed.erase(entry);
    } else if (random.chance(0.95)) {
      f.access(entry);
    } else {
      f.remove(entry);
    }
    const std::uint32_t victim = f.next();
    ASSERT_EQ(f.next(), victim) << "asked twice";
    const auto is_free = [&](std::uint32_t one) { return !f.is_held(one); };
    const auto first = std::find_if(f.candidates.begin(), f.candidates.end(), is_free);
    with_nobody += victim == kNobody;
    if (victim == kNobody) {
      ASSERT_EQ(first, f.candidates.end()) << "step " << step;
    } else {
      ASSERT_TRUE(f.is_candidate(victim) && is_free(victim)) << "step " << step;
      after_a_hold += passed.contains(victim);
    }
    const bool again = std::any_of(f.candidates.begin(), f.candidates.end(),
                                   [&](auto one) { return passed.contains(one) && is_free(one); });
    if (GetParam() == EvictionKind::kFifo && victim != kNobody) {
      ASSERT_TRUE(again ? passed.contains(victim) : victim == *first) << "step " << step;
    }
    for (const std::uint32_t one : f.candidates) {
      if (again || one == victim) break;
      if (f.is_held(one)) passed.insert(one);
    }
    if (victim != kNobody && random.chance(0.3)) f.remove(victim);
    if (step % 100 == 0) {
      ASSERT_EQ(f.policy->verify().value(), f.candidates.size());
    }
  }
  EXPECT_GT(with_nobody, 10u);
  EXPECT_GT(after_a_hold, 1000u);
}

// Case C21: how many entries are looked at, with so many held.
struct Looks {
  std::uint64_t evicting_others = 0;
  std::uint64_t when_all_are_held = 0;
  std::uint64_t through_the_hold = 0;
  std::uint64_t evicting_all = 0;
};
constexpr std::uint32_t kOthers = 500;
constexpr std::uint32_t kCalls = 1000;

Looks looks_with(EvictionKind kind, std::uint32_t held) {
  constexpr std::uint64_t kHold = 10'000'000'000;
  PolicyFixture f(kind, held + kOthers, kHold);
  for (std::uint32_t i = 0; i < held + kOthers; ++i, ++f.now)
    f.publish(i);
  for (std::uint32_t i = 0; i < held; ++i, ++f.now)
    f.access(i);
  Looks looks;
  const auto counted = [&](auto work) {
    f.looks = 0;
    work();
    return f.looks;
  };
  looks.evicting_others = counted([&] {
    for (std::uint32_t i = 0; i < kOthers; ++i, f.now += 1000)
      EXPECT_EQ(f.evict(), held + i);
  });
  looks.when_all_are_held = counted([&] {
    for (std::uint32_t i = 0; i < kCalls; ++i, f.now += 1000)
      EXPECT_EQ(f.next(), kNobody);
  });
  looks.through_the_hold = counted([&] {
    while (f.now + kHold / kCalls < f.items[0].until) {
      f.now += kHold / kCalls;
      EXPECT_EQ(f.next(), kNobody);
    }
  });
  f.now = f.items[held - 1].until;
  looks.evicting_all = counted([&] {
    for (std::uint32_t i = 0; i < held; ++i)
      EXPECT_NE(f.evict(), kNobody);
  });
  EXPECT_EQ(f.policy->verify().value(), 0u);
  return looks;
}

TEST_P(Policies, C21TheWorkDoesNotGrowWithWhatIsHeld) {
  const bool lru = GetParam() == EvictionKind::kLru;  // looks at the oldest one each time
  for (const std::uint32_t held : {1000u, 30'000u}) {
    const Looks looks = looks_with(GetParam(), held);
    // Each held one is found and put aside once, and moved on a few times while its hold lasts.
    EXPECT_LE(looks.evicting_others, 3 * kOthers + (lru ? 0 : 2 * held));
    EXPECT_LE(looks.when_all_are_held, lru ? kCalls : 0);
    EXPECT_LE(looks.through_the_hold, (lru ? kCalls : 0) + (lru ? 0 : 12 * held));
    EXPECT_LE(looks.evicting_all, (lru ? 3 : 12) * held);
  }
}

}  // namespace
}  // namespace mooncake::store::master
