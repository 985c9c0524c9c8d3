// The same facts give the same reason, sentence, timeline and JSON on every surface.
#include "store/why/explain.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

namespace mooncake::store {
namespace {

using std::chrono::milliseconds;

KeyReport with_events(std::vector<KeyEventKind> kinds) {
  KeyReport report;
  int ago = 1000;
  for (const KeyEventKind kind : kinds) {
    KeyEvent event;
    event.kind = kind;
    event.size = 4096;
    event.segment = "10.0.0.7:12345";
    event.ago = milliseconds(ago);
    ago += 1500;
    report.events.push_back(event);
  }
  report.master_time = 1'800'000'000;
  report.master_uptime = milliseconds(90'000);
  explain("k", report);
  return report;
}

TEST(Explain, EachEventHasAWordAndAReasonOfItsOwnKind) {
  std::set<std::string_view> words;
  for (std::uint8_t number = 0; number <= kLastKeyEventKind; ++number)
    words.insert(to_string(static_cast<KeyEventKind>(number)));
  EXPECT_EQ(words.size(), kLastKeyEventKind + 1u);
  EXPECT_EQ(to_string(static_cast<KeyEventKind>(200)), "unknown");
  using enum KeyEventKind;
  EXPECT_EQ(with_events({kEvictedAhead}).reason, MissReason::kEvicted);
  EXPECT_EQ(with_events({kRemovedByPattern}).reason, MissReason::kRemoved);
  EXPECT_EQ(with_events({kOwnerSilent}).reason, MissReason::kLost);
  EXPECT_EQ(with_events({kWriteRevoked}).reason, MissReason::kNotPublished);
  EXPECT_EQ(with_events({kUnknown}).reason, MissReason::kUnexplained);
}

TEST(Explain, AWriteThatCameToNothingDoesNotHideTheEndBefore) {
  using enum KeyEventKind;
  const KeyReport report = with_events({kWriterLeft, kEvictedForRoom, kPublished});
  EXPECT_EQ(report.reason, MissReason::kEvicted);
  EXPECT_EQ(report.summary,
            "'k' was evicted to make room for another object, 2.5 s ago (4096 bytes, in "
            "10.0.0.7:12345).");
}

TEST(Explain, NothingKnownIsSaidWithHowFarThatReaches) {
  KeyReport report = with_events({});
  EXPECT_EQ(report.reason, MissReason::kNeverStored);
  EXPECT_EQ(report.summary, "'k' has never been stored since this Master started 90 s ago.");
  report.has_forgotten = true;
  report.remembered_events = 65536;
  report.remembered_for = milliseconds(12'345);
  explain("k", report);
  EXPECT_EQ(report.reason, MissReason::kForgotten);
  EXPECT_EQ(report.summary,
            "'k' is not here, and none of the last 65536 events, which reach back 12 s, is about "
            "it: it was never stored, or went before that.");
}

TEST(Explain, WhatIsThereOrOnItsWay) {
  KeyReport report = with_events({KeyEventKind::kPublished});
  report.state = KeyState::kPublished;
  report.size = 10;
  report.segments = {"a:1", "b:2"};
  report.hard_pinned = true;
  report.lease_left = milliseconds(500);
  explain("k", report);
  EXPECT_EQ(report.reason, MissReason::kNone);
  EXPECT_EQ(report.summary,
            "'k' is here: 10 bytes, 2 replicas in a:1, b:2, hard-pinned, leased for 0.5 s more.");
  report.state = KeyState::kWriting;
  report.writer = "w:1";
  report.writing_for = milliseconds(200);
  explain("k", report);
  EXPECT_EQ(report.reason, MissReason::kBeingWritten);
  EXPECT_EQ(report.summary,
            "'k' is being written by w:1, since 0.2 s ago: it can be read once that is published.");
}

TEST(Explain, TheTimelineHasWallTimes) {
  const std::string text =
      timeline(with_events({KeyEventKind::kRemoved, KeyEventKind::kPublished}));
  EXPECT_NE(text.find("2027-01-15 07:59:59 UTC      1.0 s ago  removed"), std::string::npos)
      << text;
  EXPECT_NE(text.find("2027-01-15 07:59:58 UTC      2.5 s ago  published"), std::string::npos);
  EXPECT_NE(text.find("everything since it started, 90 s ago"), std::string::npos);
}

TEST(Explain, JsonTakesAnyKey) {
  const KeyReport report = with_events({KeyEventKind::kRemoved});
  const auto document = nlohmann::json::parse(report_json("\xff\n\"", report));
  EXPECT_EQ(document["key"], "\xEF\xBF\xBD\n\"");
  EXPECT_EQ(document["reason"], "removed");
  EXPECT_EQ(document["events"][0]["event"], "removed");
  EXPECT_EQ(document["events"][0]["ms_ago"], 1000);
  EXPECT_EQ(document["state"], "absent");
}

TEST(Explain, KeysAreSafeToShow) {
  KeyReport report;
  explain("a\x1b[2Jb", report);
  EXPECT_EQ(report.summary.find('\x1b'), std::string::npos);
}

TEST(Explain, AgesAreShort) {
  EXPECT_EQ(format_age(milliseconds(0)), "0.0 s");
  EXPECT_EQ(format_age(milliseconds(9'940)), "9.9 s");
  EXPECT_EQ(format_age(milliseconds(90'000)), "90 s");
  EXPECT_EQ(format_age(milliseconds(180'000)), "3 min");
  EXPECT_EQ(format_age(std::chrono::hours(5)), "5 h");
  EXPECT_EQ(format_age(std::chrono::hours(72)), "3 days");
}

}  // namespace
}  // namespace mooncake::store
