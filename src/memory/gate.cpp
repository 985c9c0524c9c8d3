#include "memory/gate.h"

#include <algorithm>
#include <bit>

#include "memory/copy.h"

namespace mooncake::memory {

namespace {

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

constexpr std::uint64_t kTableMagic = 0x313045544147434d;  // "MCGATE01"
constexpr std::uint64_t kSlotsMagic = 0x3130544f4c53434d;  // "MCSLOT01"
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kRegistrations = 1u << 18;
constexpr int kGenerationBits = 40;
constexpr std::uint64_t kMaxGeneration = (std::uint64_t{1} << kGenerationBits) - 1;
constexpr std::uint32_t kBlocks = 63;
static_assert(kRegistrations <= 1u << (64 - kGenerationBits));

constexpr std::uint64_t word_of(Pass pass) { return static_cast<std::uint64_t>(pass); }
constexpr std::uint32_t index_of(Pass pass) {
  return static_cast<std::uint32_t>(word_of(pass) >> kGenerationBits);
}
constexpr std::uint64_t generation_of(Pass pass) { return word_of(pass) & kMaxGeneration; }
constexpr Pass pass_of(std::uint32_t index, std::uint64_t generation) {
  return static_cast<Pass>(std::uint64_t{index} << kGenerationBits | generation);
}

}  // namespace

// Written by the owner only.
struct GateTable {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t count;
  std::atomic<std::uint32_t> closing;
  std::uint32_t reserved[11];
  Word generations[kRegistrations];  // that may enter now; 0 = never given out
};
static_assert(offsetof(GateTable, generations) == 64);

// Written by one peer process, read by the owner.
struct SlotPage {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t blocks;
  std::uint64_t reserved[6];
  Word slots[kBlocks][PeerGate::Slots::kMany];  // the pass under which somebody is inside; 0 = none
};
static_assert(sizeof(SlotPage) == 4096);

Result<std::unique_ptr<Gate>> Gate::create() {
  MC_TRY(os::OwnedMapping table, os::OwnedMapping::create("mooncake-gate", sizeof(GateTable),
                                                          os::OwnedMapping::PeersMay::kOnlyRead));
  return std::unique_ptr<Gate>(new Gate(std::move(table)));
}

// Fresh memory is zero, so that only the header has to be written.
Gate::Gate(os::OwnedMapping table)
    : table_memory_(std::move(table)), table_(reinterpret_cast<GateTable*>(table_memory_.data())) {
  table_->magic = kTableMagic;
  table_->version = kVersion;
  table_->count = kRegistrations;
}

Gate::~Gate() = default;

Pass Gate::open() {
  std::lock_guard lock(mutex_);
  std::uint32_t index = fresh_;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (fresh_ == kRegistrations) {
    return Pass::kNone;
  } else {
    ++fresh_;
  }
  // Raised when it was retired; the first life begins at 1.
  Word& generation = table_->generations[index];
  const std::uint64_t life = std::max<std::uint64_t>(1, generation.load(std::memory_order_relaxed));
  generation.store(life, std::memory_order_release);
  return pass_of(index, life);
}

void Gate::raise(Pass pass) {
  if (pass == Pass::kNone) return;
  table_->generations[index_of(pass)].store(generation_of(pass) + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool Gate::is_clear(Pass pass) const {
  if (pass == Pass::kNone) return true;
  std::lock_guard lock(mutex_);
  for (const auto& peer : peers_) {
    const auto* const page = reinterpret_cast<const SlotPage*>(peer->memory_.data());
    for (const auto& block : page->slots) {
      for (const Word& slot : block) {
        if (slot.load(std::memory_order_acquire) == word_of(pass)) return false;
      }
    }
  }
  return true;
}

void Gate::retire(Pass pass) {
  if (pass == Pass::kNone || generation_of(pass) + 1 == kMaxGeneration) return;
  std::lock_guard lock(mutex_);
  free_.push_back(index_of(pass));
}

void Gate::close() {
  table_->closing.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool Gate::is_clear() const {
  std::lock_guard lock(mutex_);
  for (const auto& peer : peers_) {
    const auto* const page = reinterpret_cast<const SlotPage*>(peer->memory_.data());
    for (const auto& block : page->slots) {
      for (const Word& slot : block) {
        if (slot.load(std::memory_order_acquire) != 0) return false;
      }
    }
  }
  return true;
}

Result<std::shared_ptr<Gate::Peer>> Gate::add_peer() {
  MC_TRY(os::OwnedMapping memory, os::OwnedMapping::create("mooncake-slots", sizeof(SlotPage),
                                                           os::OwnedMapping::PeersMay::kWrite));
  auto* const page = reinterpret_cast<SlotPage*>(memory.data());
  page->magic = kSlotsMagic;
  page->version = kVersion;
  page->blocks = kBlocks;
  std::shared_ptr<Peer> peer(new Peer(std::move(memory)));
  std::lock_guard lock(mutex_);
  peers_.push_back(peer);
  return peer;
}

void Gate::remove_peer(const std::shared_ptr<Peer>& peer) {
  std::lock_guard lock(mutex_);
  std::erase(peers_, peer);
}

std::size_t Gate::peers() const {
  std::lock_guard lock(mutex_);
  return peers_.size();
}

Result<std::unique_ptr<PeerGate>> PeerGate::map(int table_fd, std::uint64_t table_size,
                                                int slots_fd, std::uint64_t slots_size) {
  if (table_size < sizeof(GateTable) || slots_size != sizeof(SlotPage)) {
    return fail(Code::kProtocolError, "a peer's gate has another size than its version says");
  }
  MC_TRY(os::SharedMapping table,
         os::SharedMapping::map(table_fd, table_size, os::SharedMapping::Use::kRead));
  MC_TRY(os::SharedMapping slots,
         os::SharedMapping::map(slots_fd, slots_size, os::SharedMapping::Use::kReadWrite));
  const auto* const gate = reinterpret_cast<const GateTable*>(table.data());
  const auto* const page = reinterpret_cast<const SlotPage*>(slots.data());
  if (gate->magic != kTableMagic || gate->version != kVersion || gate->count != kRegistrations ||
      page->magic != kSlotsMagic || page->version != kVersion || page->blocks != kBlocks) {
    return fail(Code::kVersionMismatch, "a peer's gate is of another version than ours");
  }
  return std::unique_ptr<PeerGate>(new PeerGate(std::move(table), std::move(slots)));
}

PeerGate::PeerGate(os::SharedMapping table, os::SharedMapping slots)
    : table_memory_(std::move(table)),
      slots_memory_(std::move(slots)),
      table_(reinterpret_cast<const GateTable*>(table_memory_.data())),
      slots_(reinterpret_cast<SlotPage*>(slots_memory_.data())) {}

PeerGate::Slots PeerGate::claim() {
  std::uint64_t taken = taken_.load(std::memory_order_relaxed);
  for (;;) {
    const int block = std::countr_one(taken);
    if (block >= static_cast<int>(kBlocks)) return {};
    if (taken_.compare_exchange_weak(taken, taken | std::uint64_t{1} << block,
                                     std::memory_order_acquire)) {
      return Slots(this, static_cast<std::uint32_t>(block));
    }
  }
}

PeerGate::Slots::~Slots() {
  if (gate_ == nullptr) return;
  if (used_ != 0) leave();
  gate_->taken_.fetch_and(~(std::uint64_t{1} << at_), std::memory_order_release);
}

bool PeerGate::admits(Pass pass) const {
  if (pass == Pass::kNone || index_of(pass) >= kRegistrations) return false;
  return table_->generations[index_of(pass)].load(std::memory_order_acquire) ==
             generation_of(pass) &&
         table_->closing.load(std::memory_order_acquire) == 0;
}

bool PeerGate::Slots::enter(Pass pass) {
  if (pass == Pass::kNone || index_of(pass) >= kRegistrations) return false;
  Word& slot = gate_->slots_->slots[at_][used_];
  slot.store(word_of(pass), std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!gate_->admits(pass)) {
    slot.store(0, std::memory_order_release);
    return false;
  }
  ++used_;
  return true;
}

void PeerGate::Slots::leave() {
  store_fence();
  auto& block = gate_->slots_->slots[at_];
  for (; used_ > 0; --used_)
    block[used_ - 1].store(0, std::memory_order_release);
}

}  // namespace mooncake::memory
