// Managed buffers of an engine: each is open to peers by itself, is not taken back by its address,
// and is not given out again while an access that began before it was freed is still under way.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "memory/registry.h"
#include "mooncake/transfer.h"
#include "transfer/engine.h"
#include "transfer/managed_memory.h"

namespace mooncake::transfer {
namespace {

constexpr std::uint64_t kSize = 1u << 20;

class ManagedSource : public testing::Test {
 protected:
  void* allocate() { return memory_.allocate(kSize).value_or(nullptr); }
  memory::Registry& registry() { return engine_->engine().registry(); }
  static std::uint64_t number(void* buffer) { return reinterpret_cast<std::uint64_t>(buffer); }
  bool copies(void* from, void* to, std::uint64_t size) {
    TransferRequest copy;
    copy.opcode = Opcode::kWrite;
    copy.source = from;
    copy.target_offset = number(to);
    copy.length = size;
    return engine_->transfer({&copy, 1}, std::chrono::seconds(10)).ok();
  }

  std::unique_ptr<TransferEngine> engine_ = *TransferEngine::create(TransferOptions());
  ManagedMemory memory_{managed_source(*engine_)};
};

TEST_F(ManagedSource, IsNotUnregisteredByItsAddress) {
  void* const first = allocate();
  void* const second = allocate();
  for (const auto inside : {std::uint64_t{0}, std::uint64_t{4096}}) {
    void* const address = static_cast<char*>(first) + inside;
    EXPECT_EQ(engine_->unregister_memory(address).error().code(), Code::kInvalidArgument);
    EXPECT_EQ(engine_->unregister_memory_batch({&address, 1}).error().code(),
              Code::kInvalidArgument);
  }
  std::memset(first, 1, kSize);
  EXPECT_TRUE(copies(first, second, kSize));
  EXPECT_EQ(std::memcmp(first, second, kSize), 0);
  EXPECT_TRUE(memory_.free(first, kSize));
  EXPECT_FALSE(copies(second, first, 1)) << "it is not open any more";
}

TEST_F(ManagedSource, WhatAUserRegistersInItComesAndGoesBesideIt) {
  void* const buffer = allocate();
  void* const other = allocate();
  ASSERT_TRUE(engine_->register_memory(buffer, 100));
  EXPECT_TRUE(engine_->unregister_memory(buffer));
  EXPECT_FALSE(engine_->unregister_memory(buffer));
  EXPECT_TRUE(copies(buffer, other, kSize));
}

TEST_F(ManagedSource, ABufferEndsAtItsEnd) {
  void* const first = allocate();
  void* const second = allocate();
  ASSERT_EQ(number(second) - number(first), kSize);
  EXPECT_FALSE(copies(first, static_cast<char*>(second) - 1, 2));
  EXPECT_FALSE(copies(static_cast<char*>(second) - 1, first, 2));
}

TEST_F(ManagedSource, IsNotGivenOutWhileAnAccessOfItIsUnderWay) {
  void* const buffer = allocate();
  auto access =
      registry().admit(number(buffer), kSize, registry().find(number(buffer), kSize)->key);
  ASSERT_TRUE(access);
  EXPECT_TRUE(memory_.free(buffer, kSize));
  EXPECT_FALSE(access->live());
  EXPECT_EQ(memory_.quarantined(), 1u);
  EXPECT_NE(allocate(), buffer);
  *access = memory::Access();
  EXPECT_EQ(allocate(), buffer);
}

TEST_F(ManagedSource, IsNotGivenOutWhileAThreadCopies) {
  void* const buffer = allocate();
  memory::Use use = registry().use(number(buffer), kSize);
  ASSERT_TRUE(use);
  EXPECT_TRUE(memory_.free(buffer, kSize));
  EXPECT_NE(allocate(), buffer);
  use = memory::Use();
  EXPECT_EQ(allocate(), buffer);
}

TEST_F(ManagedSource, AKeyOfBeforeIsRefused) {
  void* const buffer = allocate();
  const memory::RegionKey key = registry().find(number(buffer), 1)->key;
  EXPECT_TRUE(memory_.free(buffer, kSize));
  ASSERT_EQ(allocate(), buffer);
  EXPECT_EQ(registry().admit(number(buffer), 1, key).error().code(), Code::kRegionKeyMismatch);
}

}  // namespace
}  // namespace mooncake::transfer
