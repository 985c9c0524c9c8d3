// A million objects: what they cost beside the text of their keys, and that a full pool turns over.
#include <gtest/gtest.h>

#include <algorithm>

#include "store/master/core_fixture.h"

namespace mooncake::store::master {
namespace {

constexpr std::uint64_t kObjects = 1'000'000;
constexpr std::size_t kBatch = 1000;
constexpr std::size_t kKeyLength = 64;

// Grants and publishes the objects [first, first + kBatch).
void put_batch(Fixture& f, std::uint64_t first) {
  std::vector<std::string> keys;
  std::vector<CommandItem> items(kBatch);
  for (std::size_t i = 0; i < kBatch; ++i) {
    std::string key = "model/layer/block-" + std::to_string(first + i);
    key.resize(kKeyLength, '.');
    keys.push_back(std::move(key));
  }
  for (std::size_t i = 0; i < kBatch; ++i) {
    items[i].key = keys[i];
    items[i].size = kUnit;
  }
  Command command;
  command.kind = CommandKind::kGrant;
  command.client = Fixture::kOne;
  command.sequence = command.oldest_open = f.numbers + 1;
  command.items = items;
  const std::vector<Effect> granted = f.apply(command);
  std::vector<std::vector<base::SegmentIncarnation>> arrived(kBatch);
  for (std::size_t i = 0; i < kBatch; ++i) {
    ASSERT_EQ(granted[i].code, Code::kOk);
    arrived[i] = f.incarnations(granted[i]);
    items[i].version = granted[i].version;
    items[i].incarnations = arrived[i];
  }
  command.kind = CommandKind::kPublish;
  command.sequence += kBatch;
  f.numbers += 2 * kBatch;
  for (const Effect& effect : f.apply(command))
    ASSERT_EQ(effect.code, Code::kOk);
  f.decisions.clear();
}

TEST(CoreMemory, AMillionObjects) {
  Fixture f;
  f.check = false;
  std::vector<MountedSegment> segments;
  for (std::uint64_t i = 1; i <= 8; ++i)
    segments.push_back(Fixture::segment(i, kObjects / 8));
  ASSERT_EQ(f.mount(Fixture::kOne, segments), Code::kOk);
  double worst = 0;
  for (std::uint64_t done = 0; done < kObjects; done += kBatch) {
    put_batch(f, done);
    if (done < kObjects / 10) continue;  // chunks and first tables count for little
    worst = std::max(
        worst, static_cast<double>(f.core.memory().objects) / static_cast<double>(done + kBatch));
  }
  ASSERT_EQ(f.core.totals().objects, kObjects);
  const Core::Memory memory = f.core.memory();
  const double objects = static_cast<double>(memory.objects) / kObjects;
  const double keys = static_cast<double>(memory.keys) / kObjects;
  RecordProperty("bytes_per_object", std::to_string(objects));
  EXPECT_LE(objects + keys - kKeyLength, 160);
  // While entries move to a larger table there are two of them.
  EXPECT_LE(worst, 168);
  EXPECT_LE(keys, kKeyLength + 0.1);

  // The pool is full: each put evicts exactly the oldest.
  for (std::uint64_t done = 0; done < kObjects / 10; done += kBatch)
    put_batch(f, kObjects + done);
  EXPECT_EQ(f.core.totals().objects, kObjects);
  EXPECT_EQ(f.core.totals().evicted_objects, kObjects / 10);
  EXPECT_EQ(f.core.totals().grant_shortages, 0u);
  const Core::Memory after = f.core.memory();
  EXPECT_LE(static_cast<double>(after.objects + after.keys) / kObjects - kKeyLength, 160);
  ASSERT_TRUE(f.core.verify());
}

}  // namespace
}  // namespace mooncake::store::master
