// Sweep: removes what matches and may go, in bounded steps, each once however often it is sent.
#include <gtest/gtest.h>

#include "store/master/core_fixture.h"

namespace mooncake::store::master {
namespace {

constexpr ClientId kOne = Fixture::kOne;
constexpr ClientId kTwo = Fixture::kTwo;

struct Sweep : testing::Test {
  void SetUp() override {
    ASSERT_EQ(f.mount(kOne, {Fixture::segment(1, 1000)}), Code::kOk);
    ASSERT_EQ(f.mount(kTwo), Code::kOk);
  }
  Effect step(std::uint32_t cursor, std::size_t budget, std::uint64_t number = 0,
              ClientId client = kOne, std::string_view pattern = "") {
    CommandItem item;
    item.key = pattern;
    Command command;
    command.kind = CommandKind::kSweep;
    command.client = client;
    command.sequence = number == 0 ? ++f.numbers : number;
    command.cursor = cursor;
    command.budget = budget;
    command.force = f.force;
    command.items = {&item, 1};
    if (matches) command.matches = &matches;
    if (enough) command.enough = &enough;
    return f.apply(command).front();
  }
  std::uint64_t all(std::size_t budget = 50) {
    std::uint64_t removed = 0;
    for (std::uint32_t cursor = 0; cursor != kSweepEnd;) {
      const Effect effect = step(cursor, budget);
      EXPECT_EQ(effect.code, Code::kOk);
      EXPECT_GT(effect.cursor, cursor);
      removed += effect.size;
      cursor = effect.cursor;
    }
    return removed;
  }
  Fixture f;
  std::function<bool(std::string_view)> matches;
  std::function<bool()> enough;
};

TEST_F(Sweep, RemovesAllInSteps) {
  for (int i = 0; i < 500; ++i)
    f.put(kOne, "k" + std::to_string(i));
  f.decisions.clear();
  const Effect first = step(0, 50);
  EXPECT_LE(first.size, 6u) << "a removal costs more than a look";
  EXPECT_GT(first.size, 0u);
  EXPECT_EQ(first.size + all(), 500u);
  EXPECT_EQ(f.core.totals().objects, 0u);
  EXPECT_EQ(f.core.totals().allocated_bytes, 0u);
  EXPECT_EQ(f.count(Decision::Kind::kRemoved), 500);
}

TEST_F(Sweep, OnlyWhatMatches) {
  for (int i = 0; i < 100; ++i)
    f.put(kOne, (i % 4 == 0 ? "a" : "b") + std::to_string(i));
  matches = [](std::string_view key) { return key.starts_with("a"); };
  EXPECT_EQ(all(), 25u);
  EXPECT_EQ(f.exist("a0"), Code::kObjectNotFound);
  EXPECT_EQ(f.exist("b1"), Code::kOk);
}

TEST_F(Sweep, AStepEndsWhenItIsEnoughButNeverBeforeItsFirstEntry) {
  for (int i = 0; i < 12; ++i)
    f.put(kOne, "k" + std::to_string(i));
  int looked_at = 0, asked = 0;
  matches = [&](std::string_view) { return ++looked_at % 2 == 0; };
  enough = [&] { return ++asked == 5; };
  const Effect first = step(0, 4096);
  EXPECT_EQ(looked_at, 5);
  EXPECT_EQ(first.size, 2u);
  EXPECT_EQ(first.cursor, 5u);
  enough = [] { return true; };
  looked_at = 0;
  EXPECT_EQ(step(first.cursor, 4096).cursor, first.cursor + 1);
  EXPECT_EQ(looked_at, 1);
  EXPECT_EQ(all(4096), 5u) << "of the ten that are left, one a step";
}

TEST_F(Sweep, LeasedOnesStayUnlessForcedAndOpenOnesAlways) {
  f.put(kOne, "leased");
  f.put(kOne, "free");
  f.terms.hard_pin = true;
  f.put(kOne, "pinned");
  f.terms = {};
  f.locate("leased");
  const Effect open = f.grant(kOne, "open", kUnit);
  const Effect newer = f.grant_upsert(kTwo, "free", kUnit);
  EXPECT_EQ(all(), 2u) << "the free one, while it is written anew, and the pinned one";
  EXPECT_EQ(f.exist("leased"), Code::kOk);
  f.force = true;
  EXPECT_EQ(all(), 1u);
  EXPECT_EQ(f.core.totals().open_grants, 2u);
  EXPECT_EQ(f.publish(kOne, "open", open).code, Code::kOk);
  EXPECT_EQ(f.publish(kTwo, "free", newer).code, Code::kOk);
}

TEST_F(Sweep, AStepThatIsSentAgainIsTheSameStep) {
  for (int i = 0; i < 20; ++i)
    f.put(kOne, "k" + std::to_string(i));
  const Effect first = step(0, 50, 900);
  f.put(kOne, "between");
  const Effect again = step(0, 50, 900);
  EXPECT_EQ(again.size, first.size);
  EXPECT_EQ(again.cursor, first.cursor);
  EXPECT_EQ(f.core.totals().objects, 21 - first.size);
  EXPECT_EQ(step(0, 50, 900, kOne, "another pattern").code, Code::kInvalidArgument);
  EXPECT_EQ(step(0, 50, 0, ClientId{9}).code, Code::kClientNotFound);
  // The Master itself has no numbers.
  EXPECT_GT(step(0, 50, 900, ClientId{}).size, 0u);
  EXPECT_EQ(step(kSweepEnd - 1, 50).cursor, kSweepEnd);
}

}  // namespace
}  // namespace mooncake::store::master
