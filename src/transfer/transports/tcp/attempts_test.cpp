// Proves that a fence covers exactly what it names: writes that are under way, and those that
// arrive later; for ever, or until their batch is over; within a bound.
#include "transfer/transports/tcp/attempts.h"

#include <gtest/gtest.h>

#include "transfer/requests.h"

namespace mooncake::transfer::tcp {
namespace {

AttemptId id(std::uint64_t batch, std::uint32_t slice, std::uint32_t attempt,
             std::uint64_t oldest = 1, std::uint64_t engine = 7) {
  AttemptId made;
  made.engine = static_cast<base::Incarnation>(engine);
  made.batch = batch;
  made.slice = slice;
  made.attempt = attempt;
  made.oldest_open_batch = oldest;
  return made;
}

TEST(Attempts, FencesWhatIsUnderWay) {
  Attempts attempts;
  const auto meant = *attempts.begin(id(5, 1, 1));
  const auto younger = *attempts.begin(id(5, 1, 2));
  const auto other_slice = *attempts.begin(id(5, 2, 1));
  const auto other_batch = *attempts.begin(id(6, 1, 1));
  const auto other_engine = *attempts.begin(id(5, 1, 1, 1, 8));
  EXPECT_EQ(*attempts.fence(id(5, 1, 1)), 1u);
  EXPECT_TRUE(meant->fenced());
  EXPECT_FALSE(younger->fenced());
  EXPECT_FALSE(other_slice->fenced());
  EXPECT_FALSE(other_batch->fenced());
  EXPECT_FALSE(other_engine->fenced());
  EXPECT_EQ(*attempts.fence(id(5, kWholeBatch, 2)), 2u);
  EXPECT_TRUE(younger->fenced());
  EXPECT_TRUE(other_slice->fenced());
  EXPECT_FALSE(other_batch->fenced());
}

TEST(Attempts, RefusesWhatComesLater) {
  Attempts attempts;
  ASSERT_TRUE(attempts.fence(id(5, 1, 2)));
  ASSERT_TRUE(attempts.fence(id(5, 1, 1))) << "an older fence takes nothing back";
  EXPECT_EQ(attempts.begin(id(5, 1, 1)).error().code(), Code::kCancelled);
  EXPECT_EQ(attempts.begin(id(5, 1, 2)).error().code(), Code::kCancelled);
  EXPECT_TRUE(attempts.begin(id(5, 1, 3)));
  EXPECT_TRUE(attempts.begin(id(5, 2, 1)));
  ASSERT_TRUE(attempts.fence(id(5, kWholeBatch, 9)));
  EXPECT_FALSE(attempts.begin(id(5, 2, 9)));
  EXPECT_TRUE(attempts.begin(id(5, 2, 10)));
}

TEST(Attempts, BatchesThatAreOverAreFencedAndForgotten) {
  Attempts attempts;
  const auto late = *attempts.begin(id(5, 1, 1));
  ASSERT_TRUE(attempts.fence(id(5, 2, 1)));
  EXPECT_EQ(attempts.fences(), 1u);
  const auto newer = *attempts.begin(id(9, 0, 1, 6));
  EXPECT_TRUE(late->fenced());
  EXPECT_FALSE(newer->fenced());
  EXPECT_EQ(attempts.fences(), 0u);
  EXPECT_FALSE(attempts.begin(id(5, 3, 1)));
  EXPECT_FALSE(attempts.begin(id(5, 3, 99, 1)));
  EXPECT_TRUE(attempts.begin(id(6, 0, 1, 1)));
}

TEST(Attempts, RemembersABoundedNumber) {
  Attempts attempts;
  for (std::uint32_t slice = 0; slice < Attempts::kMaxFences; ++slice) {
    ASSERT_TRUE(attempts.fence(id(5, slice, 1)));
  }
  EXPECT_EQ(attempts.fence(id(5, Attempts::kMaxFences, 1)).error().code(), Code::kBusy);
  EXPECT_TRUE(attempts.fence(id(5, 0, 2))) << "a known one may rise";
  EXPECT_TRUE(attempts.fence(id(6, 0, 1, 6))) << "ended batches make room";
  EXPECT_EQ(attempts.fences(), 1u);
}

TEST(Attempts, MayOutliveItsTable) {
  std::unique_ptr<Attempts::Ongoing> write;
  {
    Attempts attempts;
    write = *attempts.begin(id(5, 1, 1));
    attempts.forget(static_cast<base::Incarnation>(7));
    EXPECT_EQ(*attempts.fence(id(5, 1, 1)), 0u);
  }
  EXPECT_FALSE(write->fenced());
}

}  // namespace
}  // namespace mooncake::transfer::tcp
