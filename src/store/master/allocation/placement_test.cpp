// Replicas are spread over segments and hosts; free space draws; nothing is missed that has room.
#include "store/master/allocation/placement.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "base/random.h"

namespace mooncake::store::master {
namespace {

constexpr std::uint64_t kUnits = 1000;

struct Pool {
  Segment* add(const std::string& host, std::uint64_t units = kUnits) {
    SegmentAddress address;
    address.name = host + ":" + std::to_string(++count);
    address.host = host;
    address.id = base::Uuid{1, count};
    address.incarnation = base::SegmentIncarnation{count};
    address.size = units * memory::kExtentUnit;
    Segment* segment = table.add(ClientId{1}, address);
    segment->allocator.prepare(units);
    return segment;
  }
  std::uint64_t count = 0;
  SegmentTable table;
  Placer placer{42, AllocationStrategy::kRandom};
};

TEST(Placer, ReplicasGoToDistinctHosts) {
  Pool pool;
  for (const char* host : {"a", "a", "a", "b", "c"})
    pool.add(host);
  for (int i = 0; i < 100; ++i) {
    std::vector<Placer::Chosen> taken;
    while (const auto chosen = pool.placer.place(pool.table, 1, {}, taken)) {
      taken.push_back(*chosen);
    }
    ASSERT_EQ(taken.size(), 5u);
    std::set<std::uint64_t> hosts;
    std::set<Segment*> segments;
    for (std::size_t r = 0; r < taken.size(); ++r) {
      if (r < 3) hosts.insert(taken[r].segment->host_hash);
      segments.insert(taken[r].segment);
    }
    EXPECT_EQ(hosts.size(), 3u);
    EXPECT_EQ(segments.size(), 5u);
    for (const auto& chosen : taken)
      chosen.segment->allocator.free(chosen.extent.handle);
  }
}

TEST(Placer, FindsTheOnlySegmentWithRoom) {
  Pool pool;
  for (int i = 0; i < 40; ++i)
    pool.add("full" + std::to_string(i))->allocator.allocate(kUnits, 0);
  Segment* free = pool.add("free");
  const auto chosen = pool.placer.place(pool.table, 10, {}, {});
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->segment, free);
  EXPECT_FALSE(pool.placer.place(pool.table, kUnits, {}, {}));
  EXPECT_FALSE(pool.placer.place(pool.table, 10, {}, {{*chosen}}));
}

TEST(Placer, EmptierSegmentsAreDrawnMoreOften) {
  Pool pool;
  std::map<Segment*, int> hits;
  for (int i = 0; i < 8; ++i) {
    Segment* segment = pool.add("h" + std::to_string(i));
    if (i < 4) segment->allocator.allocate(kUnits / 2, 0);
  }
  for (int i = 0; i < 1000; ++i)
    ++hits[pool.placer.place(pool.table, 1, {}, {})->segment];
  int emptier = 0;
  for (Segment* segment : pool.table.all()) {
    EXPECT_GT(hits[segment], 10);
    if (segment->allocator.free_units() > kUnits / 2) emptier += hits[segment];
  }
  EXPECT_GT(emptier, 650);
}

TEST(Placer, PlacesWhereRoomWasMade) {
  Pool pool;
  Segment* a = pool.add("a");
  Segment* b = pool.add("b");
  const auto taken = Placer::Chosen{a, *a->allocator.allocate(1, 0)};
  Segment* const both[] = {a, b};
  const auto chosen = Placer::place_in(both, kUnits, {{taken}});
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->segment, b);
  EXPECT_FALSE(Placer::place_in(both, 1, {{taken, *chosen}}));
}

TEST(Placer, PreferredSegmentsAreTriedFirstAndInOrder) {
  Pool pool;
  for (const char* host : {"a", "b", "c", "d"})
    pool.add(host);
  const std::string_view names[] = {"c:3", "nobody:9", "a:1"};
  PlacementWishes wishes;
  wishes.preferred = names;
  for (int i = 0; i < 20; ++i) {
    std::vector<Placer::Chosen> taken;
    while (const auto chosen = pool.placer.place(pool.table, 1, wishes, taken))
      taken.push_back(*chosen);
    ASSERT_EQ(taken.size(), 4u);
    EXPECT_EQ(taken[0].segment->address.name, "c:3");
    EXPECT_EQ(taken[1].segment->address.name, "a:1");
  }
  pool.table.named("c:3")->allocator.allocate(kUnits - 20, 0);
  EXPECT_EQ(pool.placer.place(pool.table, 1, wishes, {})->segment->address.name, "a:1");
}

TEST(Placer, TheFirstReplicaIsDrawnToTheWritersNode) {
  for (const bool by_strategy : {false, true}) {
    Pool pool;
    Segment* own = pool.add("w");
    Segment* neighbour = pool.add("w");
    for (const char* host : {"a", "b", "c", "d", "e"})
      pool.add(host);
    Placer placer(7, by_strategy ? AllocationStrategy::kLocalFirst : AllocationStrategy::kRandom);
    PlacementWishes wishes;
    wishes.own = {&own->handle, 1};
    wishes.host = own->host_hash;
    wishes.same_node = !by_strategy;
    for (int i = 0; i < 20; ++i) {
      const auto first = placer.place(pool.table, 1, wishes, {});
      ASSERT_EQ(first->segment, own);
      EXPECT_NE(placer.place(pool.table, 1, wishes, {{*first}})->segment->host_hash, wishes.host);
    }
    own->allocator.allocate(kUnits - 20, 0);
    EXPECT_EQ(placer.place(pool.table, 1, wishes, {})->segment, neighbour);
    neighbour->allocator.allocate(kUnits - 1, 0);
    EXPECT_NE(placer.place(pool.table, 1, wishes, {})->segment->host_hash, wishes.host);
  }
}

TEST(Placer, TheLargestFreeShareOfASampleIsTaken) {
  Pool pool;
  Placer placer(7, AllocationStrategy::kFreeRatioFirst);
  for (int i = 0; i < 5; ++i)
    pool.add("large" + std::to_string(i), 100 * kUnits)->allocator.allocate(50 * kUnits, 0);
  Segment* small = pool.add("small");  // emptier, though it has less room
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(placer.place(pool.table, 1, {}, {})->segment, small);
  EXPECT_NE(placer.place(pool.table, kUnits, {}, {})->segment, small);
  for (int i = 0; i < 20; ++i)
    pool.add("full" + std::to_string(i))->allocator.allocate(kUnits, 0);
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(placer.place(pool.table, 1, {}, {})) << "the sample may be full, others are not";
}

TEST(Placer, ASegmentThatIsLeavingGetsNothing) {
  Pool pool;
  Segment* leaving = pool.add("a");
  Segment* staying = pool.add("a");
  pool.table.leave(*leaving, 99);
  const std::string_view name = leaving->address.name;
  PlacementWishes wishes;
  wishes.preferred = {&name, 1};
  wishes.own = {&leaving->handle, 1};
  wishes.host = leaving->host_hash;
  wishes.same_node = true;
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(pool.placer.place(pool.table, 1, wishes, {})->segment, staying);
  Segment* const one[] = {leaving};
  EXPECT_FALSE(Placer::place_in(one, 1, {}));
  EXPECT_EQ(pool.table.open().size(), 1u);
  EXPECT_EQ(pool.table.find(leaving->address.id), leaving);
  pool.table.remove(*leaving);
  pool.table.remove(*staying);
  EXPECT_TRUE(pool.table.open().empty());
  EXPECT_EQ(pool.table.largest_units(), 0u);
}

TEST(SegmentTable, AHandleNeverMeansAnotherSegment) {
  Pool pool;
  std::set<std::uint32_t> gone;
  for (int i = 0; i < 1000; ++i) {
    Segment* segment = pool.add("h");
    const std::uint32_t handle = segment->handle;
    EXPECT_EQ(pool.table.find(handle), segment);
    EXPECT_EQ(pool.table.find(segment->address.id), segment);
    EXPECT_EQ(pool.table.named(segment->address.name), segment);
    EXPECT_TRUE(gone.insert(handle).second);
    pool.table.remove(*segment);
  }
  for (const std::uint32_t handle : gone)
    EXPECT_EQ(pool.table.find(handle), nullptr);
  EXPECT_EQ(pool.table.find(kNone), nullptr);
  EXPECT_TRUE(pool.table.all().empty());
  EXPECT_EQ(pool.table.largest_units(), 0u);
}

}  // namespace
}  // namespace mooncake::store::master
