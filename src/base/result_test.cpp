// Proves: an Error keeps code, traits, detail and retry time through copies, moves and added
// context; the code table is total, its wire numbers are unique and keep their published values;
// MC_TRY leaves with the error. Copies from many threads end with every detail freed (seen by the
// sanitizer builds).
#include "mooncake/result.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace mooncake {
namespace {

TEST(Error, CarriesWhatTheTableSays) {
  const Error error(Code::kBusy);
  EXPECT_EQ(error.code(), Code::kBusy);
  EXPECT_EQ(error.domain(), Domain::kGeneral);
  EXPECT_TRUE(error.retriable());
  EXPECT_EQ(error.fault(), kPeer);
  EXPECT_EQ(error.detail(), "");
  EXPECT_EQ(error.message(), code_info(Code::kBusy).text);

  const Error missing(Code::kObjectNotFound, "key 'a/b'");
  EXPECT_EQ(missing.message(), "object not found: key 'a/b'");
  EXPECT_EQ(missing.store_code(), -704);
  EXPECT_EQ(missing.domain(), Domain::kStore);
  EXPECT_FALSE(missing.retriable());
}

TEST(Error, ContextGoesInFrontAndKeepsTheRest) {
  Error error = Error(Code::kUnreachable, "connection refused").with_retry_after(25);
  error = std::move(error).with_context("open segment 10.0.0.2:15001");
  EXPECT_EQ(error.detail(), "open segment 10.0.0.2:15001: connection refused");
  EXPECT_EQ(error.retry_after_ms(), 25u);
  EXPECT_EQ(error.code(), Code::kUnreachable);

  const Error bare = Error(Code::kTransferFailed).with_context("batch 7");
  EXPECT_EQ(bare.detail(), "batch 7");
}

TEST(Error, CopiesAreIndependentOfTheirSource) {
  Error copy(Code::kInternal);
  {
    const Error source(Code::kNoSpace, "needs 4096 B");
    copy = source;
    const Error again = source;
    EXPECT_EQ(again.detail().data(), source.detail().data()) << "the text is shared, not copied";
  }
  EXPECT_EQ(copy.detail(), "needs 4096 B");
  const Error& self = copy;
  copy = self;
  EXPECT_EQ(copy.detail(), "needs 4096 B");
  const Error moved = std::move(copy);
  EXPECT_EQ(moved.detail(), "needs 4096 B");
  EXPECT_EQ(moved, Error(Code::kNoSpace, "other words"));
}

TEST(Error, ThreadsMayCopyOneErrorAtTheSameTime) {
  const Error shared(Code::kNoSpace, "shared");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([shared] {
      for (int n = 0; n < 2000; ++n) {
        Error copy = shared;
        Error other = std::move(copy);
        ASSERT_EQ(other.detail(), "shared");
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(shared.detail(), "shared");
}

TEST(Codes, EveryWireNumberLeadsToItsOwnRow) {
  std::set<std::uint16_t> seen;
#define MC_CODE(name_, wire_, domain_, traits_, transfer_, c_status_, tent_, store_, text_) \
  EXPECT_TRUE(seen.insert(wire_).second) << #name_;                                         \
  EXPECT_EQ(code_from_wire(wire_), Code::name_);                                            \
  EXPECT_EQ(code_info(Code::name_).name, #name_);                                           \
  EXPECT_EQ(code_info(Code::name_).store, store_);                                          \
  EXPECT_EQ(code_info(Code::name_).domain, Domain::domain_);                                \
  EXPECT_FALSE(code_info(Code::name_).text.empty()) << #name_;                              \
  if (Code::name_ != Code::kOk) {                                                           \
    EXPECT_LT(code_info(Code::name_).store, 0) << #name_;                                   \
    EXPECT_LT(code_info(Code::name_).transfer, 0) << #name_;                                \
    EXPECT_GT(code_info(Code::name_).c_status, 0) << #name_;                                \
    EXPECT_GT(code_info(Code::name_).tent, 0) << #name_;                                    \
  }
#include "mooncake/codes.def"
#undef MC_CODE
  for (int wire = 0; wire <= 0xffff; ++wire) {
    const auto number = static_cast<std::uint16_t>(wire);
    if (seen.count(number) == 0) {
      ASSERT_EQ(code_from_wire(number), Code::kInternal);
      ASSERT_EQ(code_info(static_cast<Code>(number)).name, "kInternal");
    }
  }
}

// The numbers that users compare with: a changed one is a broken promise, not an edit.
TEST(Codes, PublishedNumbersStay) {
  EXPECT_EQ(code_info(Code::kNoSpace).store, -200);
  EXPECT_EQ(code_info(Code::kInvalidArgument).store, -600);
  EXPECT_EQ(code_info(Code::kObjectNotFound).store, -704);
  EXPECT_EQ(code_info(Code::kObjectExists).store, -705);
  EXPECT_EQ(code_info(Code::kObjectHasLease).store, -706);
  EXPECT_EQ(code_info(Code::kInvalidArgument).transfer, -1);
  EXPECT_EQ(code_info(Code::kAddressNotRegistered).transfer, -3);
  EXPECT_EQ(code_info(Code::kOk).store, 0);
}

Result<int> half(int value) {
  if (value % 2 != 0) return fail(Code::kInvalidArgument, "odd");
  return value / 2;
}
Result<void> check_even(int value) {
  MC_CHECK(half(value));
  return {};
}
Result<int> quarter(int value) {
  MC_TRY(const int once, half(value));
  MC_TRY(const int twice, half(once));
  return twice;
}

TEST(Result, TryLeavesWithTheFirstError) {
  EXPECT_EQ(quarter(8).value(), 2);
  ASSERT_FALSE(quarter(6));
  EXPECT_EQ(quarter(6).error().detail(), "odd");
  EXPECT_TRUE(check_even(2));
  EXPECT_FALSE(check_even(3));
}

TEST(Codes, NumbersOfTheStoreHaveWords) {
  EXPECT_EQ(store_code_text(-200), "no space");
  EXPECT_FALSE(store_code_text(-900).empty());
  EXPECT_TRUE(store_code_text(-12345).empty());
}

}  // namespace
}  // namespace mooncake
