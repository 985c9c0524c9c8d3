// Proves that pinned bytes are seen where they lie and stay as they are until they are let go of:
// in the engine's own memory and in that of another one of this host, after the end of either, and
// nowhere else.
#include <algorithm>

#include "rig.h"

namespace mooncake::transfer {
namespace {

constexpr std::uint64_t kExtent = 8192, kSize = 10'000, kSegment = 64u << 10;

class Pins : public testing::Test {
 protected:
  void TearDown() override { rig_.stop_all(); }

  void start(std::vector<std::string> transports = {"local", "tcp", "shm"}) {
    here_ = &rig_.host("here");
    there_ = &rig_.host("there");
    engine_ = &rig_.start_engine(*here_, "here", 0, "", transports, true);
    owner_ = &rig_.start_engine(*there_, "there", 0, "", transports, true);
    target_ = *here_->run(engine_->open_segment(owner_->name(), in(10s)));
  }
  TimePoint in(base::Duration duration) { return here_->env().now() + duration; }

  void expose(Buffer& buffer, bool shared = true) {
    table_ = *memory::ExtentTable::create(buffer.size());
    auto region = owner_->register_memory(buffer.address(), buffer.size(), "*", table_);
    ASSERT_TRUE(region) << region.error().message();
    region_ = *region;
    if (shared) buffer.share(owner_->registry());
  }
  // By the owner itself.
  Code write(std::uint32_t sequence, std::uint64_t seed, std::uint64_t size = kSize) {
    Buffer source(size, seed);
    const auto record = record_of(sequence, size, "a key");
    std::vector<Entry> entries;
    entries.emplace_back(Opcode::kWrite, source.span(), region_.base + kExtent,
                         SegmentHandle::kLocal);
    entries.front().request.key_given = true;
    Slice& slice = entries.front().request.slice;
    slice.key = region_.key;
    slice.extent = slice.remote;
    slice.guard = record.version;
    slice.record = &record;
    slice.record_key = "a key";
    return there_->run(move_all(*owner_, entries, in(10s))).front();
  }
  // What the pin's end at the owner makes possible.
  Code write_in_time(std::uint32_t sequence, std::uint64_t seed) {
    const TimePoint end = in(10s);
    for (;;) {
      const Code code = write(sequence, seed);
      if (code != Code::kBusy || here_->env().now() >= end) return code;
      there_->run(a_moment(there_->env().executor));
    }
  }
  Slice slice(std::uint32_t sequence, std::uint64_t size = kSize) const {
    Slice made;
    made.remote = made.extent = region_.base + kExtent;
    made.length = size;
    made.key = region_.key;
    made.guard = static_cast<std::uint64_t>(base::complete(version_of(sequence)));
    return made;
  }
  Result<PinnedBytes> pin(const Slice& slice) {
    return here_->run(engine_->pin(target_, slice, in(10s)));
  }
  static bool holds(const PinnedBytes& pinned, std::uint64_t seed) {
    Buffer expected(pinned.bytes.size(), seed);
    return std::ranges::equal(pinned.bytes, expected.span());
  }

  SocketRig rig_;
  Host* here_ = nullptr;
  Host* there_ = nullptr;
  Engine* engine_ = nullptr;
  Engine* owner_ = nullptr;
  SegmentHandle target_{};
  std::shared_ptr<memory::ExtentTable> table_;
  memory::Region region_;
};

TEST_F(Pins, BytesOfANeighbourStayUntilTheyAreLetGoOf) {
  start();
  Buffer theirs(kSegment);
  expose(theirs);
  ASSERT_EQ(write(5, 1), Code::kOk);
  auto pinned = pin(slice(5));
  ASSERT_TRUE(pinned) << pinned.error().message();
  ASSERT_EQ(pinned->bytes.size(), kSize);
  EXPECT_NE(pinned->bytes.data(), theirs.data() + kExtent) << "it is a mapping of its own";
  EXPECT_TRUE(holds(*pinned, 1));
  EXPECT_EQ(write(6, 2), Code::kBusy);
  EXPECT_TRUE(holds(*pinned, 1));
  auto again = pin(slice(5));
  ASSERT_TRUE(again) << "what was refused has changed nothing";
  pinned = fail(Code::kNotReady);
  EXPECT_EQ(write(6, 2), Code::kBusy) << "the other pin is there";
  EXPECT_TRUE(holds(*again, 1));
  again = fail(Code::kNotReady);
  EXPECT_EQ(write_in_time(6, 2), Code::kOk);
  EXPECT_EQ(pin(slice(5)).error().code(), Code::kGenerationMismatch);
  EXPECT_TRUE(holds(*pin(slice(6)), 2));
}

TEST_F(Pins, OwnBytesAreSeenInPlace) {
  start();
  Buffer theirs(kSegment);
  expose(theirs);
  ASSERT_EQ(write(5, 1), Code::kOk);
  auto pinned = there_->run(owner_->pin(SegmentHandle::kLocal, slice(5), in(10s)));
  ASSERT_TRUE(pinned) << pinned.error().message();
  EXPECT_EQ(pinned->bytes.data(), theirs.data() + kExtent);
  EXPECT_EQ(write(6, 2), Code::kBusy);
  pinned->hold.reset();
  EXPECT_EQ(write(6, 2), Code::kOk) << "at once, on whatever thread";
}

TEST_F(Pins, AnObjectMayBeLargerThanARequest) {
  constexpr std::uint64_t kLarge = (70u << 20) + 5;
  start();
  Buffer theirs(kLarge + kSegment);
  expose(theirs);
  ASSERT_EQ(write(5, 1, kLarge), Code::kOk);
  const auto pinned = pin(slice(5, kLarge));
  ASSERT_TRUE(pinned) << pinned.error().message();
  EXPECT_TRUE(holds(*pinned, 1));
  EXPECT_EQ(pin(slice(5, kLarge + 1)).error().code(), Code::kGenerationMismatch);
}

TEST_F(Pins, OnlyMemoryThatIsMappedHereIsSeen) {
  start();
  Buffer theirs(kSegment);
  expose(theirs, false);
  ASSERT_EQ(write(5, 1), Code::kOk);
  EXPECT_EQ(pin(slice(5)).error().code(), Code::kNotSupported);
  EXPECT_EQ(write(6, 2), Code::kOk) << "nothing was pinned";
  Slice plain = slice(6);
  plain.guard = 0;
  EXPECT_EQ(pin(plain).error().code(), Code::kInvalidArgument);
}

TEST_F(Pins, OtherWaysShowNothing) {
  start({"local", "tcp"});
  Buffer theirs(kSegment);
  expose(theirs);
  ASSERT_EQ(write(5, 1), Code::kOk);
  EXPECT_EQ(pin(slice(5)).error().code(), Code::kNotSupported);
}

// Another registration of the same addresses: what was learned of the first must not be believed.
TEST_F(Pins, ARegionThatWasReplacedIsLearnedAnew) {
  start();
  Buffer theirs(kSegment);
  expose(theirs);
  ASSERT_EQ(write(5, 1), Code::kOk);
  ASSERT_TRUE(pin(slice(5)));
  const Slice before = slice(5);
  ASSERT_TRUE(there_->run(owner_->unregister_memory(theirs.address(), in(5s))));
  table_ = *memory::ExtentTable::create(theirs.size());
  region_ = *owner_->register_memory(theirs.address(), theirs.size(), "*", table_);
  ASSERT_EQ(write(7, 3), Code::kOk);
  const auto pinned = pin(slice(7));
  ASSERT_TRUE(pinned) << pinned.error().message();
  EXPECT_TRUE(holds(*pinned, 3));
  EXPECT_EQ(pin(before).error().code(), Code::kRegionKeyMismatch);
}

TEST_F(Pins, OutliveTheReadersEngine) {
  start();
  Buffer theirs(kSegment);
  expose(theirs);
  ASSERT_EQ(write(5, 1), Code::kOk);
  auto pinned = pin(slice(5));
  ASSERT_TRUE(pinned) << pinned.error().message();
  rig_.stop_engine(*engine_);
  EXPECT_EQ(write(6, 2), Code::kBusy) << "its process looks at it still";
  EXPECT_TRUE(holds(*pinned, 1));
  pinned->hold.reset();
  EXPECT_EQ(write_in_time(6, 2), Code::kOk) << "the end of the connection says it";
}

TEST_F(Pins, OutliveTheirOwner) {
  start();
  auto theirs = std::make_unique<Buffer>(kSegment);
  expose(*theirs);
  ASSERT_EQ(write(5, 1), Code::kOk);
  const auto pinned = pin(slice(5));
  ASSERT_TRUE(pinned) << pinned.error().message();
  ASSERT_TRUE(there_->run(owner_->unregister_memory(theirs->address(), in(5s))));
  theirs.reset();
  rig_.stop_engine(*owner_);
  EXPECT_TRUE(holds(*pinned, 1));
}

}  // namespace
}  // namespace mooncake::transfer
