// Proves that the gate does what its model does: nobody enters under a pass that was taken back,
// the owner sees who is inside, and with real threads no byte moves after the owner has seen
// nobody.
#include "memory/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "memory/copy.h"

namespace mooncake::memory {
namespace {

struct Pair {
  Pair() {
    auto made = Gate::create();
    EXPECT_TRUE(made) << made.error().message();
    gate = *std::move(made);
    add();
  }
  void add() {
    auto added = gate->add_peer();
    EXPECT_TRUE(added) << added.error().message();
    peer = *added;
    auto mapped = PeerGate::map(gate->table_fd(), gate->table_size(), peer->fd(), peer->size());
    EXPECT_TRUE(mapped) << mapped.error().message();
    copier = *std::move(mapped);
  }
  std::unique_ptr<Gate> gate;
  std::shared_ptr<Gate::Peer> peer;
  std::unique_ptr<PeerGate> copier;
};

TEST(Gate, APassAdmitsUntilItIsRaised) {
  Pair pair;
  const Pass pass = pair.gate->open();
  ASSERT_NE(pass, Pass::kNone);
  auto slots = pair.copier->claim();
  ASSERT_TRUE(slots);
  EXPECT_TRUE(slots.enter(pass));
  EXPECT_FALSE(pair.gate->is_clear(pass));
  EXPECT_FALSE(pair.gate->is_clear());
  pair.gate->raise(pass);
  EXPECT_FALSE(pair.gate->is_clear(pass)) << "somebody is still inside";
  slots.leave();
  EXPECT_TRUE(pair.gate->is_clear(pass));
  EXPECT_FALSE(slots.enter(pass));
  EXPECT_TRUE(pair.gate->is_clear());
}

TEST(Gate, TheNextRegistrationIsAnotherPass) {
  Pair pair;
  const Pass first = pair.gate->open();
  pair.gate->raise(first);
  pair.gate->retire(first);
  const Pass second = pair.gate->open();
  EXPECT_NE(first, second);
  auto slots = pair.copier->claim();
  EXPECT_FALSE(slots.enter(first));
  EXPECT_TRUE(slots.enter(second));
  EXPECT_TRUE(pair.gate->is_clear(first));
  EXPECT_FALSE(pair.gate->is_clear(second));
}

TEST(Gate, OtherPassesDoNotHoldUp) {
  Pair pair;
  const Pass a = pair.gate->open(), b = pair.gate->open();
  auto slots = pair.copier->claim();
  ASSERT_TRUE(slots.enter(a));
  pair.gate->raise(b);
  EXPECT_TRUE(pair.gate->is_clear(b));
  EXPECT_FALSE(slots.enter(b));
  EXPECT_FALSE(pair.gate->is_clear(a)) << "a refused pass gives up no other";
}

TEST(Gate, ManyPassesAtOnceAndAllLeftTogether) {
  Pair pair;
  std::vector<Pass> passes;
  auto slots = pair.copier->claim();
  while (!slots.full()) {
    passes.push_back(pair.gate->open());
    ASSERT_TRUE(slots.enter(passes.back()));
  }
  EXPECT_EQ(passes.size(), PeerGate::Slots::kMany);
  for (const Pass pass : passes)
    EXPECT_FALSE(pair.gate->is_clear(pass));
  slots.leave();
  for (const Pass pass : passes)
    EXPECT_TRUE(pair.gate->is_clear(pass));
  EXPECT_FALSE(slots.full());
}

TEST(Gate, ClosingAdmitsNobody) {
  Pair pair;
  const Pass pass = pair.gate->open();
  pair.gate->close();
  auto slots = pair.copier->claim();
  EXPECT_FALSE(slots.enter(pass));
  EXPECT_TRUE(pair.gate->is_clear());
}

TEST(Gate, PassesThatWereNeverGivenAreRefused) {
  Pair pair;
  auto slots = pair.copier->claim();
  EXPECT_FALSE(slots.enter(Pass::kNone));
  EXPECT_FALSE(slots.enter(static_cast<Pass>(~std::uint64_t{0})));
  EXPECT_FALSE(slots.enter(static_cast<Pass>(std::uint64_t{5} << 40 | 1)));
}

TEST(Gate, ADeadPeerHoldsNothing) {
  Pair pair;
  const Pass pass = pair.gate->open();
  auto slots = pair.copier->claim();
  ASSERT_TRUE(slots.enter(pass));
  pair.gate->raise(pass);
  EXPECT_FALSE(pair.gate->is_clear(pass));
  pair.gate->remove_peer(pair.peer);
  EXPECT_TRUE(pair.gate->is_clear(pass));
  EXPECT_EQ(pair.gate->peers(), 0u);
}

TEST(Gate, SlotsAreFewAndComeBack) {
  Pair pair;
  std::vector<PeerGate::Slots> taken;
  for (;;) {
    auto slots = pair.copier->claim();
    if (!slots) break;
    taken.push_back(std::move(slots));
    ASSERT_LE(taken.size(), 64u);
  }
  EXPECT_EQ(taken.size(), 63u);
  taken.pop_back();
  EXPECT_TRUE(pair.copier->claim());
}

TEST(Gate, AnotherVersionOrSizeIsRefused) {
  Pair pair;
  const Gate& gate = *pair.gate;
  const auto map = [&](int table, std::uint64_t table_size, int slots, std::uint64_t slots_size) {
    return PeerGate::map(table, table_size, slots, slots_size).has_value();
  };
  EXPECT_FALSE(map(gate.table_fd(), 4096, pair.peer->fd(), pair.peer->size()));
  EXPECT_FALSE(map(gate.table_fd(), gate.table_size(), pair.peer->fd(), 8192));
  auto empty =
      os::OwnedMapping::create("test", gate.table_size(), os::OwnedMapping::PeersMay::kOnlyRead);
  ASSERT_TRUE(empty);
  EXPECT_FALSE(map(empty->fd(), empty->size(), pair.peer->fd(), pair.peer->size()));
  auto slots = os::OwnedMapping::create("test", 4096, os::OwnedMapping::PeersMay::kWrite);
  ASSERT_TRUE(slots);
  EXPECT_FALSE(map(gate.table_fd(), gate.table_size(), slots->fd(), slots->size()));
}

// Two copiers fill a half of a buffer each for as long as they are admitted; again and again the
// owner takes it back, and from then on finds in it what it has put there itself.
TEST(Gate, NothingMovesOnceTheOwnerHasSeenNobody) {
  Pair pair;
  constexpr std::size_t kSize = 64u << 10;
  auto target = os::OwnedMapping::create("target", kSize, os::OwnedMapping::PeersMay::kWrite);
  auto view = os::SharedMapping::map(target->fd(), kSize, os::SharedMapping::Use::kReadWrite);
  ASSERT_TRUE(view);
  std::atomic<Pass> current{Pass::kNone};
  std::atomic<std::uint64_t> copies{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> copiers;
  for (int number = 0; number < 2; ++number) {
    copiers.emplace_back([&, number] {
      const std::vector<std::byte> source(kSize / 2, static_cast<std::byte>(0xc0 + number));
      std::byte* const half = view->data() + (number == 0 ? 0 : source.size());
      while (!over) {
        auto slots = pair.copier->claim();
        if (slots.enter(current)) {
          copy_bytes(half, source.data(), source.size());
          ++copies;
        }
      }
    });
  }
  for (int round = 0; round < 200; ++round) {
    const Pass pass = pair.gate->open();
    const std::uint64_t before = copies;
    current = pass;
    while (copies < before + 3)
      std::this_thread::yield();
    pair.gate->raise(pass);
    while (!pair.gate->is_clear(pass))
      std::this_thread::yield();
    const auto mine = static_cast<std::byte>(round);
    std::memset(target->data(), round, kSize);
    for (int look = 0; look < 3; ++look) {
      std::this_thread::yield();
      for (std::size_t i = 0; i < kSize; ++i)
        ASSERT_EQ(target->data()[i], mine) << "byte " << i << " in round " << round;
    }
    pair.gate->retire(pass);
  }
  over = true;
  for (std::thread& copier : copiers)
    copier.join();
  EXPECT_TRUE(pair.gate->is_clear());
}

}  // namespace
}  // namespace mooncake::memory
