// Transports over a network that breaks: late bytes never land over younger ones, a call returns in
// time and leaves its buffers alone from then on, and a peer that died, stood still or came back as
// another is dealt with. On one simulated thread, from printed seeds.
#include <algorithm>

#include "rig.h"

namespace mooncake::transfer {
namespace {

class TransportFaults : public testing::TestWithParam<const char*> {
 protected:
  // Fresh for each seed.
  void make(std::uint64_t seed) {
    if (rig_) rig_->stop_all();
    rig_ = std::make_unique<SimRig>(seed);
    here_ = &rig_->host("here");
    there_ = &rig_->host("there");
    engine_ = &rig_->start_engine(*here_, "here");
    owner_ = &rig_->start_engine(*there_, "there", kPort);
    target_ = *here_->run(engine_->open_segment(owner_->name(), in(10s)));
  }
  void SetUp() override { make(1); }
  void TearDown() override { rig_->stop_all(); }

  TimePoint in(base::Duration duration) { return here_->env().now() + duration; }
  void expose(Buffer& buffer) {
    ASSERT_TRUE(owner_->register_memory(buffer.address(), buffer.size(), "*", nullptr));
  }
  Code move(Opcode opcode, std::span<std::byte> local, std::uint64_t remote,
            base::Duration limit = 60s) {
    std::vector<Entry> entries;
    entries.emplace_back(opcode, local, remote, target_);
    return here_->run(move_all(*engine_, entries, in(limit))).front();
  }
  void wait_for(const std::function<bool()>& condition) {
    ASSERT_TRUE(rig_->executor().run_until(condition, rig_->executor().now() + 60s));
  }

  // Moves the entries, and does this when the condition holds; their codes.
  std::vector<Code> move_until(std::vector<Entry>& entries, const std::function<bool()>& condition,
                               const std::function<void()>& then,
                               os::CancelToken* cancel = nullptr) {
    base::TaskGroup tasks;
    std::optional<std::vector<Code>> codes;
    const auto task = [](Engine& engine, std::vector<Entry>& all, TimePoint until,
                         os::CancelToken* token,
                         std::optional<std::vector<Code>>& result) -> Task<void> {
      result = co_await move_all(engine, all, until, nullptr, token);
    };
    rig_->executor().post([&] { tasks.start(task(*engine_, entries, in(600s), cancel, codes)); });
    wait_for(condition);
    rig_->executor().post(then);
    wait_for([&] { return codes.has_value(); });
    return std::move(codes).value_or(std::vector<Code>());
  }
  std::vector<Code> cancel_when(std::vector<Entry>& entries,
                                const std::function<bool()>& condition) {
    os::CancelToken token;
    return move_until(
        entries, condition, [&token] { token.cancel(); }, &token);
  }

  // Moves the entries; meanwhile the connection that is in use stands still, once, for long.
  std::vector<Code> move_while_a_lane_stands_still(std::vector<Entry>& entries,
                                                   const std::function<bool()>& under_way) {
    base::TaskGroup tasks;
    std::optional<std::vector<Code>> codes;
    const auto task = [](Engine& engine, std::vector<Entry>& all, TimePoint until,
                         std::optional<std::vector<Code>>& result) -> Task<void> {
      result = co_await move_all(engine, all, until);
    };
    rig_->executor().post([&] { tasks.start(task(*engine_, entries, in(50s), codes)); });
    wait_for(under_way);
    rig_->world().faults.late = 300s;
    rig_->world().faults.stall = 1;
    wait_for([&] { return rig_->world().counters().stalled > 0; });
    rig_->world().faults.stall = 0;
    wait_for([&] { return codes.has_value(); });
    return std::move(codes).value_or(std::vector<Code>());
  }

  static constexpr std::uint16_t kPort = 7000;
  std::unique_ptr<SimRig> rig_;
  Host* here_ = nullptr;
  Host* there_ = nullptr;
  Engine* engine_ = nullptr;
  Engine* owner_ = nullptr;
  SegmentHandle target_{};
};

// The owner stands still in the middle of a read: the call returns at its deadline, and what
// arrives later does not touch the buffer. C23.
TEST_P(TransportFaults, AStuckReadLeavesItsBufferAlone) {
  constexpr std::size_t kSize = 20u << 20;
  Buffer theirs(kSize, 1), back(kSize);
  expose(theirs);
  base::TaskGroup tasks;
  std::vector<Entry> entries;
  entries.emplace_back(Opcode::kRead, back.span(), theirs.address(), target_);
  std::optional<Code> code;
  const TimePoint deadline = in(3s);
  rig_->executor().post([&] {
    tasks.start([](Engine& engine, std::vector<Entry>& all, TimePoint until,
                   std::optional<Code>& result) -> Task<void> {
      const auto codes = co_await move_all(engine, all, until);
      result = codes.front();
    }(*engine_, entries, deadline, code));
  });
  wait_for([&] { return back.data()[0] != std::byte{0}; });
  rig_->executor_of("there").freeze();
  wait_for([&] { return code.has_value(); });
  EXPECT_EQ(code, Code::kDeadlineExceeded);
  EXPECT_LE(rig_->executor().now(), deadline + 10ms);
  back.fill(5);
  rig_->executor_of("there").thaw();
  rig_->executor().run_for(60s);
  EXPECT_TRUE(back.holds(5));
  EXPECT_EQ(move(Opcode::kRead, back.span(), theirs.address()), Code::kOk);
  EXPECT_TRUE(back.holds(1));
}

// The owner stands still in the middle of a write: after the call has returned no byte that is put
// into the source reaches it; the bytes are quarantined until the fence is known to hold. C23, C32.
TEST_P(TransportFaults, AStuckWriteTakesNothingFromItsSourceAfterwards) {
  constexpr std::size_t kSize = 20u << 20;
  Buffer mine(kSize, 1), theirs(kSize);
  mine.data()[0] = std::byte{1};
  expose(theirs);
  base::TaskGroup tasks;
  std::vector<Entry> entries;
  entries.emplace_back(Opcode::kWrite, mine.span(), theirs.address(), target_);
  std::optional<Code> code;
  rig_->executor().post([&] {
    tasks.start([](Engine& engine, std::vector<Entry>& all, TimePoint until,
                   std::optional<Code>& result) -> Task<void> {
      const auto codes = co_await move_all(engine, all, until);
      result = codes.front();
    }(*engine_, entries, in(3s), code));
  });
  wait_for([&] { return theirs.data()[0] != std::byte{0}; });
  rig_->executor_of("there").freeze();
  wait_for([&] { return code.has_value(); });
  EXPECT_EQ(code, Code::kDeadlineExceeded);
  const Buffer before = mine;
  for (std::size_t i = 0; i < kSize; ++i)
    mine.data()[i] = std::byte{0xEE};
  EXPECT_GT(rig_->counters(*engine_).quarantined_bytes, 0u);
  rig_->executor_of("there").thaw();
  wait_for([&] { return rig_->counters(*engine_).quarantined_bytes == 0; });
  const Buffer fenced = theirs;
  rig_->executor().run_for(60s);
  for (std::size_t i = 0; i < kSize; i += 64) {
    const std::byte byte = theirs.data()[i];
    const bool allowed = byte == std::byte{0} || byte == const_cast<Buffer&>(before).data()[i];
    ASSERT_TRUE(allowed) << "a byte written after the return arrived at " << i;
  }
  EXPECT_TRUE(std::ranges::equal(const_cast<Buffer&>(fenced).span(), theirs.span()))
      << "bytes landed behind the fence";
}

// A batch that is cancelled in the middle of a read: it ends at once, and what still arrives does
// not touch its buffer. Entries that were done by then are whole.
TEST_P(TransportFaults, ACancelledReadLeavesItsBufferAlone) {
  constexpr std::size_t kEach = 1u << 20, kEntries = 40;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    make(seed);
    Buffer theirs(kEach * kEntries, 1), back(kEach * kEntries);
    expose(theirs);
    std::vector<Entry> entries;
    for (std::size_t i = 0; i < kEntries; ++i) {
      entries.emplace_back(Opcode::kRead, back.sub(i * kEach, kEach), theirs.address() + i * kEach,
                           target_);
    }
    const std::size_t last = seed * kEach * 3;
    const auto codes = cancel_when(entries, [&] { return back.data()[last] != std::byte{0}; });
    EXPECT_EQ(std::ranges::count(codes, Code::kOk) + std::ranges::count(codes, Code::kCancelled),
              static_cast<std::ptrdiff_t>(kEntries));
    EXPECT_GT(std::ranges::count(codes, Code::kCancelled), 0);
    for (std::size_t i = 0; i < kEntries; ++i) {
      if (codes[i] == Code::kOk) {
        EXPECT_TRUE(back.holds(1, i * kEach, kEach));
      }
    }
    back.fill(5);
    rig_->executor().run_for(60s);
    EXPECT_TRUE(back.holds(5));
    EXPECT_EQ(move(Opcode::kRead, back.sub(0, kEach), theirs.address()), Code::kOk);
  }
}

// In the middle of a write: when the call has returned nothing of it can land any more, so that who
// writes next is not written over. C32.
TEST_P(TransportFaults, ACancelledWriteIsFenced) {
  constexpr std::size_t kSize = 40u << 20;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    make(seed);
    Buffer mine(kSize, 1), theirs(kSize);
    expose(theirs);
    std::vector<Entry> entries;
    entries.emplace_back(Opcode::kWrite, mine.span(), theirs.address(), target_);
    const std::size_t last = seed * (3u << 20);
    const auto codes = cancel_when(entries, [&] { return theirs.data()[last] != std::byte{0}; });
    EXPECT_EQ(codes, std::vector<Code>{Code::kCancelled});
    EXPECT_EQ(rig_->counters(*engine_).quarantined_bytes, 0u);
    theirs.fill(5);
    rig_->executor().run_for(60s);
    EXPECT_TRUE(theirs.holds(5)) << "bytes landed behind the fence";
  }
}

// One connection of several stands still: what it carried is called off, fenced, and comes by
// another one, long before the deadline; what the first one still delivers touches nothing.
TEST_P(TransportFaults, AStuckAttemptIsRepeatedOnAnotherLane) {
  constexpr std::size_t kSize = 20u << 20;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    make(seed);
    const Opcode opcode = seed % 2 == 0 ? Opcode::kRead : Opcode::kWrite;
    Buffer mine(kSize, 1), theirs(kSize, 2);
    expose(theirs);
    Buffer& from = opcode == Opcode::kRead ? theirs : mine;
    Buffer& into = opcode == Opcode::kRead ? mine : theirs;
    into.fill(0);
    std::vector<Entry> entries;
    entries.emplace_back(opcode, mine.span(), theirs.address(), target_);
    const TimePoint began = rig_->executor().now();
    const auto codes =
        move_while_a_lane_stands_still(entries, [&] { return into.data()[0] != std::byte{0}; });
    EXPECT_EQ(codes, std::vector<Code>{Code::kOk});
    EXPECT_TRUE(into.holds(opcode == Opcode::kRead ? 2 : 1));
    EXPECT_LT(rig_->executor().now() - began, 20s);
    EXPECT_GE(rig_->counters(*engine_).stuck_attempts, 1u);
    EXPECT_EQ(rig_->counters(*engine_).quarantined_bytes, 0u);
    into.fill(5);
    from.fill(6);
    rig_->executor().run_for(400s);
    EXPECT_TRUE(into.holds(5)) << "bytes of the stuck attempt landed";
  }
}

// A peer that stands still is not a lane that does: the call waits for it, and goes on.
TEST_P(TransportFaults, AStoppedPeerIsWaitedFor) {
  constexpr std::size_t kSize = 20u << 20;
  for (const Opcode opcode : {Opcode::kRead, Opcode::kWrite}) {
    make(1);
    Buffer mine(kSize, 1), theirs(kSize, 1);
    expose(theirs);
    std::vector<Entry> entries;
    entries.emplace_back(opcode, mine.span(), theirs.address(), target_);
    base::TaskGroup tasks;
    std::optional<Code> code;
    const auto task = [](Engine& engine, std::vector<Entry>& all, TimePoint until,
                         std::optional<Code>& result) -> Task<void> {
      const auto codes = co_await move_all(engine, all, until);
      result = codes.front();
    };
    const TimePoint began = rig_->executor().now();
    rig_->executor_of("there").freeze();
    rig_->executor().post([&] { tasks.start(task(*engine_, entries, in(60s), code)); });
    rig_->executor().run_for(25s);
    EXPECT_FALSE(code);
    rig_->executor_of("there").thaw();
    wait_for([&] { return code.has_value(); });
    EXPECT_EQ(code, Code::kOk);
    EXPECT_LT(rig_->executor().now() - began, 40s);
  }
}

// Who asked stands still in the middle: the owner takes its memory back and serves others
// meanwhile, none of whose bytes change when the first one goes on.
TEST_P(TransportFaults, AStoppedInitiatorHoldsUpNobody) {
  constexpr std::size_t kSize = 20u << 20;
  for (const Opcode opcode : {Opcode::kWrite, Opcode::kRead}) {
    make(1);
    Buffer mine(kSize, 1), theirs(kSize, opcode == Opcode::kRead ? 2 : 0), other(1000, 3);
    Buffer& target = opcode == Opcode::kWrite ? theirs : mine;
    const std::byte before = target.data()[0];
    expose(theirs);
    std::vector<Entry> entries;
    entries.emplace_back(opcode, mine.span(), theirs.address(), target_);
    base::TaskGroup tasks;
    std::optional<Code> code;
    const auto task = [](Engine& engine, std::vector<Entry>& all, TimePoint until,
                         std::optional<Code>& result) -> Task<void> {
      const auto codes = co_await move_all(engine, all, until);
      result = codes.front();
    };
    rig_->executor().post([&] { tasks.start(task(*engine_, entries, in(60s), code)); });
    wait_for([&] { return target.data()[0] != before; });
    rig_->executor_of("here").freeze();

    const TimePoint stopped = rig_->executor().now();
    EXPECT_TRUE(there_->run(owner_->unregister_memory(theirs.address(), stopped + 1s)));
    EXPECT_LT(rig_->executor().now() - stopped, 100ms);
    theirs.fill(5);
    Buffer more(1000);
    Host& third = rig_->host("third");
    Engine& next = rig_->start_engine(third, "third");
    expose(more);
    const SegmentHandle by_next = *third.run(next.open_segment(owner_->name(), in(10s)));
    std::vector<Entry> write;
    write.emplace_back(Opcode::kWrite, other.span(), more.address(), by_next);
    EXPECT_EQ(third.run(move_all(next, write, in(10s))).front(), Code::kOk);

    rig_->executor().run_for(5s);
    rig_->executor_of("here").thaw();
    wait_for([&] { return code.has_value(); });
    EXPECT_EQ(code, Code::kAddressNotRegistered);
    EXPECT_TRUE(theirs.holds(5));
    EXPECT_TRUE(more.holds(3));
  }
}

// The owner stands still: who cancels does not wait for a fence that may never come.
TEST_P(TransportFaults, ACancelledWriteToAStuckPeerIsQuarantined) {
  constexpr std::size_t kSize = 20u << 20;
  Buffer mine(kSize, 1), theirs(kSize);
  expose(theirs);
  std::vector<Entry> entries;
  entries.emplace_back(Opcode::kWrite, mine.span(), theirs.address(), target_);
  TimePoint cancelled{};
  const auto codes = cancel_when(entries, [&] {
    if (theirs.data()[0] == std::byte{0}) return false;
    rig_->executor_of("there").freeze();
    cancelled = rig_->executor().now();
    return true;
  });
  EXPECT_EQ(codes, std::vector<Code>{Code::kCancelled});
  EXPECT_LE(rig_->executor().now(), cancelled + 300ms);
  EXPECT_GT(rig_->counters(*engine_).quarantined_bytes, 0u);
  rig_->executor_of("there").thaw();
  wait_for([&] { return rig_->counters(*engine_).quarantined_bytes == 0; });
}

// On a network that cuts, loses, stalls and delays, two engines write to the same memory by turns:
// what was acknowledged is there, and stays there, although parts of earlier attempts and of the
// other's earlier writes still arrive. An engine has its turn when the other one has no bytes in
// quarantine.
TEST_P(TransportFaults, LateBytesNeverLandOverYoungerOnes) {
  constexpr std::size_t kEntries = 6, kEach = 20u << 10, kSize = kEntries * kEach;
  std::uint64_t acknowledged = 0, retried = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    make(seed);
    Engine& second = rig_->start_engine(rig_->host("second"), "second");
    const SegmentHandle by_second = *here_->run(second.open_segment(owner_->name(), in(10s)));
    Buffer mine(kSize), theirs(kSize);
    expose(theirs);
    auto& faults = rig_->world().faults;
    faults.cut = 0.15;
    faults.lose = 0.03;
    faults.stall = 0.3;
    faults.duplicate = 0.2;
    for (std::uint64_t round = 1; round <= 12; ++round) {
      const bool first = round % 2 == 1;
      Engine& writer = first ? *engine_ : second;
      mine.fill(round);
      std::vector<Entry> entries;
      for (std::size_t i = 0; i < kEntries; ++i) {
        entries.emplace_back(Opcode::kWrite, mine.sub(i * kEach, kEach),
                             theirs.address() + i * kEach, first ? target_ : by_second);
      }
      const auto codes = here_->run(move_all(writer, entries, in(5s)));
      wait_for([&] { return rig_->counters(writer).quarantined_bytes == 0; });
      if (first) continue;  // the other one writes at once over what was just written
      rig_->executor().run_for(rig_->world().faults.late * 3);
      for (std::size_t i = 0; i < kEntries; ++i) {
        if (codes[i] != Code::kOk) continue;
        ++acknowledged;
        EXPECT_TRUE(theirs.holds(round, i * kEach, kEach)) << "round " << round << " entry " << i;
      }
    }
    retried += rig_->counters(*engine_).retried_attempts + rig_->counters(second).retried_attempts;
    faults = {};
    EXPECT_EQ(move(Opcode::kWrite, mine.span(), theirs.address()), Code::kOk);
  }
  EXPECT_GT(acknowledged, 100u);
  EXPECT_GT(retried, 10u);
}

// Reads on the same network: what is acknowledged is right.
TEST_P(TransportFaults, ReadsAreRepeatedUntilTheyAreWhole) {
  constexpr std::size_t kSize = 2u << 20;
  int good = 0;
  for (std::uint64_t seed = 1; seed <= 15; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    make(seed);
    Buffer theirs(kSize, seed), back(kSize);
    expose(theirs);
    rig_->world().faults.cut = 0.07;
    rig_->world().faults.lose = 0.07;
    for (int round = 0; round < 4; ++round) {
      back.fill(0);
      if (move(Opcode::kRead, back.span(), theirs.address(), 5s) != Code::kOk) continue;
      ++good;
      EXPECT_TRUE(back.holds(seed));
    }
    rig_->world().faults = {};
  }
  EXPECT_GT(good, 20);
}

// A peer that dies and comes back under its address is another one: its keys and memory are asked
// for anew.
TEST_P(TransportFaults, FindsAPeerThatCameBack) {
  constexpr std::size_t kSize = 1u << 20;
  Buffer mine(kSize, 1), theirs(kSize);
  expose(theirs);
  ASSERT_EQ(move(Opcode::kWrite, mine.span(), theirs.address()), Code::kOk);
  rig_->executor_of("there").freeze();
  rig_->world().kill("there");
  const TimePoint before = rig_->executor().now();
  EXPECT_EQ(move(Opcode::kWrite, mine.span(), theirs.address(), 30s), Code::kConnectionLost);
  EXPECT_EQ(move(Opcode::kWrite, mine.span(), theirs.address(), 30s), Code::kUnreachable);
  EXPECT_LT(rig_->executor().now() - before, 1s) << "a refused connection is known at once";
  there_ = &rig_->host("there");
  owner_ = &rig_->start_engine(*there_, "there", kPort);
  expose(theirs);
  mine.fill(2);
  ASSERT_EQ(move(Opcode::kWrite, mine.span(), theirs.address()), Code::kOk);
  EXPECT_TRUE(theirs.holds(2));
}

// Nobody answers any more, and the name leads nowhere else: however often it is asked for, each
// call waits for one attempt to connect, whose distance to the one before grows to half a second.
// C20.
TEST_P(TransportFaults, ADeadPeerCostsEachCallOneAttempt) {
  Buffer mine(1000, 1), theirs(1000);
  expose(theirs);
  ASSERT_EQ(move(Opcode::kWrite, mine.span(), theirs.address()), Code::kOk);
  rig_->executor_of("there").freeze();
  rig_->world().kill("there");
  const Code first = move(Opcode::kWrite, mine.span(), theirs.address());
  EXPECT_TRUE(first == Code::kConnectionLost || first == Code::kUnreachable);
  for (int call = 0; call < 20; ++call) {
    const TimePoint before = rig_->executor().now();
    EXPECT_EQ(move(Opcode::kWrite, mine.span(), theirs.address()), Code::kUnreachable);
    EXPECT_LT(rig_->executor().now() - before, 550ms) << call;
  }
}

// Were each of its parts to make an attempt of its own, a batch of 4 GiB would take half a minute.
// C20.
TEST_P(TransportFaults, ADeadPeerCostsABatchOfAnyLengthOneAttempt) {
  constexpr std::size_t kSize = 8u << 20, kEntries = 512;
  Buffer mine(kSize, 1), theirs(kSize);
  for (const bool under_way : {false, true}) {
    make(2);
    expose(theirs);
    ASSERT_EQ(move(Opcode::kWrite, mine.span(), theirs.address()), Code::kOk);
    theirs.fill(0);
    std::vector<Entry> entries;
    for (std::size_t i = 0; i < kEntries; ++i) {
      const Opcode opcode = i % 5 == 4 ? Opcode::kRead : Opcode::kWrite;
      entries.emplace_back(opcode, mine.span(), theirs.address(), target_);
      entries.back().request.priority = i % 3 ? Priority::kNormal : Priority::kUrgent;
    }
    TimePoint begin = rig_->executor().now();
    const auto kill = [&] {
      rig_->executor_of("there").freeze();
      rig_->world().kill("there");
      begin = rig_->executor().now();
    };
    std::vector<Code> codes;
    if (under_way) {
      const auto begun = [&] { return theirs.data()[kSize / 2] != std::byte{0}; };
      codes = move_until(entries, begun, kill);
      EXPECT_LT(rig_->executor().now() - begin, 600ms);
    } else {
      kill();
    }
    for (int call = 0; call < 20; ++call) {
      begin = rig_->executor().now();
      codes = here_->run(move_all(*engine_, entries, in(600s)));
      EXPECT_LT(rig_->executor().now() - begin, 600ms) << call;
      for (const Code code : codes) {
        const bool lost = code == Code::kConnectionLost && call == 0 && !under_way;
        ASSERT_TRUE(lost || code == Code::kUnreachable) << call;
      }
    }
  }
}

TEST_P(TransportFaults, APartitionEndsAtTheDeadlineAndHeals) {
  Buffer mine(1000, 1), theirs(1000);
  expose(theirs);
  rig_->world().partition("here", "there");
  const TimePoint deadline = in(2s);
  EXPECT_EQ(move(Opcode::kWrite, mine.span(), theirs.address(), 2s), Code::kDeadlineExceeded);
  EXPECT_LE(rig_->executor().now(), deadline + 10ms);
  rig_->world().heal();
  rig_->executor().run_for(20s);
  EXPECT_EQ(rig_->counters(*engine_).quarantined_bytes, 0u);
  EXPECT_EQ(move(Opcode::kWrite, mine.span(), theirs.address()), Code::kOk);
  EXPECT_TRUE(theirs.holds(1));
}

TEST_P(TransportFaults, RefusesPeersWithoutTheSecret) {
  Engine& secured = rig_->start_engine(rig_->host("safe"), "safe", 0, "a secret");
  const auto opened = here_->run(engine_->open_segment(secured.name(), in(5s)));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kAuthenticationFailed);
  EXPECT_EQ(secured.counters().server.refused_authentication, 1u);
}

TEST_P(TransportFaults, SaysThatNobodyListens) {
  const auto opened = here_->run(engine_->open_segment("there:1", in(5s)));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kUnreachable);
  EXPECT_EQ(here_->run(engine_->open_segment("no address", in(5s))).error().code(),
            Code::kSegmentNotFound);
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportFaults, testing::Values("tcp"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace mooncake::transfer
