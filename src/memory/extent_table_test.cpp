// Proves the extent table against a model that keeps one entry per unit and one flag per byte:
// which writes are admitted, which tickets are fenced, what is readable and what pins keep, under
// random overlapping grants that arrive in any order.
#include "memory/extent_table.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace mooncake::memory {
namespace {

constexpr std::uint64_t kUnit = kExtentUnit;
constexpr auto kEpoch = static_cast<base::Epoch>(1);

Version version(std::uint32_t sequence) { return Version(kEpoch, sequence); }

ExtentRecord record(std::uint32_t sequence, std::uint64_t size, std::string_view key = "key") {
  ExtentRecord made;
  made.version = version(sequence).value();
  made.size = size;
  made.key_length = static_cast<std::uint16_t>(key.size());
  made.kind = RecordKind::kPut;
  return made;
}

std::unique_ptr<ExtentTable> make(std::uint64_t units = 16) {
  return *ExtentTable::create(units * kUnit);
}

using Begin = ExtentTable::Begin;

// A write of a whole extent.
Result<ExtentTable::BeginOutcome> begin(ExtentTable& table, std::uint64_t unit,
                                        std::uint32_t sequence, std::uint64_t size) {
  return table.begin_write(unit * kUnit, unit * kUnit, size, record(sequence, size), "key");
}

TEST(ExtentTable, IsReadableOnceWritten) {
  const auto table = make();
  const auto write = begin(*table, 2, 5, 6000);
  ASSERT_TRUE(write);
  EXPECT_EQ(write->kind, Begin::kStarted);
  EXPECT_TRUE(table->may_write(write->ticket));
  const Generation promised = complete(version(5));
  EXPECT_FALSE(table->readable(2 * kUnit, 2 * kUnit, 6000, promised));
  EXPECT_EQ(table->words()[2].load(), static_cast<std::uint64_t>(writing(version(5))));
  ASSERT_TRUE(table->commit(write->ticket));
  EXPECT_TRUE(table->readable(2 * kUnit, 2 * kUnit, 6000, promised));
  EXPECT_TRUE(table->readable(2 * kUnit, 2 * kUnit + 10, 5990, promised));
  EXPECT_FALSE(table->readable(2 * kUnit, 2 * kUnit + 10, 5991, promised));
  EXPECT_FALSE(table->readable(2 * kUnit, 2 * kUnit - 1, 10, promised));
  EXPECT_FALSE(table->readable(2 * kUnit, 2 * kUnit + 1, ~std::uint64_t{0}, promised));
  EXPECT_FALSE(table->readable(3 * kUnit, 3 * kUnit, 10, promised));
  EXPECT_FALSE(table->readable(2 * kUnit, 2 * kUnit, 6000, complete(version(6))));
  EXPECT_FALSE(table->readable(2 * kUnit, 2 * kUnit, 6000, writing(version(5))));
  EXPECT_EQ(table->words()[2].load(), static_cast<std::uint64_t>(promised));
  ASSERT_NE(table->find(2 * kUnit), nullptr);
  EXPECT_EQ(table->find(2 * kUnit)->key, "key");
  EXPECT_EQ(table->find(3 * kUnit), nullptr);
  EXPECT_EQ(table->newest(), version(5));
  EXPECT_FALSE(table->may_write(write->ticket));
}

TEST(ExtentTable, PartsJoinInAnyOrder) {
  const auto table = make();
  const auto r = record(1, 10'000);
  const auto part = [&](std::uint64_t from, std::uint64_t to) {
    return *table->begin_write(0, from, to - from, r, "key");
  };
  const auto last = part(9000, 10'000);
  const auto first = part(0, 4000);
  EXPECT_EQ(first.kind, Begin::kJoined);
  const auto middle = part(4000, 9000);
  EXPECT_TRUE(table->commit(middle.ticket));
  EXPECT_TRUE(table->commit(last.ticket));
  EXPECT_EQ(part(5000, 10'000).kind, Begin::kAlreadyComplete);
  EXPECT_FALSE(table->readable(0, 0, 1, complete(version(1))));
  EXPECT_TRUE(table->commit(first.ticket));
  EXPECT_TRUE(table->readable(0, 0, 10'000, complete(version(1))));
  const auto again = part(0, 10'000);
  EXPECT_EQ(again.kind, Begin::kAlreadyComplete);
  EXPECT_FALSE(again.ticket);
  EXPECT_EQ(table->writes_under_way(), 0u);
}

TEST(ExtentTable, ASecondTryFencesTheFirst) {
  const auto table = make();
  const auto first = *begin(*table, 0, 1, 100);
  const auto second = *begin(*table, 0, 1, 100);
  EXPECT_EQ(second.kind, Begin::kJoined);
  EXPECT_TRUE(table->may_write(first.ticket));
  ASSERT_TRUE(table->commit(second.ticket));
  EXPECT_FALSE(table->may_write(first.ticket));
  EXPECT_TRUE(table->commit(first.ticket)) << "its bytes are there";
}

TEST(ExtentTable, AbandonedBytesAreNotThere) {
  const auto table = make();
  const auto first = *begin(*table, 0, 1, 100);
  table->abandon(first.ticket);
  EXPECT_FALSE(table->readable(0, 0, 100, complete(version(1))));
  EXPECT_FALSE(table->commit(first.ticket));
  const auto second = *begin(*table, 0, 1, 100);
  EXPECT_EQ(second.kind, Begin::kJoined);
  EXPECT_TRUE(table->commit(second.ticket));
  EXPECT_TRUE(table->readable(0, 0, 100, complete(version(1))));
}

TEST(ExtentTable, AYoungerGrantEndsWhatItOverlaps) {
  const auto table = make();
  const auto whole = *begin(*table, 0, 1, 3 * kUnit);
  ASSERT_TRUE(table->commit(whole.ticket));
  const auto open = *begin(*table, 4, 2, 2 * kUnit);
  const auto younger = *begin(*table, 2, 3, 3 * kUnit);
  EXPECT_EQ(younger.kind, Begin::kStarted);
  EXPECT_FALSE(table->readable(0, 0, 10, complete(version(1))));
  EXPECT_NE(table->words()[0].load(), static_cast<std::uint64_t>(complete(version(1))));
  EXPECT_FALSE(table->may_write(open.ticket));
  EXPECT_EQ(table->commit(open.ticket).error().code(), Code::kGrantRefused);
  EXPECT_EQ(table->extents(), 1u);
  // What the younger grant doesn't cover is free for any grant that is younger than what was there.
  EXPECT_TRUE(begin(*table, 0, 2, 2 * kUnit));
  EXPECT_TRUE(table->may_write(younger.ticket));
}

TEST(ExtentTable, ALateOlderGrantIsRefused) {
  const auto table = make();
  const auto younger = *begin(*table, 0, 7, 4 * kUnit);
  EXPECT_EQ(begin(*table, 3, 6, kUnit).error().code(), Code::kGrantRefused);
  ASSERT_TRUE(table->commit(younger.ticket));
  EXPECT_EQ(begin(*table, 3, 6, kUnit).error().code(), Code::kGrantRefused);
  // Also where only the trace of the younger one is left: units 2 and 3.
  ASSERT_TRUE(begin(*table, 0, 8, 2 * kUnit));
  EXPECT_EQ(begin(*table, 3, 6, kUnit).error().code(), Code::kGrantRefused);
  EXPECT_EQ(begin(*table, 3, 7, kUnit).error().code(), Code::kGrantRefused);
  EXPECT_TRUE(begin(*table, 3, 9, kUnit));
}

TEST(ExtentTable, OneVersionHasOneShape) {
  const auto table = make();
  ASSERT_TRUE(begin(*table, 0, 1, 4 * kUnit));
  EXPECT_EQ(begin(*table, 0, 1, 2 * kUnit).error().code(), Code::kGrantRefused);
  EXPECT_EQ(begin(*table, 1, 1, kUnit).error().code(), Code::kGrantRefused);
  EXPECT_EQ(table->begin_write(0, 0, 10, record(1, 4 * kUnit, "abc"), "abc").error().code(),
            Code::kGrantRefused);
}

TEST(ExtentTable, RefusesNonsense) {
  const auto table = make();
  const std::uint64_t size = 16 * kUnit;
  const auto code = [&](std::uint64_t extent, std::uint64_t offset, std::uint64_t length,
                        ExtentRecord r, std::string_view key = "key") {
    const auto outcome = table->begin_write(extent, offset, length, r, key);
    return outcome ? Code::kOk : outcome.error().code();
  };
  EXPECT_EQ(code(1, 1, 10, record(1, 10)), Code::kInvalidArgument);
  EXPECT_EQ(code(size, size, 10, record(1, 10)), Code::kInvalidArgument);
  EXPECT_EQ(code(0, 0, size + 1, record(1, size + 1)), Code::kInvalidArgument);
  EXPECT_EQ(code(kUnit, kUnit, 10, record(1, ~std::uint64_t{0})), Code::kInvalidArgument);
  EXPECT_EQ(code(0, 0, 11, record(1, 10)), Code::kInvalidArgument);
  EXPECT_EQ(code(0, 5, ~std::uint64_t{0} - 2, record(1, 10)), Code::kInvalidArgument);
  EXPECT_EQ(code(kUnit, 0, 10, record(1, 10)), Code::kInvalidArgument);
  EXPECT_EQ(code(0, 0, 0, record(1, 10)), Code::kInvalidArgument);
  EXPECT_EQ(code(0, 0, 0, record(1, 0)), Code::kInvalidArgument);
  EXPECT_EQ(code(0, 0, 10, record(1, 10), "other"), Code::kInvalidArgument);
  EXPECT_EQ(code(0, 0, 10, record(1, 10, ""), ""), Code::kInvalidArgument);
  ExtentRecord bad = record(1, 10);
  bad.version = 0;
  EXPECT_EQ(code(0, 0, 10, bad), Code::kInvalidArgument);
  bad.version = ~std::uint64_t{0};
  EXPECT_EQ(code(0, 0, 10, bad), Code::kInvalidArgument);
  bad = record(1, 10);
  bad.kind = 3;
  EXPECT_EQ(code(0, 0, 10, bad), Code::kInvalidArgument);
  EXPECT_FALSE(table->newest().valid());
  EXPECT_EQ(table->extents(), 0u);
  EXPECT_FALSE(ExtentTable::create(0));
  EXPECT_FALSE(ExtentTable::create(~std::uint64_t{0}));
}

// Another process that copies by itself.
struct OtherProcess final : Copier {
  void stop() override { stopped = true; }
  bool is_out() const override {
    ++asked;
    return !inside;
  }
  bool stopped = false, inside = false;
  mutable int asked = 0;
};

Result<ExtentTable::BeginOutcome> begin_by(const std::shared_ptr<OtherProcess>& copier,
                                           ExtentTable& table, std::uint64_t unit,
                                           std::uint32_t sequence, std::uint64_t size) {
  return table.begin_write(unit * kUnit, unit * kUnit, size, record(sequence, size), "key", copier);
}

TEST(ExtentTable, ACopierThatIsInsideKeepsYoungerGrantsOut) {
  const auto table = make();
  const auto copier = std::make_shared<OtherProcess>();
  const auto write = begin_by(copier, *table, 2, 5, 3 * kUnit);
  ASSERT_TRUE(write);
  copier->inside = true;
  EXPECT_EQ(begin(*table, 3, 6, 6000).error().code(), Code::kBusy);
  EXPECT_TRUE(copier->stopped);
  EXPECT_FALSE(table->may_write(write->ticket));
  EXPECT_EQ(begin(*table, 3, 6, 6000).error().code(), Code::kBusy);
  EXPECT_TRUE(begin(*table, 5, 7, kUnit)) << "it never wrote there";
  EXPECT_EQ(table->commit(write->ticket).error().code(), Code::kGrantRefused);
  copier->inside = false;
  const auto younger = begin(*table, 3, 6, 6000);
  ASSERT_TRUE(younger) << younger.error().message();
  ASSERT_TRUE(table->commit(younger->ticket));
  EXPECT_TRUE(table->readable(3 * kUnit, 3 * kUnit, 6000, complete(version(6))));
}

TEST(ExtentTable, NothingIsCommittedWhileItsCopierIsInside) {
  const auto table = make();
  for (const bool abandons : {false, true}) {
    const auto copier = std::make_shared<OtherProcess>();
    const auto write = begin_by(copier, *table, abandons ? 8 : 2, abandons ? 8 : 5, 6000);
    ASSERT_TRUE(write);
    copier->inside = true;
    if (abandons) {
      table->abandon(write->ticket);
    } else {
      EXPECT_EQ(table->commit(write->ticket).error().code(), Code::kGrantRefused);
    }
    EXPECT_TRUE(copier->stopped);
    const auto again = [&] { return begin(*table, abandons ? 8 : 2, abandons ? 8 : 5, 6000); };
    EXPECT_EQ(again().error().code(), Code::kBusy);
    copier->inside = false;
    EXPECT_TRUE(again());
  }
}

// Two tries of one part: what the second has placed is not readable while the first may still
// write.
TEST(ExtentTable, NothingIsReadableWhileAnotherTryIsStillCopying) {
  const auto table = make();
  const auto first = std::make_shared<OtherProcess>();
  ASSERT_TRUE(begin_by(first, *table, 2, 5, 6000));
  const auto second = begin_by(std::make_shared<OtherProcess>(), *table, 2, 5, 6000);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->kind, ExtentTable::Begin::kJoined);
  first->inside = true;
  EXPECT_EQ(table->commit(second->ticket).error().code(), Code::kBusy);
  EXPECT_TRUE(first->stopped);
  EXPECT_FALSE(table->readable(2 * kUnit, 2 * kUnit, 6000, complete(version(5))));
  EXPECT_EQ(begin(*table, 2, 5, 6000).error().code(), Code::kBusy);
  first->inside = false;
  const auto again = begin(*table, 2, 5, 6000);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->kind, ExtentTable::Begin::kAlreadyComplete);
  EXPECT_TRUE(table->readable(2 * kUnit, 2 * kUnit, 6000, complete(version(5))));
}

TEST(ExtentTable, OnlyCopiersOfTheSameBytesAreAskedWhetherTheyAreOut) {
  const auto table = make();
  const auto copier = std::make_shared<OtherProcess>();
  ASSERT_TRUE(begin_by(copier, *table, 2, 5, kUnit));
  copier->inside = true;
  EXPECT_EQ(begin(*table, 2, 6, kUnit).error().code(), Code::kBusy);
  const int asked = copier->asked;
  for (std::uint32_t sequence = 7; sequence < 100; ++sequence)
    ASSERT_TRUE(begin(*table, 3, sequence, kUnit));
  EXPECT_EQ(copier->asked, asked);
}

TEST(ExtentTable, TheOpenWritesOfOneExtentAreBounded) {
  const auto table = make();
  Result<ExtentTable::BeginOutcome> outcome = begin(*table, 2, 5, 6000);
  const ExtentTable::Ticket first = outcome->ticket;
  std::size_t open = 1;
  for (; outcome && open < 10000; ++open)
    outcome = begin(*table, 2, 5, 6000);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), Code::kBusy);
  EXPECT_LE(open, 2049u);
  table->abandon(first);
  EXPECT_TRUE(begin(*table, 2, 5, 6000));
}

TEST(ExtentTable, UnmountEndsEverything) {
  const auto table = make();
  ASSERT_TRUE(table->commit(begin(*table, 0, 1, 100)->ticket));
  const auto open = *begin(*table, 1, 2, 100);
  table->fence_all(version(10));
  EXPECT_FALSE(table->may_write(open.ticket));
  EXPECT_FALSE(table->commit(open.ticket));
  EXPECT_FALSE(table->readable(0, 0, 100, complete(version(1))));
  EXPECT_EQ(begin(*table, 5, 10, 100).error().code(), Code::kGrantRefused);
  EXPECT_TRUE(begin(*table, 5, 11, 100));
  EXPECT_EQ(table->newest(), version(11));
}

TEST(ExtentTable, WhatIsPinnedStaysAsItIs) {
  const auto table = make();
  ASSERT_TRUE(table->commit(begin(*table, 2, 5, 6000)->ticket));
  EXPECT_EQ(table->pin(2 * kUnit, complete(version(4))).error().code(), Code::kGenerationMismatch);
  EXPECT_EQ(table->pin(2 * kUnit, writing(version(5))).error().code(), Code::kGenerationMismatch);
  EXPECT_EQ(table->pin(3 * kUnit, complete(version(5))).error().code(), Code::kGenerationMismatch);
  auto pin = table->pin(2 * kUnit, complete(version(5)));
  ASSERT_TRUE(pin);
  for (const std::uint64_t unit : {1u, 2u, 3u}) {
    EXPECT_EQ(begin(*table, unit, 6, 2 * kUnit).error().code(), Code::kBusy);
    EXPECT_EQ(begin(*table, unit, 4, 2 * kUnit).error().code(), Code::kGrantRefused);
  }
  EXPECT_EQ(table->newest(), version(5)) << "what was refused counts for nothing";
  EXPECT_TRUE(table->readable(2 * kUnit, 2 * kUnit, 6000, complete(version(5))));
  EXPECT_EQ(begin(*table, 2, 5, 6000)->kind, Begin::kAlreadyComplete);
  EXPECT_TRUE(begin(*table, 1, 6, kUnit));
  EXPECT_TRUE(begin(*table, 4, 6, kUnit));
  *pin = {};
  EXPECT_TRUE(begin(*table, 2, 6, 6000));
  EXPECT_EQ(table->pin(2 * kUnit, complete(version(6))).error().code(), Code::kGenerationMismatch)
      << "it is being written";
}

TEST(ExtentTable, PinsOutliveTheMount) {
  const auto pins = PinnedRanges::create();
  auto table = *ExtentTable::create(16 * kUnit, pins);
  ASSERT_TRUE(table->commit(begin(*table, 2, 5, 6000)->ticket));
  auto pin = table->pin(2 * kUnit, complete(version(5)));
  ASSERT_TRUE(pin);
  table->fence_all(version(10));
  EXPECT_FALSE(table->readable(2 * kUnit, 2 * kUnit, 6000, complete(version(5))));
  EXPECT_EQ(begin(*table, 2, 11, 6000).error().code(), Code::kBusy);
  table = *ExtentTable::create(16 * kUnit, pins);
  EXPECT_EQ(begin(*table, 3, 12, 100).error().code(), Code::kBusy);
  EXPECT_TRUE(begin(*table, 4, 12, 100));
  *pin = {};
  EXPECT_TRUE(begin(*table, 3, 12, 100));
}

// ---- The model.

struct ModelExtent {
  std::uint64_t size = 0;
  std::vector<bool> bytes;
};

class Model {
 public:
  explicit Model(std::uint64_t units) : youngest_(units) {}

  // Identity of an extent is (first unit, version).
  Result<Begin> begin(std::uint64_t unit, std::uint32_t sequence, std::uint64_t size,
                      std::uint64_t from, std::uint64_t to) {
    const auto it = extents_.find(unit);
    if (it != extents_.end() && it->second.first == sequence && it->second.second.size == size) {
      const auto& bytes = it->second.second.bytes;
      const bool there =
          std::all_of(bytes.begin() + static_cast<long>(from),
                      bytes.begin() + static_cast<long>(to), [](bool b) { return b; });
      return there ? Begin::kAlreadyComplete : Begin::kJoined;
    }
    const std::uint64_t end = unit + (size + kUnit - 1) / kUnit;
    for (auto u = unit; u < end; ++u) {
      if (youngest_[u] >= sequence) return fail(Code::kGrantRefused);
    }
    if (sequence <= floor_) return fail(Code::kGrantRefused);
    for (const auto& [first, bytes] : pins_) {
      if (first * kUnit < unit * kUnit + size && unit * kUnit < first * kUnit + bytes) {
        return fail(Code::kBusy);
      }
    }
    std::erase_if(extents_, [&](const auto& entry) {
      const auto last = entry.first + (entry.second.second.size + kUnit - 1) / kUnit;
      return entry.first < end && unit < last;
    });
    for (auto u = unit; u < end; ++u)
      youngest_[u] = sequence;
    ModelExtent& made = extents_[unit].second;
    extents_[unit].first = sequence;
    made.size = size;
    made.bytes.assign(size, false);
    return Begin::kStarted;
  }
  bool holds(std::uint64_t unit, std::uint32_t sequence) const {
    const auto it = extents_.find(unit);
    return it != extents_.end() && it->second.first == sequence;
  }
  bool any(std::uint64_t unit, std::uint64_t from, std::uint64_t to) const {
    const auto& bytes = extents_.at(unit).second.bytes;
    return std::any_of(bytes.begin() + static_cast<long>(from),
                       bytes.begin() + static_cast<long>(to), [](bool b) { return b; });
  }
  bool all(std::uint64_t unit, std::uint64_t from, std::uint64_t to) const {
    const auto& bytes = extents_.at(unit).second.bytes;
    return std::all_of(bytes.begin() + static_cast<long>(from),
                       bytes.begin() + static_cast<long>(to), [](bool b) { return b; });
  }
  void write(std::uint64_t unit, std::uint64_t from, std::uint64_t to) {
    auto& bytes = extents_.at(unit).second.bytes;
    std::fill(bytes.begin() + static_cast<long>(from), bytes.begin() + static_cast<long>(to), true);
  }
  bool readable(std::uint64_t unit, std::uint32_t sequence) const {
    return holds(unit, sequence) && all(unit, 0, extents_.at(unit).second.size);
  }
  void fence_all(std::uint32_t floor) {
    extents_.clear();
    floor_ = std::max(floor_, floor);
  }
  std::size_t size() const { return extents_.size(); }
  void pin(std::uint64_t unit) { pins_.emplace(unit, extents_.at(unit).second.size); }
  void unpin(std::uint64_t unit) { pins_.erase(pins_.find(unit)); }

 private:
  std::multimap<std::uint64_t, std::uint64_t> pins_;  // first unit -> bytes
  std::vector<std::uint32_t> youngest_;
  std::map<std::uint64_t, std::pair<std::uint32_t, ModelExtent>> extents_;
  std::uint32_t floor_ = 0;
};

struct OpenWrite {
  ExtentTable::Ticket ticket;
  std::uint64_t unit = 0, from = 0, to = 0;
  std::uint32_t sequence = 0;
  bool fenced = false;
};

class Comparison {
 public:
  void step() {
    switch (*rc::gen::weightedElement<int>({{6, 0}, {4, 1}, {1, 2}, {1, 3}, {3, 4}, {2, 5}})) {
      case 0:
        begin();
        break;
      case 1:
        end(true);
        break;
      case 2:
        end(false);
        break;
      case 3:
        if (*rc::gen::inRange(0, 8) == 0) fence_all();
        break;
      case 4:
        pin();
        break;
      case 5:
        unpin();
        break;
    }
    check();
  }

 private:
  static constexpr std::uint64_t kUnits = 8;

  void begin() {
    const auto unit = *rc::gen::inRange<std::uint64_t>(0, kUnits);
    const auto sequence = *rc::gen::inRange<std::uint32_t>(1, 12);
    const std::uint64_t size =
        *rc::gen::element<std::uint64_t>(1, 100, kUnit, kUnit + 1, 2 * kUnit, 3 * kUnit - 7);
    if (unit * kUnit + size > kUnits * kUnit) return;
    std::uint64_t from = 0, to = size;
    if (*rc::gen::arbitrary<bool>()) {
      from = size * *rc::gen::inRange<std::uint64_t>(0, 4) / 4;
      to = from + (size - from + 1) / 2;
      if (to == from) return;
    }
    const auto expected = model_.begin(unit, sequence, size, from, to);
    const auto outcome = table_->begin_write(unit * kUnit, unit * kUnit + from, to - from,
                                             record(sequence, size), "key");
    RC_ASSERT(outcome.has_value() == expected.has_value());
    if (!outcome) {
      RC_ASSERT(outcome.error().code() == expected.error().code());
      return;
    }
    RC_ASSERT(outcome->kind == *expected);
    RC_ASSERT(bool{outcome->ticket} == (*expected != Begin::kAlreadyComplete));
    for (auto& write : open_)
      write.fenced |= !model_.holds(write.unit, write.sequence);
    if (outcome->ticket) {
      open_.push_back({outcome->ticket, unit, from, to, sequence, false});
    }
  }
  void end(bool commit) {
    if (open_.empty()) return;
    const auto index = *rc::gen::inRange<std::size_t>(0, open_.size());
    const OpenWrite write = open_[index];
    open_.erase(open_.begin() + static_cast<long>(index));
    if (!commit) {
      table_->abandon(write.ticket);
      return;
    }
    const bool held = model_.holds(write.unit, write.sequence);
    const bool success = !write.fenced || (held && model_.all(write.unit, write.from, write.to));
    RC_ASSERT(table_->commit(write.ticket).has_value() == success);
    if (write.fenced) return;
    model_.write(write.unit, write.from, write.to);
    for (auto& other : open_) {
      if (other.unit == write.unit && other.sequence == write.sequence && other.from < write.to &&
          write.from < other.to) {
        other.fenced = true;
      }
    }
  }
  void pin() {
    const auto unit = *rc::gen::inRange<std::uint64_t>(0, kUnits);
    const auto sequence = *rc::gen::inRange<std::uint32_t>(1, 12);
    auto pin = table_->pin(unit * kUnit, complete(version(sequence)));
    RC_ASSERT(pin.has_value() == model_.readable(unit, sequence));
    if (!pin) return;
    model_.pin(unit);
    pins_.emplace_back(unit, *std::move(pin));
  }
  void unpin() {
    if (pins_.empty()) return;
    const auto index = *rc::gen::inRange<std::size_t>(0, pins_.size());
    model_.unpin(pins_[index].first);
    pins_.erase(pins_.begin() + static_cast<long>(index));
  }
  void fence_all() {
    const auto floor = *rc::gen::inRange<std::uint32_t>(0, 6);
    table_->fence_all(version(floor));
    model_.fence_all(floor);
    for (auto& write : open_)
      write.fenced = true;
  }
  void check() {
    RC_ASSERT(table_->extents() == model_.size());
    std::size_t under_way = 0;
    for (const auto& write : open_) {
      RC_ASSERT(table_->may_write(write.ticket) == !write.fenced);
      under_way += !write.fenced;
    }
    RC_ASSERT(table_->writes_under_way() == under_way);
    for (std::uint64_t unit = 0; unit < kUnits; ++unit) {
      const std::uint64_t word = table_->words()[unit].load();
      RC_ASSERT(version_of(static_cast<Generation>(word)) >=
                version_of(static_cast<Generation>(words_[unit])));
      words_[unit] = word;
      for (std::uint32_t sequence = 1; sequence < 12; ++sequence) {
        const bool readable = model_.readable(unit, sequence);
        RC_ASSERT(table_->readable(unit * kUnit, unit * kUnit, 1, complete(version(sequence))) ==
                  readable);
        const auto promised = static_cast<std::uint64_t>(complete(version(sequence)));
        RC_ASSERT((word == promised) == readable);
      }
    }
  }

  std::unique_ptr<ExtentTable> table_ = make(kUnits);
  Model model_{kUnits};
  std::vector<OpenWrite> open_;
  std::vector<std::pair<std::uint64_t, PinnedRanges::Pin>> pins_;  // with its first unit
  std::vector<std::uint64_t> words_ = std::vector<std::uint64_t>(kUnits);
};

RC_GTEST_PROP(ExtentTable, EqualsAModel, ()) {
  Comparison comparison;
  const int operations = *rc::gen::inRange(1, 80);
  for (int i = 0; i < operations; ++i)
    comparison.step();
}

}  // namespace
}  // namespace mooncake::memory
