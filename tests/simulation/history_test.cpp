// Proves that the checker sees what it is there for: each test tells it of one lie, and of the same
// thing without it.
#include "history.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mooncake::simulation {
namespace {

using store::master::Decision;
using Kind = Decision::Kind;

struct HistoryTest : testing::Test {
  static base::TimePoint at(int second) { return base::TimePoint(std::chrono::seconds(second)); }

  // From `second` to the next; it is published in between unless `refused`.
  ValueId put(const std::string& key, int second, std::uint64_t size, bool published = true) {
    const ValueId id = history.put_started(key, at(second));
    history.put_sized(id, size);
    values.resize(static_cast<std::size_t>(id) + 1);
    values.back() = make_value(id, key, size);
    if (published) decide(Kind::kPublished, key, second + 1, size);
    history.put_ended(id, Code::kOk, at(second + 1));
    return id;
  }
  void decide(Kind kind, const std::string& key, int second, std::uint64_t size) {
    Decision decision;
    decision.kind = kind;
    decision.key = key;
    decision.size = size;
    history.decided(decision, at(second));
  }
  void get(const std::string& key, int second, ValueId id) {
    history.got(key, at(second), at(second + 1), Code::kOk, values[static_cast<std::size_t>(id)]);
  }
  void miss(const std::string& key, int second) {
    history.got(key, at(second), at(second + 1), Code::kObjectNotFound, {});
  }
  std::size_t lies() const { return history.violations().size(); }

  History history;
  std::vector<std::vector<std::byte>> values;
};

TEST_F(HistoryTest, AReadOfWhatIsThereIsTrue) {
  const ValueId id = put("k", 1, 100);
  get("k", 3, id);
  miss("other", 3);
  EXPECT_EQ(lies(), 0u);
}

TEST_F(HistoryTest, BytesOfAnotherKeyOrOfNobodyAreWrong) {
  put("k", 1, 100);
  const ValueId other = put("other", 1, 100);
  get("k", 3, other);
  EXPECT_EQ(lies(), 1u);
  values[static_cast<std::size_t>(other)].back() ^= std::byte{1};
  get("other", 3, other);
  EXPECT_EQ(lies(), 2u);
}

TEST_F(HistoryTest, AStaleReadAfterAnUpsertIsWrong) {
  const ValueId before = put("k", 1, 100);
  decide(Kind::kReplaced, "k", 6, 100);
  const ValueId after = put("k", 5, 200);
  get("k", 5, before);  // it began while the old one was there
  get("k", 7, after);
  EXPECT_EQ(lies(), 0u);
  get("k", 7, before);
  EXPECT_EQ(lies(), 1u);
}

TEST_F(HistoryTest, AReadAfterARemoveIsWrong) {
  const ValueId id = put("k", 1, 100);
  decide(Kind::kRemoved, "k", 5, 100);
  get("k", 4, id);
  miss("k", 6);
  EXPECT_EQ(lies(), 0u);
  get("k", 6, id);
  EXPECT_EQ(lies(), 1u);
}

TEST_F(HistoryTest, AMissOfWhatIsThereIsWrong) {
  put("k", 1, 100);
  miss("k", 3);
  EXPECT_EQ(lies(), 1u);
}

TEST_F(HistoryTest, APutThatWasAcknowledgedAndNotPublishedIsWrong) {
  put("k", 1, 100, false);
  EXPECT_EQ(lies(), 1u);
}

TEST_F(HistoryTest, ALossIsWrongWhileAnOwnerLives) {
  put("k", 1, 100);
  history.located("k", 100, {"a", "b"}, at(3), at(4));
  history.owner_troubled("a", at(60));
  history.owner_troubled("b", at(4));
  decide(Kind::kLost, "k", 5, 100);
  EXPECT_EQ(lies(), 1u) << "b had it, and lived";
  put("k", 6, 100);
  history.located("k", 100, {"a"}, at(8), at(9));
  decide(Kind::kLost, "k", 10, 100);
  EXPECT_EQ(lies(), 1u);
}

TEST_F(HistoryTest, WhatIsTakenAwayWasThere) {
  decide(Kind::kEvicted, "k", 1, 100);
  EXPECT_EQ(lies(), 1u);
}

TEST_F(HistoryTest, ARemoveThatWasNeverDoneIsWrong) {
  put("k", 1, 100);
  history.removed("k", at(3), at(4), Code::kOk);
  EXPECT_EQ(lies(), 1u);
}

}  // namespace
}  // namespace mooncake::simulation
