// Proves that an inbox keeps the order and both of its limits, and that what a peer may send
// reaches it whole or not at all.
#include "transfer/inbox.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace mooncake::transfer {
namespace {

Notification note(std::string name, std::string message = "") {
  return {std::move(name), std::move(message)};
}

TEST(Inbox, KeepsTheOrderAndIsEmptyAfterwards) {
  Inbox inbox;
  const std::string bytes("\0\xff{\n", 4);
  for (const Notification& sent : {note("b", "1"), note("a", "2"), note("b"), note("", bytes)})
    ASSERT_TRUE(answer_notify(inbox, encode_notify(sent)));
  const auto taken = inbox.take_all();
  ASSERT_EQ(taken.size(), 4u);
  EXPECT_EQ(taken[0].name + taken[1].name + taken[2].name, "bab");
  EXPECT_EQ(taken[1].message, "2");
  EXPECT_EQ(taken[3].message, bytes);
  EXPECT_TRUE(inbox.take_all().empty());
}

TEST(Inbox, RefusesWhatIsTooLong) {
  Inbox inbox;
  EXPECT_TRUE(inbox.add(note(std::string(kMaxNotificationName, 'n'))));
  EXPECT_TRUE(inbox.add(note("", std::string(kMaxNotificationMessage, 'm'))));
  for (const Notification& sent : {note(std::string(kMaxNotificationName + 1, 'n')),
                                   note("", std::string(kMaxNotificationMessage + 1, 'm'))}) {
    EXPECT_EQ(inbox.add(sent).error().code(), Code::kInvalidArgument);
    EXPECT_EQ(answer_notify(inbox, encode_notify(sent)).error().code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(inbox.take_all().size(), 2u);
}

TEST(Inbox, RefusesWhatIsTooMuchUntilItIsTaken) {
  Inbox inbox;
  const Notification large = note("", std::string(kMaxNotificationMessage, 'm'));
  for (std::size_t i = 0; i < kMaxInboxBytes / kMaxNotificationMessage; ++i)
    ASSERT_TRUE(inbox.add(large));
  EXPECT_EQ(inbox.add(note("n")).error().code(), Code::kBusy);
  EXPECT_TRUE(inbox.add(note(""))) << "it has no bytes";
  EXPECT_EQ(inbox.take_all().size(), 17u);
  for (std::size_t i = 0; i < kMaxInboxEntries; ++i)
    ASSERT_TRUE(inbox.add(note("n")));
  EXPECT_EQ(inbox.add(note("")).error().code(), Code::kBusy);
  EXPECT_EQ(inbox.take_all().size(), kMaxInboxEntries);
  EXPECT_TRUE(inbox.add(large));
}

// Bytes changed or cut off: under the sanitizers nothing may show.
RC_GTEST_PROP(Inbox, DamageIsHarmless, ()) {
  Inbox inbox;
  net::Bytes body = encode_notify(note("name", "message"));
  for (int i = *rc::gen::inRange(0, 6); i > 0; --i) {
    body[*rc::gen::inRange<std::size_t>(0, body.size())] =
        static_cast<std::byte>(*rc::gen::inRange(0, 256));
  }
  body.resize(*rc::gen::inRange<std::size_t>(0, body.size() + 1));
  const bool answered = answer_notify(inbox, body).has_value();
  RC_ASSERT(inbox.take_all().size() == (answered ? 1u : 0u));
}

}  // namespace
}  // namespace mooncake::transfer
