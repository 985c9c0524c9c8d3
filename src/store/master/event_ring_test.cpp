// The ring keeps exactly the newest events, finds those of a key, and says what it has forgotten.
#include "store/master/event_ring.h"

#include <gtest/gtest.h>

#include <deque>

#include "base/random.h"

namespace mooncake::store::master {
namespace {

EventRing::Event event(std::uint64_t key, std::uint64_t at) {
  EventRing::Event made;
  made.hash = base::hash128({reinterpret_cast<const char*>(&key), sizeof key}, 7);
  made.at = at;
  made.kind = KeyEventKind::kPublished;
  return made;
}

TEST(EventRing, RemembersNothingWithoutRoom) {
  EventRing ring(0);
  ring.add(event(1, 1));
  ring.segment_gone(1, "a");
  EXPECT_EQ(ring.size(), 0u);
  EXPECT_FALSE(ring.has_forgotten());
  EXPECT_TRUE(ring.newest(event(1, 0).hash, 10).events.empty());
  EXPECT_EQ(ring.gone_segment(1), nullptr);
}

TEST(EventRing, FindsWhatAListOfTheNewestHas) {
  constexpr std::size_t kCapacity = 64;
  base::Random random(3);
  EventRing ring(kCapacity - 1);                              // is rounded up
  std::deque<std::pair<std::uint64_t, std::uint64_t>> model;  // key, at; newest first
  for (std::uint64_t at = 1; at <= 2000; ++at) {
    const std::uint64_t key = random.below(at % 3 == 0 ? 200 : 6);
    ring.add(event(key, at));
    model.emplace_front(key, at);
    if (model.size() > kCapacity) model.pop_back();
    const std::uint64_t asked = random.below(8);
    const std::size_t most = 1 + random.below(12);
    std::vector<std::uint64_t> expected;
    for (const auto& [of, when] : model) {
      if (of == asked) expected.push_back(when);
    }
    const EventRing::Found found = ring.newest(event(asked, 0).hash, most);
    EXPECT_EQ(found.more, expected.size() > most);
    expected.resize(std::min(expected.size(), most));
    std::vector<std::uint64_t> got;
    for (const EventRing::Event& each : found.events)
      got.push_back(each.at);
    ASSERT_EQ(got, expected) << at;
    EXPECT_EQ(ring.size(), model.size());
    EXPECT_EQ(ring.oldest_at(), model.back().second);
    EXPECT_EQ(ring.has_forgotten(), at > kCapacity);
  }
}

TEST(EventRing, ASearchLooksAtNoMoreThanItsSteps) {
  EventRing ring(EventRing::kMostSteps * 4);
  // Shares its list with a key that changes all the time.
  EventRing::Event rare = event(1, 1);
  EventRing::Event busy = rare;
  busy.hash.high ^= 1;
  ring.add(rare);
  for (std::size_t i = 0; i + 1 < EventRing::kMostSteps; ++i)
    ring.add(busy);
  EXPECT_EQ(ring.newest(rare.hash, 8).events.size(), 1u);
  ring.add(busy);
  const EventRing::Found cut = ring.newest(rare.hash, 8);
  EXPECT_TRUE(cut.events.empty());
  EXPECT_TRUE(cut.more);
}

TEST(EventRing, KnowsTheNamesOfTheSegmentsThatWentLast) {
  EventRing ring(2);
  for (std::uint32_t handle = 1; handle <= EventRing::kMostGoneSegments + 1; ++handle)
    ring.segment_gone(handle, "host" + std::to_string(handle));
  EXPECT_EQ(ring.gone_segment(1), nullptr);
  ASSERT_NE(ring.gone_segment(2), nullptr);
  EXPECT_EQ(*ring.gone_segment(2), "host2");
}

TEST(EventRing, CostsWhatItSays) {
  const EventRing ring(std::size_t{1} << 16);
  EXPECT_EQ(ring.memory_bytes(), (std::size_t{1} << 16) * 72);
}

}  // namespace
}  // namespace mooncake::store::master
