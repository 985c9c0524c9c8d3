#include "transfer/transports/shm/host_peer.h"

#include <algorithm>
#include <utility>

namespace mooncake::transfer::shm {

namespace {

constexpr base::Duration kLookInterval = std::chrono::milliseconds(1);
constexpr std::size_t kMaxRegions = 1u << 18;  // that are remembered of one peer

}  // namespace

bool HostPeer::Region::has(const Slice& slice) const {
  return slice.remote >= base && slice.remote - base <= length &&
         slice.length <= length - (slice.remote - base);
}

bool MappingAccount::open(std::uint64_t bytes) {
  if (count_.fetch_add(1, std::memory_order_relaxed) >= most_) {
    count_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  budget_->add(base::MemoryUse::kMappings, bytes);
  return true;
}

void MappingAccount::bury(std::uint64_t bytes) {
  budget_->add(base::MemoryUse::kDeadMappings, bytes);
  budget_->give_back(base::MemoryUse::kMappings, bytes);
}

void MappingAccount::close(std::uint64_t bytes, bool buried) {
  budget_->give_back(buried ? base::MemoryUse::kDeadMappings : base::MemoryUse::kMappings, bytes);
  count_.fetch_sub(1, std::memory_order_relaxed);
}

Result<std::shared_ptr<MappedPool>> MappedPool::open(std::shared_ptr<MappingAccount> account,
                                                     os::SharedMapping memory) {
  if (!account->open(memory.size())) return fail(Code::kBusy, "too many mappings of peers' pools");
  return std::shared_ptr<MappedPool>(new MappedPool(std::move(account), std::move(memory)));
}

MappedPool::~MappedPool() { account_->close(size(), buried_.load(std::memory_order_relaxed)); }

void MappedPool::bury() {
  if (!buried_.exchange(true, std::memory_order_relaxed)) account_->bury(size());
}

HostPeer::HostPeer(const base::Clock& clock, CopyCrew& crew, Process process,
                   std::unique_ptr<memory::PeerGate> gate, base::Incarnation guest)
    : clock_(clock),
      crew_(crew),
      process_(std::move(process)),
      gate_(std::move(gate)),
      guest_(guest) {
  auto pages = os::ProcessPages::open(process_.pid);
  // Whose they are is certain when the process lives after they were opened.
  if (pages && !os::has_ended(process_.handle, process_.socket)) pages_.emplace(*std::move(pages));
  if (!pages_) process_vm_refused_ = true;
}

void HostPeer::look_for_end() {
  const std::int64_t now = clock_.now().time_since_epoch().count();
  if (now - looked_at_.load(std::memory_order_relaxed) < kLookInterval.count()) return;
  looked_at_.store(now, std::memory_order_relaxed);
  if (os::has_ended(process_.handle, process_.socket)) end();
}

bool HostPeer::pages_are_there(std::span<const iovec> ranges, Opcode opcode) const {
  const auto use = opcode == Opcode::kWrite ? os::PageUse::kWrite : os::PageUse::kRead;
  return pages_ && pages_->are_there(ranges, use);
}

// Neither handle nor connection end when a process whose forked child holds the connection, too,
// executes another program.
bool HostPeer::is_same_program() const {
  if (os::has_ended(process_.handle, process_.socket)) return false;
  if (!pages_ || !pages_->are_of_process()) return false;
  return left_writes_.load(std::memory_order_relaxed) == 0 || pages_->are_of_program();
}

void HostPeer::note_left(std::span<const Slice> slices) {
  std::lock_guard lock(mutex_);
  for (const Slice& slice : slices)
    left_.push_back(range_of(slice));
  left_writes_.store(left_.size(), std::memory_order_relaxed);
}

void HostPeer::forget_left(std::span<const Slice> slices) {
  std::lock_guard lock(mutex_);
  for (const Slice& slice : slices)
    left_.erase(std::ranges::find(left_, range_of(slice)));
  left_writes_.store(left_.size(), std::memory_order_relaxed);
}

// Copies that are under way hold what they copy from.
void HostPeer::end() {
  alive_.store(false, std::memory_order_release);
  std::map<std::uint64_t, Memory> last;  // unmapped outside the lock
  std::lock_guard lock(mutex_);
  for (const auto& [pool, memory] : pools_) {
    memory->bury();
    gone_.insert(pool);
  }
  last.swap(pools_);
}

void HostPeer::learn(std::span<const DescribedRegion> regions) {
  if (pages_) pages_->forget_mappings();
  std::lock_guard lock(mutex_);
  for (const DescribedRegion& region : regions) {
    const std::uint64_t end = region.base + region.length;
    if (region.pass == memory::Pass::kNone || region.length == 0 || end < region.base) continue;
    if (regions_.size() >= kMaxRegions) regions_.clear();
    regions_.take_youngest(region.base);
    regions_.insert(
        region.base, end,
        {region.base, region.length, region.key, region.pass, region.place, region.words});
    if (region.words != 0) words_.insert(region.words);
    for (const std::uint64_t pool : {region.place.pool, region.words}) {
      if (pool != 0 && !pools_.contains(pool) && !gone_.contains(pool)) wanted_.insert(pool);
    }
  }
}

bool HostPeer::holds_words(std::uint64_t pool) const {
  std::lock_guard lock(mutex_);
  return words_.contains(pool);
}

std::vector<std::uint64_t> HostPeer::pools_wanted() {
  std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> wanted(wanted_.begin(), wanted_.end());
  wanted_.clear();
  return wanted;
}

void HostPeer::add_pool(std::uint64_t pool, Memory memory) {
  std::lock_guard lock(mutex_);
  if (alive() && !gone_.contains(pool)) pools_.try_emplace(pool, std::move(memory));
}

void HostPeer::drop_pool(std::uint64_t pool) {
  Memory last;  // unmapped outside the lock
  std::lock_guard lock(mutex_);
  gone_.insert(pool);
  wanted_.erase(pool);
  words_.erase(pool);
  if (const auto it = pools_.find(pool); it != pools_.end()) {
    last = std::move(it->second);
    last->bury();
    pools_.erase(it);
  }
}

AddressRange HostPeer::forget(memory::Pass pass, std::uint64_t address) {
  std::lock_guard lock(mutex_);
  const Region* const region = regions_.covering(address, address + 1);
  if (!region || region->pass != pass) return {};
  const AddressRange range{region->base, region->base + region->length};
  regions_.take_youngest(region->base);
  return range;
}

const HostPeer::Word* HostPeer::word_of(const Region& region, const Slice& slice,
                                        std::vector<Memory>& held) const {
  const auto words = pools_.find(region.words);
  if (words == pools_.end() || slice.extent < region.base || slice.extent > slice.remote ||
      (slice.extent - region.base) % memory::kExtentUnit != 0) {
    return nullptr;
  }
  const std::uint64_t unit = (slice.extent - region.base) / memory::kExtentUnit;
  if (unit >= words->second->size() / sizeof(Word)) return nullptr;
  if (std::ranges::find(held, words->second) == held.end()) held.push_back(words->second);
  return reinterpret_cast<const Word*>(words->second->data()) + unit;
}

const HostPeer::Memory* HostPeer::pool_of(const Region& region) const {
  const auto pool = region.place.pool ? pools_.find(region.place.pool) : pools_.end();
  return pool == pools_.end() ? nullptr : &pool->second;
}

std::byte* HostPeer::address_in(const MappedPool& pool, const Region& region, const Slice& slice) {
  const std::uint64_t offset = region.place.offset + (slice.remote - region.base);
  const bool fits = offset >= region.place.offset && offset <= pool.size() &&
                    slice.length <= pool.size() - offset;
  return fits ? pool.data() + offset : nullptr;
}

Result<HostPeer::Place> HostPeer::place_of(const Slice& slice) {
  std::lock_guard lock(mutex_);
  const Region* const region = regions_.covering(slice.remote, slice.remote + slice.length);
  if (region && !gate_->admits(region->pass)) {
    regions_.take_youngest(region->base);
    return fail(Code::kRegionKeyMismatch, "the region has been taken back");
  }
  const Memory* const pool = region && region->is_of_kind(slice) ? pool_of(*region) : nullptr;
  const std::byte* const bytes = pool ? address_in(**pool, *region, slice) : nullptr;
  if (!bytes) return fail(Code::kNotSupported, "it lies in no memory that is mapped here");
  return Place{*pool, bytes};
}

HostPeer::Target HostPeer::target_of(const Region& region, const Slice& slice,
                                     std::vector<Memory>& held) const {
  if (!region.is_of_kind(slice) || !region.opens_to(slice)) return {};
  Target target{region.pass, nullptr, nullptr};
  const bool by_generation = slice.guard != 0 && slice.opcode == Opcode::kRead;
  if (by_generation && !(target.word = word_of(region, slice, held))) return {};
  const Memory* const pool = pool_of(region);
  if (!pool) return target;
  const Memory& memory = *pool;
  std::byte* const mapped = address_in(*memory, region, slice);
  if (!mapped || words_.contains(region.place.pool)) return {};  // words are only to be read
  // A fault for each page costs more than the kernel's copy.
  const auto end = static_cast<std::uint64_t>(mapped - memory->data()) + slice.length;
  if (!memory->is_warm(end) && reads_processes()) return target;
  target.mapped = mapped;
  if (std::ranges::find(held, memory) == held.end()) held.push_back(memory);
  return target;
}

void HostPeer::resolve(std::span<const Slice> slices, const Terms& terms, std::span<Target> targets,
                       std::vector<Memory>& held) {
  std::lock_guard lock(mutex_);
  const Region* region = nullptr;  // most slices of a call lie in one
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const Slice& slice = slices[i];
    targets[i] = {};
    if (!is_wanted(slice, terms)) continue;
    const auto meets = [&slice](const AddressRange& left) { return left.meets(range_of(slice)); };
    if (is_plain_write(slice) && std::ranges::any_of(left_, meets)) continue;
    if (!region || !region->has(slice)) {
      region = regions_.covering(slice.remote, slice.remote + slice.length);
    }
    if (region) targets[i] = target_of(*region, slice, held);
  }
}

Code HostPeer::why_left(const Slice& slice) {
  std::lock_guard lock(mutex_);
  const Region* const region =
      is_for_copy(slice) ? regions_.covering(slice.remote, slice.remote + slice.length) : nullptr;
  const bool other_key = region && region->is_of_kind(slice) && !region->opens_to(slice);
  return other_key ? Code::kRegionKeyMismatch : Code::kTransferFailed;
}

bool HostPeer::needs_patience(std::span<const Slice> slices, memory::Pass write_pass) {
  if (!reads_processes()) return false;
  const Terms terms{{}, write_pass};
  std::vector<Memory> held;
  return std::ranges::any_of(slices, [&](const Slice& slice) {
    Target target{};
    resolve({&slice, 1}, terms, {&target, 1}, held);
    if (target.pass == memory::Pass::kNone || target.mapped) return false;
    return slice.opcode == Opcode::kRead || !pages_->may_be_file(slice.remote, slice.length);
  });
}

std::vector<AskedRange> HostPeer::unknown(std::span<const Slice> slices) {
  std::vector<AskedRange> ranges;
  std::lock_guard lock(mutex_);
  for (const Slice& slice : slices) {
    if (!is_for_copy(slice)) continue;
    const std::uint64_t end = slice.remote + slice.length;
    const Region* region = regions_.covering(slice.remote, end);
    // One that has been taken back may hide another that is there now.
    while (region && !gate_->admits(region->pass)) {
      regions_.take_youngest(region->base);
      region = regions_.covering(slice.remote, end);
    }
    if (region && region->is_of_kind(slice) && region->opens_to(slice)) continue;
    ranges.push_back({slice.remote, slice.length, slice.guard != 0});
  }
  return ranges;
}

}  // namespace mooncake::transfer::shm
