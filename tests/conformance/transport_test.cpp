// What every transport does alike, with plain and with guarded memory: bytes arrive where they
// belong, what is not allowed fails alone, nothing is touched after its owner took it back. The
// transports of the simulated network run on one simulated thread, all of them between two threads;
// that the wanted one was taken is checked by the engine's own count. Those within a host run
// between two processes in shm_process_test.cpp.
#include <sys/mman.h>

#include <algorithm>
#include <numeric>

#include "rig.h"

namespace mooncake::transfer {
namespace {

struct Setting {
  const char* name;
  const char* transport;
  bool sockets;
  std::vector<std::string> engine_transports = {};  // empty = all, but none of those within a host
  const char* way = transport;                      // as it is counted
  const char* small_guarded_write_way = transport;
  bool in_pools = false;  // what is exposed can be mapped
};

class TransportTest : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (GetParam().sockets) {
      rig_ = std::make_unique<SocketRig>();
    } else {
      rig_ = std::make_unique<SimRig>(testing::UnitTest::GetInstance()->random_seed() + 1);
    }
    here_ = &rig_->host("here");
    engine_ = &start_engine(*here_, "here");
    if (local()) {
      there_ = here_;
      owner_ = engine_;
      target_ = SegmentHandle::kLocal;
    } else {
      there_ = &rig_->host("there");
      owner_ = &start_engine(*there_, "there");
      target_ = *here_->run(engine_->open_segment(owner_->name(), in(10s)));
    }
  }
  void TearDown() override { rig_->stop_all(); }

  Engine& start_engine(Host& host, const std::string& name) {
    const Setting& setting = GetParam();
    return rig_->start_engine(host, name, 0, "", setting.engine_transports,
                              !setting.engine_transports.empty());
  }
  bool local() const { return std::string_view(GetParam().transport) == "local"; }
  TimePoint in(base::Duration duration) { return here_->env().now() + duration; }

  memory::Region expose(Buffer& buffer, std::shared_ptr<memory::ExtentTable> extents = nullptr) {
    auto region = owner_->register_memory(buffer.address(), buffer.size(), "*", std::move(extents));
    EXPECT_TRUE(region) << region.error().message();
    if (GetParam().in_pools) buffer.share(owner_->registry());
    return *region;
  }
  Code move(Entry entry, base::Duration limit = 60s) {
    std::vector<Entry> entries;
    entries.push_back(std::move(entry));
    return move(entries, limit).front();
  }
  std::vector<Code> move(std::vector<Entry>& entries, base::Duration limit = 60s) {
    std::map<std::string, std::uint64_t> moved;
    auto codes = here_->run(move_all(*engine_, entries, in(limit), &moved));
    std::uint64_t expected = 0;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      if (codes[i] == Code::kOk) expected += entries[i].request.slice.length;
    }
    const bool guarded_write = std::ranges::any_of(
        entries, [](const Entry& entry) { return entry.request.slice.record != nullptr; });
    std::uint64_t counted = 0;
    for (const auto& [way, bytes] : moved) {
      const bool as_wanted =
          way == GetParam().way || (guarded_write && way == GetParam().small_guarded_write_way);
      EXPECT_TRUE(as_wanted || (may_fall_back_ && way == "tcp")) << way;
      counted += bytes;
    }
    moved_as_wanted_ = moved[GetParam().way];
    EXPECT_GE(counted, expected);
    return codes;
  }
  // Work on the owner's memory happens on the owner's thread.
  static Task<void> unregister_and_fill(Host& host, Engine& owner, Buffer& buffer,
                                        std::uint64_t seed) {
    while (buffer.data()[0] == std::byte{0})
      co_await a_moment(host.env().executor);
    co_await unregister_then_fill(host, owner, buffer, seed);
  }
  static Task<void> unregister_then_fill(Host& host, Engine& owner, Buffer& buffer,
                                         std::uint64_t seed) {
    const auto done = co_await owner.unregister_memory(buffer.address(), host.env().now() + 5s);
    EXPECT_TRUE(done);
    buffer.fill(seed);
  }
  static Task<bool> holds(Buffer& buffer, std::uint64_t seed) { co_return buffer.holds(seed); }

  Entry guarded(Opcode opcode, std::span<std::byte> local, const memory::Region& region,
                std::uint64_t extent, const memory::ExtentRecord& record, std::string_view key) {
    Entry entry(opcode, local, region.base + extent, target_);
    Slice& slice = entry.request.slice;
    entry.request.key_given = true;
    slice.key = region.key;
    slice.extent = region.base + extent;
    slice.guard = record.version;
    if (opcode == Opcode::kRead) {
      slice.guard =
          static_cast<std::uint64_t>(base::complete(base::Version::from_value(record.version)));
    } else {
      slice.record = &record;
      slice.record_key = key;
    }
    return entry;
  }

  std::unique_ptr<Rig> rig_;
  bool may_fall_back_ = false;
  std::uint64_t moved_as_wanted_ = 0;  // bytes of the last move()
  Host* here_ = nullptr;
  Host* there_ = nullptr;
  Engine* engine_ = nullptr;
  Engine* owner_ = nullptr;
  SegmentHandle target_{};
};

TEST_P(TransportTest, MovesBytesBothWays) {
  for (const std::size_t size : {1u, 100u, 4096u, 65'536u, 65'537u, (8u << 20) + 1, 20u << 20}) {
    Buffer mine(size, 1), theirs(size + 2), back(size);
    expose(theirs);
    ASSERT_EQ(move(Entry(Opcode::kWrite, mine.span(), theirs.address() + 1, target_)), Code::kOk);
    EXPECT_EQ(theirs.data()[0], std::byte{0});
    EXPECT_EQ(theirs.data()[size + 1], std::byte{0});
    ASSERT_EQ(move(Entry(Opcode::kRead, back.span(), theirs.address() + 1, target_)), Code::kOk);
    EXPECT_TRUE(back.holds(1)) << size;
    ASSERT_TRUE(there_->run(owner_->unregister_memory(theirs.address(), in(1s))));
  }
}

TEST_P(TransportTest, GathersAndScatters) {
  constexpr std::size_t kSize = 3u << 20;
  Buffer mine(kSize, 1), theirs(kSize), back(kSize);
  expose(theirs);
  const auto parts = [](Buffer& buffer) {
    std::vector<base::MutableBuffer> result;
    std::size_t offset = 0;
    for (std::size_t size = 0; offset < kSize; size = size * 3 + 1) {
      result.push_back(buffer.sub(offset, std::min(size, kSize - offset)));
      offset += result.back().size();
    }
    return result;
  };
  ASSERT_EQ(move(Entry(Opcode::kWrite, parts(mine), theirs.address(), target_)), Code::kOk);
  EXPECT_TRUE(theirs.holds(1));
  ASSERT_EQ(move(Entry(Opcode::kRead, parts(back), theirs.address(), target_)), Code::kOk);
  EXPECT_TRUE(back.holds(1));
}

// No internal limit shows, and the peer is as usable afterwards as before. C25.
TEST_P(TransportTest, TakesBatchesOfAnyLength) {
  constexpr std::size_t kEntries = 40'000, kEach = 64;
  Buffer mine(kEntries * kEach, 1), theirs(kEntries * kEach), back(kEntries * kEach);
  expose(theirs);
  std::vector<Entry> writes, reads;
  for (std::size_t i = 0; i < kEntries; ++i) {
    const std::size_t at = (i * 7919 % kEntries) * kEach;
    writes.emplace_back(Opcode::kWrite, mine.sub(at, kEach), theirs.address() + at, target_);
    reads.emplace_back(Opcode::kRead, back.sub(at, kEach), theirs.address() + at, target_);
  }
  const std::vector<Code> ok(kEntries, Code::kOk);
  EXPECT_EQ(move(writes), ok);
  EXPECT_TRUE(theirs.holds(1));
  EXPECT_EQ(move(reads), ok);
  EXPECT_TRUE(back.holds(1));
  mine.fill(2);
  EXPECT_EQ(move(Entry(Opcode::kWrite, mine.span(), theirs.address(), target_)), Code::kOk);
  EXPECT_TRUE(theirs.holds(2));
}

TEST_P(TransportTest, NothingSucceedsAtOnce) {
  std::vector<Entry> none;
  EXPECT_TRUE(move(none).empty());
  EXPECT_EQ(move(Entry(Opcode::kRead, std::span<std::byte>(), 17, target_)), Code::kOk);
  EXPECT_EQ(move(Entry(Opcode::kWrite, std::span<std::byte>(), 0, target_)), Code::kOk);
}

// C2 between engines: what isn't registered, isn't writable or isn't there fails alone, and no byte
// of it shows; the good entries around it arrive.
TEST_P(TransportTest, BadEntriesFailAlone) {
  constexpr std::size_t kSize = 4096;
  may_fall_back_ = true;  // memory that may only be read is not entered by other processes
  Buffer mine(kSize, 1), theirs(kSize), secret(kSize, 9), fixed(kSize, 5);
  expose(theirs);
  ASSERT_TRUE(owner_->registry().add(fixed.address(), kSize, "*", memory::Permission::kReadOnly));
  for (const Opcode opcode : {Opcode::kWrite, Opcode::kRead}) {
    const bool write = opcode == Opcode::kWrite;
    Buffer untouched(kSize, 7), of_fixed(kSize, 7);
    std::vector<Entry> entries;
    const auto add = [&](std::span<std::byte> local, std::uint64_t remote) -> Entry& {
      return entries.emplace_back(opcode, local, remote, target_);
    };
    add(mine.sub(0, 100), theirs.address());
    add(untouched.span(), secret.address());                 // not registered
    add(untouched.sub(0, 2), theirs.address() + kSize - 1);  // over the end
    add(untouched.sub(0, 64), ~std::uint64_t{0} - 10);       // wraps around
    add(untouched.sub(0, 64), 0);                            // nowhere
    add(untouched.sub(0, 64), theirs.address()).request.slice.length = ~std::uint64_t{0} - 5;
    Entry& forged = add(untouched.sub(0, 64), theirs.address());
    forged.request.key_given = true;
    forged.request.slice.key = static_cast<memory::RegionKey>(12345);
    add(untouched.sub(0, 64), theirs.address()).request.target = static_cast<SegmentHandle>(999);
    add(of_fixed.span(), fixed.address());
    add(mine.sub(1000, 100), theirs.address() + 1000);
    const auto codes = move(entries);
    const std::vector<Code> expected{Code::kOk,
                                     Code::kAddressNotRegistered,
                                     Code::kAddressNotRegistered,
                                     Code::kAddressNotRegistered,
                                     Code::kAddressNotRegistered,
                                     Code::kInvalidArgument,
                                     Code::kRegionKeyMismatch,
                                     Code::kSegmentNotFound,
                                     write ? Code::kAddressNotRegistered : Code::kOk,
                                     Code::kOk};
    EXPECT_EQ(codes, expected);
    // A refused read may leave zeros.
    EXPECT_TRUE(untouched.holds(7, 64, kSize - 64));
    EXPECT_TRUE(untouched.holds(7, 0, 64) || (!write && untouched.holds(0, 0, 64)));
    EXPECT_TRUE(secret.holds(9));
    EXPECT_TRUE(fixed.holds(5));
    EXPECT_TRUE(of_fixed.holds(write ? 7 : 5));
    EXPECT_TRUE(mine.holds(1));
    EXPECT_TRUE(theirs.holds(1, 0, 100) && theirs.holds(1, 1000, 100));
  }
  if (!local()) {
    EXPECT_GT(rig_->counters(*owner_).refused_ranges, 0u);
  }
}

// A peer that registers anew has another key; the engine finds out by itself, once. C26: halves of
// one allocation, overlapping.
TEST_P(TransportTest, FollowsNewRegistrations) {
  constexpr std::size_t kSize = 64u << 10;
  Buffer mine(kSize, 1), theirs(kSize);
  expose(theirs);
  ASSERT_EQ(move(Entry(Opcode::kWrite, mine.span(), theirs.address(), target_)), Code::kOk);
  ASSERT_TRUE(there_->run(owner_->unregister_memory(theirs.address(), in(1s))));
  EXPECT_EQ(move(Entry(Opcode::kWrite, mine.span(), theirs.address(), target_)),
            Code::kAddressNotRegistered);
  ASSERT_TRUE(owner_->register_memory(theirs.address(), kSize / 2, "*", nullptr));
  ASSERT_TRUE(owner_->register_memory(theirs.address() + kSize / 2, kSize / 2, "*", nullptr));
  ASSERT_TRUE(owner_->register_memory(theirs.address() + kSize / 4, kSize / 2, "*", nullptr));
  mine.fill(2);
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < 4; ++i) {
    entries.emplace_back(Opcode::kWrite, mine.sub(i * kSize / 4, kSize / 4),
                         theirs.address() + i * kSize / 4, target_);
  }
  entries.emplace_back(Opcode::kWrite, mine.sub(kSize / 3, kSize / 3), theirs.address() + kSize / 3,
                       target_);
  EXPECT_EQ(move(entries), std::vector<Code>(5, Code::kOk));
  EXPECT_TRUE(theirs.holds(2));
}

TEST_P(TransportTest, GuardedObjectsAreReadByGeneration) {
  constexpr std::uint64_t kExtent = 8192, kSize = 10'000;
  const std::shared_ptr<memory::ExtentTable> table = *memory::ExtentTable::create(64u << 10);
  Buffer mine(kSize, 1), theirs(64u << 10), back(kSize);
  const memory::Region region = expose(theirs, table);
  const auto first = record_of(5, kSize, "a key");
  ASSERT_EQ(move(guarded(Opcode::kWrite, mine.span(), region, kExtent, first, "a key")), Code::kOk);
  ASSERT_EQ(there_->ask([&] { return table->extents(); }), 1u);
  const auto extent = there_->ask([&] { return *table->find(kExtent); });
  EXPECT_EQ(extent.key, "a key");
  EXPECT_EQ(extent.record.size, kSize);
  EXPECT_EQ(extent.generation, base::complete(version_of(5)));
  ASSERT_EQ(move(guarded(Opcode::kRead, back.span(), region, kExtent, first, "")), Code::kOk);
  EXPECT_TRUE(back.holds(1));
  // The same write again is a success, and changes nothing: the object is immutable.
  mine.fill(2);
  EXPECT_EQ(move(guarded(Opcode::kWrite, mine.span(), region, kExtent, first, "a key")), Code::kOk);
  back.fill(0);
  ASSERT_EQ(move(guarded(Opcode::kRead, back.span(), region, kExtent, first, "")), Code::kOk);
  EXPECT_TRUE(back.holds(1));
  // A younger version takes its place; what was promised earlier is a mismatch.
  const auto second = record_of(6, kSize, "other");
  ASSERT_EQ(move(guarded(Opcode::kWrite, mine.span(), region, kExtent, second, "other")),
            Code::kOk);
  EXPECT_EQ(move(guarded(Opcode::kRead, back.span(), region, kExtent, first, "")),
            Code::kGenerationMismatch);
  EXPECT_EQ(move(guarded(Opcode::kWrite, mine.span(), region, kExtent, first, "a key")),
            Code::kGrantRefused);
  ASSERT_EQ(move(guarded(Opcode::kRead, back.span(), region, kExtent, second, "")), Code::kOk);
  EXPECT_TRUE(back.holds(2));
  // Neither unguarded access to guarded memory, nor guarded access to plain memory.
  auto naked = guarded(Opcode::kWrite, mine.span(), region, kExtent, second, "other");
  naked.request.slice.guard = 0;
  naked.request.slice.record = nullptr;
  EXPECT_EQ(move(std::move(naked)), Code::kAddressNotRegistered);
  EXPECT_EQ(move(Entry(Opcode::kRead, back.span(), theirs.address() + kExtent, target_)),
            Code::kAddressNotRegistered);
  Buffer plain(kSize);
  const memory::Region plain_region = expose(plain);
  EXPECT_EQ(move(guarded(Opcode::kRead, back.span(), plain_region, 0, second, "")),
            Code::kAddressNotRegistered);
}

// An object larger than one request, and many small ones in one batch, each with its record.
TEST_P(TransportTest, GuardedObjectsOfAnySizeAndNumber) {
  constexpr std::uint64_t kLarge = (20u << 20) + 123, kMany = 3000, kSmall = 700;
  constexpr std::uint64_t kUnits = memory::kExtentUnit;
  constexpr std::uint64_t kSegment = kLarge / kUnits * kUnits + kUnits + kMany * kUnits;
  const std::shared_ptr<memory::ExtentTable> table = *memory::ExtentTable::create(kSegment);
  Buffer mine(kLarge + kMany * kSmall, 1), theirs(kSegment), back(kLarge + kMany * kSmall);
  const memory::Region region = expose(theirs, table);
  std::vector<memory::ExtentRecord> records;
  std::vector<std::string> keys;
  std::vector<std::uint64_t> extents, sizes;
  std::uint64_t next = 0;
  for (std::uint64_t i = 0; i <= kMany; ++i) {
    sizes.push_back(i == 0 ? kLarge : kSmall);
    keys.push_back("key number " + std::to_string(i));
    records.push_back(record_of(static_cast<std::uint32_t>(i + 1), sizes.back(), keys.back()));
    extents.push_back(next);
    next += (sizes.back() + kUnits - 1) / kUnits * kUnits;
  }
  std::vector<Entry> writes, reads;
  std::size_t at = 0;
  for (std::uint64_t i = 0; i <= kMany; ++i) {
    writes.push_back(
        guarded(Opcode::kWrite, mine.sub(at, sizes[i]), region, extents[i], records[i], keys[i]));
    reads.push_back(
        guarded(Opcode::kRead, back.sub(at, sizes[i]), region, extents[i], records[i], ""));
    at += sizes[i];
  }
  const std::vector<Code> ok(kMany + 1, Code::kOk);
  EXPECT_EQ(move(writes), ok);
  EXPECT_GE(moved_as_wanted_, kLarge);
  EXPECT_EQ(there_->ask([&] { return table->extents(); }), kMany + 1);
  EXPECT_EQ(there_->ask([&] { return table->writes_under_way(); }), 0u);
  EXPECT_EQ(move(reads), ok);
  EXPECT_TRUE(back.holds(1));
}

// Plain and guarded memory in one batch, and more guarded ranges than one request may name.
TEST_P(TransportTest, GuardedAndPlainRangesGoTogether) {
  constexpr std::uint64_t kMany = 2500, kSize = 3000;
  constexpr std::uint64_t kUnits = memory::kExtentUnit;
  const std::shared_ptr<memory::ExtentTable> table = *memory::ExtentTable::create(kMany * kUnits);
  Buffer mine(kMany * kSize, 1), objects(kMany * kUnits), plain(kMany * kSize), back(kMany * kSize);
  const memory::Region guarded_region = expose(objects, table);
  expose(plain);
  std::vector<Entry> entries, reads;
  const auto record = record_of(1, kSize, "a key");  // the same for all: they are in other places
  for (std::uint64_t i = 0; i < kMany; ++i) {
    const auto part = mine.sub(i * kSize, kSize);
    entries.push_back(guarded(Opcode::kWrite, part, guarded_region, i * kUnits, record, "a key"));
    entries.emplace_back(Opcode::kWrite, part, plain.address() + i * kSize, target_);
    reads.push_back(
        guarded(Opcode::kRead, back.sub(i * kSize, kSize), guarded_region, i * kUnits, record, ""));
  }
  EXPECT_EQ(move(entries), std::vector<Code>(2 * kMany, Code::kOk));
  EXPECT_TRUE(plain.holds(1));
  EXPECT_EQ(there_->ask([&] { return table->writes_under_way(); }), 0u);
  EXPECT_EQ(move(reads), std::vector<Code>(kMany, Code::kOk));
  EXPECT_TRUE(back.holds(1));
}

// One extent is written anew all the time, by its owner, while another thread reads it: a read that
// succeeds has the bytes of the version that it was promised, and of no other.
TEST_P(TransportTest, GuardedReadsAreWholeOrRefused) {
  constexpr std::uint64_t kSize = 1u << 20;
  constexpr std::uint32_t kVersions = 200;
  const std::shared_ptr<memory::ExtentTable> table = *memory::ExtentTable::create(kSize);
  Buffer theirs(kSize), back(kSize);
  const memory::Region region = expose(theirs, table);
  std::atomic<std::uint32_t> written{0};
  const auto write_all = [&]() -> Task<void> {
    Buffer source(kSize);
    for (std::uint32_t version = 1; version <= kVersions; ++version) {
      source.fill(version);
      const auto record = record_of(version, kSize, "a key");
      std::vector<Entry> entries;
      entries.push_back(guarded(Opcode::kWrite, source.span(), region, 0, record, "a key"));
      entries.front().request.target = SegmentHandle::kLocal;
      const auto codes = co_await move_all(*owner_, entries, there_->env().now() + 60s);
      EXPECT_EQ(codes, std::vector<Code>{Code::kOk});
      written = version;
      co_await there_->env().executor.yield();
    }
  };
  base::TaskGroup tasks;
  const auto join = [](base::TaskGroup& all) -> Task<void> { co_await all.join(); };
  there_->env().executor.post([&] { tasks.start(write_all()); });
  int whole = 0;
  for (std::uint32_t version = 0; version < kVersions;) {
    if (written == 0) here_->run(a_moment(here_->env().executor));
    version = written;
    if (version == 0) continue;
    const auto record = record_of(version, kSize, "a key");
    const Code code = move(guarded(Opcode::kRead, back.span(), region, 0, record, ""));
    if (code == Code::kOk) {
      EXPECT_TRUE(back.holds(version)) << "version " << version;
      ++whole;
    } else {
      EXPECT_EQ(code, Code::kGenerationMismatch);
    }
  }
  there_->run(join(tasks));
  EXPECT_GT(whole, 0);
}

// The owner takes its memory back in the middle of a large write, and uses it for something else:
// no byte of the write shows there, however long the writer goes on.
TEST_P(TransportTest, TouchesNothingAfterUnregister) {
  constexpr std::size_t kSize = 48u << 20;
  Buffer mine(kSize, 1), theirs(kSize);
  for (std::size_t i = 0; i < kSize; i += 4096)
    mine.data()[i] = std::byte{1};
  expose(theirs);
  base::TaskGroup owner_tasks;
  there_->env().executor.post(
      [&] { owner_tasks.start(unregister_and_fill(*there_, *owner_, theirs, 3)); });
  const Code code = move(Entry(Opcode::kWrite, mine.span(), theirs.address(), target_));
  there_->run([](base::TaskGroup& group) -> Task<void> { co_await group.join(); }(owner_tasks));
  EXPECT_TRUE(code == Code::kAddressNotRegistered || code == Code::kOk) << code_info(code).name;
  EXPECT_TRUE(there_->run(holds(theirs, 3)));
}

TEST_P(TransportTest, ReadsNothingAfterUnregister) {
  constexpr std::size_t kSize = 48u << 20;
  Buffer theirs(kSize, 1), back(kSize);
  expose(theirs);
  // Taken back before the first or after some chunk, by chance; later bytes must not be read.
  base::TaskGroup owner_tasks;
  there_->env().executor.post(
      [&] { owner_tasks.start(unregister_then_fill(*there_, *owner_, theirs, 3)); });
  const Code code = move(Entry(Opcode::kRead, back.span(), theirs.address(), target_));
  if (code == Code::kOk) {  // it was faster
    EXPECT_TRUE(back.holds(1));
  }
  there_->run([](base::TaskGroup& group) -> Task<void> { co_await group.join(); }(owner_tasks));
  for (std::size_t i = 0; i < kSize; i += 4096) {
    const bool old_bytes = back.holds(1, i, 4096);
    ASSERT_TRUE(old_bytes || back.holds(0, i, 4096))
        << "bytes of after the unregistration at " << i;
  }
}

TEST_P(TransportTest, KeepsItsDeadline) {
  Buffer mine(100, 1), theirs(100);
  expose(theirs);
  EXPECT_EQ(move(Entry(Opcode::kWrite, mine.span(), theirs.address(), target_), -1ms),
            Code::kDeadlineExceeded);
  EXPECT_TRUE(theirs.holds(0));
  EXPECT_EQ(move(Entry(Opcode::kWrite, mine.span(), theirs.address(), target_)), Code::kOk);
}

Task<void> one_of_many(Engine& engine, Buffer& mine, Buffer& theirs, std::size_t offset,
                       std::size_t size, SegmentHandle target, TimePoint deadline, int& failures) {
  for (int round = 0; round < 3; ++round) {
    std::vector<Entry> write, read;
    write.emplace_back(Opcode::kWrite, mine.sub(offset, size), theirs.address() + offset, target);
    const auto written = co_await move_all(engine, write, deadline);
    failures += written.front() != Code::kOk;
    mine.fill(0, offset, size);
    read.emplace_back(Opcode::kRead, mine.sub(offset, size), theirs.address() + offset, target);
    const auto got = co_await move_all(engine, read, deadline);
    failures += got.front() != Code::kOk;
  }
}

Task<void> many_at_once(Engine& engine, Buffer& mine, Buffer& theirs, std::size_t size,
                        SegmentHandle target, TimePoint deadline, int& failures) {
  base::TaskGroup tasks;
  for (std::size_t offset = 0; offset < mine.size(); offset += size) {
    tasks.start(one_of_many(engine, mine, theirs, offset, size, target, deadline, failures));
  }
  co_await tasks.join();
}

TEST_P(TransportTest, ServesManyBatchesAtOnce) {
  constexpr std::size_t kEach = 30'000, kMany = 100;
  Buffer mine(kEach * kMany, 1), theirs(kEach * kMany);
  expose(theirs);
  int failures = 0;
  here_->run(many_at_once(*engine_, mine, theirs, kEach, target_, in(60s), failures));
  EXPECT_EQ(failures, 0);
  EXPECT_TRUE(mine.holds(1));
  EXPECT_TRUE(theirs.holds(1));
  EXPECT_EQ(engine_->bytes_by_path().at(GetParam().way), 6 * kEach * kMany);
}

Task<std::vector<Code>> stop_in_the_middle(Host& host, Engine& engine, Engine& stopped,
                                           std::vector<Entry>& entries, Buffer& theirs) {
  std::vector<Code> codes;
  base::TaskGroup tasks;
  tasks.start([](Engine& e, std::vector<Entry>& all, TimePoint deadline,
                 std::vector<Code>& result) -> Task<void> {
    result = co_await move_all(e, all, deadline);
  }(engine, entries, host.env().now() + 30s, codes));
  while (theirs.data()[0] == std::byte{0})
    co_await a_moment(host.env().executor);
  co_await stopped.stop();
  theirs.fill(3);
  co_await tasks.join();
  co_return codes;
}

// On one thread only: what the stopper sees is the state at that moment.
class SimulatedTransportTest : public TransportTest {};

TEST_P(SimulatedTransportTest, StopEndsTransfers) {
  constexpr std::size_t kSize = 48u << 20;
  for (Engine* const stopped : {owner_, engine_}) {
    Buffer mine(kSize, 1), theirs(kSize);
    mine.data()[0] = std::byte{1};
    if (stopped == owner_ || local()) expose(theirs);
    if (stopped == engine_ && !local()) {
      Engine& other = rig_->start_engine(rig_->host("third"), "third");
      ASSERT_TRUE(other.register_memory(theirs.address(), kSize, "*", nullptr));
      target_ = *here_->run(engine_->open_segment(other.name(), in(5s)));
    }
    std::vector<Entry> entries;
    entries.emplace_back(Opcode::kWrite, mine.span(), theirs.address(), target_);
    const auto codes = here_->run(stop_in_the_middle(*here_, *engine_, *stopped, entries, theirs));
    ASSERT_EQ(codes.size(), 1u);
    EXPECT_NE(codes.front(), Code::kOk);
    if (stopped == engine_) {
      EXPECT_EQ(codes.front(), Code::kCancelled);
    }
    if (stopped == owner_) {
      EXPECT_TRUE(theirs.holds(3));
    }
    if (local()) break;
  }
}

// Registered memory that went away, or may not be written, is refused like what never was
// registered; nobody's process ends for it, and what comes with it in one batch arrives.
class PrivateMemoryTest : public TransportTest {};

TEST_P(PrivateMemoryTest, WhatIsGoneFailsAlone) {
  may_fall_back_ = true;
  constexpr std::size_t kSize = 256u << 10;
  for (const int protection : {PROT_READ, PROT_NONE}) {
    for (const std::size_t size : {std::size_t{64}, std::size_t{40'000}, kSize}) {
      Buffer mine(2 * kSize, 1), theirs(kSize), gone(kSize, 3);
      expose(theirs);
      ASSERT_TRUE(owner_->register_memory(gone.address(), gone.size(), "*", nullptr));
      ASSERT_EQ(::mprotect(gone.data(), kSize, protection), 0);
      std::vector<Entry> entries;
      entries.emplace_back(Opcode::kWrite, mine.sub(0, size), gone.address(), target_);
      entries.emplace_back(Opcode::kWrite, mine.sub(kSize, size), theirs.address(), target_);
      const auto codes = move(entries);
      EXPECT_NE(codes[0], Code::kOk) << size;
      EXPECT_EQ(codes[1], Code::kOk) << size;
      ASSERT_EQ(::mprotect(gone.data(), kSize, PROT_READ | PROT_WRITE), 0);
      EXPECT_TRUE(gone.holds(3));
      EXPECT_TRUE(std::ranges::equal(theirs.sub(0, size), mine.sub(kSize, size)));
      here_->run([](Engine& owner, Buffer& buffer, TimePoint until) -> Task<void> {
        static_cast<void>(co_await owner.unregister_memory(buffer.address(), until));
      }(*owner_, gone, in(5s)));
    }
  }
}

TEST_P(TransportTest, SaysWhichPathItTakesAndWhy) {
  const auto paths = engine_->paths(target_);
  ASSERT_FALSE(paths.empty());
  EXPECT_EQ(paths.front().transport, GetParam().transport);
  EXPECT_TRUE(paths.front().usable);
  for (const auto& path : paths)
    EXPECT_FALSE(path.reason.empty()) << path.transport;
}

const Setting kSimulated[] = {{"localSimulated", "local", false}, {"tcpSimulated", "tcp", false}};
const Setting kThreads[] = {
    {"local", "local", true},
    {"tcp", "tcp", true},
    {"unix", "unix", true, {"local", "tcp", "unix"}},
    {"mapped", "shm", true, {"local", "tcp", "shm"}, "shm", "tcp", true},
    {"processVm", "shm", true, {"local", "tcp", "shm"}, "process_vm", "tcp"},
    {"ring", "ring", true, {"local", "tcp", "ring"}},
};

std::string name_of(const testing::TestParamInfo<Setting>& test) { return test.param.name; }

INSTANTIATE_TEST_SUITE_P(Simulated, TransportTest, testing::ValuesIn(kSimulated), name_of);
INSTANTIATE_TEST_SUITE_P(Threads, TransportTest, testing::ValuesIn(kThreads), name_of);
INSTANTIATE_TEST_SUITE_P(Threads, PrivateMemoryTest,
                         testing::Values(kThreads[1], kThreads[2], kThreads[4], kThreads[5]),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Simulated, SimulatedTransportTest, testing::ValuesIn(kSimulated), name_of);

}  // namespace
}  // namespace mooncake::transfer
