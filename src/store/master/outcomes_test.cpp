// What is remembered of a client: a bounded window of numbers, and a budget over all clients.
#include "store/master/outcomes.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "store/master/held_bytes.h"

namespace mooncake::store::master {
namespace {

void forget(Outcomes& outcomes, std::uint64_t number) {
  outcomes.forget_below(number, [](const Outcomes::Outcome&) {});
}

void answer(Outcomes& outcomes, std::uint64_t number) {
  Outcomes::Outcome* outcome = outcomes.at(number);
  ASSERT_NE(outcome, nullptr);
  outcome->state = Outcomes::State::kAnswered;
  outcome->size = number;
}

TEST(Outcomes, KeepsAnswersWhileTheWindowMoves) {
  OutcomeBudget budget;
  Outcomes outcomes(budget);
  forget(outcomes, 1'000'000);
  for (std::uint64_t number = 1'000'000; number < 1'010'000; ++number) {
    answer(outcomes, number);
    if (number % 100 != 0) continue;
    const std::uint64_t oldest = number - std::min<std::uint64_t>(number - 1'000'000, 3000);
    forget(outcomes, oldest);
    for (std::uint64_t old = oldest; old <= number; ++old)
      ASSERT_EQ(outcomes.at(old)->size, old);
    EXPECT_EQ(outcomes.at(oldest - 1), nullptr);
    EXPECT_TRUE(outcomes.is_past(oldest - 1));
    EXPECT_EQ(outcomes.at(number + 1)->state, Outcomes::State::kUnknown);
  }
}

TEST(Outcomes, TheWindowEnds) {
  OutcomeBudget budget;
  const std::size_t all = budget.left;
  {
    Outcomes outcomes(budget);
    EXPECT_NE(outcomes.at(Outcomes::kWindow - 1), nullptr);
    EXPECT_EQ(outcomes.at(Outcomes::kWindow), nullptr);
    EXPECT_FALSE(outcomes.is_past(Outcomes::kWindow));
    forget(outcomes, 5);
    EXPECT_NE(outcomes.at(Outcomes::kWindow + 4), nullptr);
    EXPECT_EQ(outcomes.slots(), Outcomes::kWindow);
    forget(outcomes, ~std::uint64_t{0} - 1);
    EXPECT_EQ(outcomes.slots(), 0u);
    EXPECT_EQ(budget.left, all);
    EXPECT_EQ(outcomes.at(3), nullptr);
    answer(outcomes, ~std::uint64_t{0} - 1);
  }
  EXPECT_EQ(budget.left, all);
}

TEST(Outcomes, TheBudgetEnds) {
  OutcomeBudget budget{1000};
  Outcomes one(budget);
  Outcomes two(budget);
  EXPECT_NE(one.at(500), nullptr);
  EXPECT_EQ(two.at(500), nullptr);
  EXPECT_NE(two.at(100), nullptr);
}

TEST(Outcomes, OpenGrantsAreHandedBack) {
  OutcomeBudget budget;
  Outcomes outcomes(budget);
  for (std::uint64_t number = 0; number < 10; ++number) {
    outcomes.at(number)->state = Outcomes::State::kOpen;
    outcomes.at(number)->entry = static_cast<std::uint32_t>(number);
  }
  outcomes.close(3);
  std::vector<std::uint32_t> abandoned;
  outcomes.forget_below(5, [&](const Outcomes::Outcome& o) { abandoned.push_back(o.entry); });
  EXPECT_EQ(abandoned, (std::vector<std::uint32_t>{0, 1, 2, 4}));
  outcomes.close(2);
  outcomes.close(700);
}

TEST(HeldBytes, FollowsTheLeases) {
  constexpr std::uint64_t kHold = 10'000'000'000;
  base::Random random(2);
  HeldBytes held(kHold);
  std::vector<std::uint64_t> until(200, 0);
  std::uint64_t now = 5'000'000'000'000;
  held.advance(now);
  for (int step = 0; step < 20'000; ++step) {
    now += random.below(random.chance(0.001) ? 3 * kHold : kHold / 50);
    held.advance(now);
    std::uint64_t& lease = until[random.below(until.size())];
    held.remove(lease, 7);
    lease = random.chance(0.9) ? now + kHold : now;
    held.add(lease, 7);
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    for (const std::uint64_t end : until) {
      low += end > now + kHold / 32 ? 7 : 0;
      high += end > now ? 7 : 0;
    }
    ASSERT_LE(low, held.held());
    ASSERT_GE(high, held.held());
  }
}

}  // namespace
}  // namespace mooncake::store::master
