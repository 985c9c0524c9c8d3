// Rings: bytes come out as they went in, whoever is ahead; nobody sleeps for ever; and what the
// other side writes into the shared part can't lead anywhere.
#include "net/ring.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/random.h"

namespace mooncake::net {
namespace {

struct Memory {
  RingState state{};
  std::vector<std::byte> bytes = std::vector<std::byte>(RingEnd::kCapacity);
};

std::byte byte_at(std::uint64_t position) {
  return static_cast<std::byte>((position * 0x9E3779B97F4A7C15u) >> 56);
}

// Puts the next bytes of the stream, as many as have room.
std::size_t put(RingWriter& writer, std::uint64_t& position, std::size_t most, bool& rings) {
  const std::size_t size = std::min(writer.room(), most);
  for (const std::span<std::byte> place : writer.places(size)) {
    for (std::byte& byte : place)
      byte = byte_at(position++);
  }
  rings = writer.publish(size);
  return size;
}

TEST(Ring, BytesComeOutInOrder) {
  Memory memory;
  RingWriter writer(memory.state, memory.bytes.data());
  RingReader reader(memory.state, memory.bytes.data());
  base::Random random(1);
  std::uint64_t written = 0, read = 0;
  std::vector<std::byte> to(2 * RingEnd::kCapacity);
  for (int round = 0; round < 2000; ++round) {
    bool rings = false;
    put(writer, written, random.below(RingEnd::kCapacity + 1), rings);
    ASSERT_EQ(reader.available(), written - read);
    const auto part = std::span(to).first(random.below(to.size()));
    const RingReader::Taken taken = reader.take(part);
    ASSERT_EQ(taken.size, std::min(part.size(), static_cast<std::size_t>(written - read)));
    for (std::size_t i = 0; i < taken.size; ++i)
      ASSERT_EQ(part[i], byte_at(read++)) << read;
  }
  EXPECT_GT(read, 10 * RingEnd::kCapacity);
}

TEST(Ring, OnlyWhoSleepsIsRungForAndOnce) {
  Memory memory;
  RingWriter writer(memory.state, memory.bytes.data());
  RingReader reader(memory.state, memory.bytes.data());
  std::vector<std::byte> to(100);
  EXPECT_FALSE(writer.publish(10));
  reader.sleep();
  EXPECT_TRUE(writer.publish(10));
  EXPECT_FALSE(writer.publish(10));
  reader.sleep();
  reader.wake();
  EXPECT_FALSE(writer.publish(10));
  EXPECT_FALSE(reader.take(to).writer_sleeps);
  writer.sleep();
  EXPECT_FALSE(reader.take(to).writer_sleeps) << "nothing was taken";
  EXPECT_FALSE(writer.publish(1));
  EXPECT_TRUE(reader.take(to).writer_sleeps);
}

// Each side stops whenever it finds nothing to do, and goes on when it is rung for.
TEST(Ring, NobodySleepsForEver) {
  constexpr std::uint64_t kBytes = 64u << 20;
  Memory memory;
  std::atomic<std::uint32_t> reader_bell{0}, writer_bell{0};
  const auto wait = [](std::atomic<std::uint32_t>& bell) {
    bell.wait(0);
    bell.exchange(0);
  };
  const auto ring = [](std::atomic<std::uint32_t>& bell) {
    bell = 1;
    bell.notify_one();
  };
  std::thread writes([&] {
    RingWriter writer(memory.state, memory.bytes.data());
    base::Random random(2);
    for (std::uint64_t written = 0; written < kBytes;) {
      bool rings = false;
      const std::size_t most = std::min<std::uint64_t>(1 + random.below(100'000), kBytes - written);
      const std::size_t size = put(writer, written, most, rings);
      if (rings) ring(reader_bell);
      if (size > 0) continue;
      writer.sleep();
      if (writer.room() == 0) wait(writer_bell);
    }
  });
  RingReader reader(memory.state, memory.bytes.data());
  std::vector<std::byte> to(70'000);
  std::uint64_t read = 0;
  bool equal = true;
  while (read < kBytes) {
    const RingReader::Taken taken = reader.take(to);
    if (taken.writer_sleeps) ring(writer_bell);
    for (std::size_t i = 0; i < taken.size; ++i)
      equal &= to[i] == byte_at(read++);
    if (taken.size > 0) continue;
    reader.sleep();
    if (reader.available() == 0) wait(reader_bell);
    reader.wake();
  }
  writes.join();
  EXPECT_TRUE(equal);
}

TEST(Ring, WhatCantBeIsNotBelieved) {
  const std::uint64_t far = RingEnd::kCapacity + 1;
  for (const std::uint64_t claim : {far, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    Memory memory;
    RingReader reader(memory.state, memory.bytes.data());
    std::vector<std::byte> to(3 * RingEnd::kCapacity);
    memory.state.written = claim;
    EXPECT_EQ(reader.available(), 0u);
    EXPECT_TRUE(reader.is_broken());
    memory.state.written = 10;
    EXPECT_EQ(reader.take(to).size, 0u) << "broken for good";
  }
  for (const std::uint64_t claim : {std::uint64_t{1}, far, std::uint64_t{1} << 63}) {
    Memory memory;
    RingWriter writer(memory.state, memory.bytes.data());
    memory.state.read = claim;  // more than was ever written
    EXPECT_EQ(writer.room(), 0u);
    EXPECT_TRUE(writer.is_broken());
  }
}

}  // namespace
}  // namespace mooncake::net
