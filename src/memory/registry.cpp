#include "memory/registry.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/random.h"
#include "memory/interval_index.h"
#include "os/user_memory.h"

namespace mooncake::memory {

struct RegistrationState {
  Region region;
  std::atomic<bool> live{true};
  std::atomic<std::size_t> accesses{0};
  std::atomic<std::size_t> uses{0};
  std::list<const RegistrationState*>::iterator by_age;  // of a live plain one
};

namespace {

using Registration = std::shared_ptr<RegistrationState>;

// From the kernel, some at a time: one call costs more than the rest of a registration.
class KernelRandom {
 public:
  std::uint64_t operator()() {
    if (next_ == values_.size()) {
      base::secure_random(std::as_writable_bytes(std::span(values_)));
      next_ = 0;
    }
    return std::exchange(values_[next_++], 0);
  }

 private:
  std::array<std::uint64_t, 32> values_;
  std::size_t next_ = values_.size();
};

// Asks the kernel's list of mappings, whose length the cost depends on, not on that of the range:
// for MS_ASYNC it does nothing but look for gaps.
bool is_mapped(std::uint64_t base, std::uint64_t length) {
  static const auto kPage = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t first = base / kPage * kPage;
  return ::msync(reinterpret_cast<void*>(first), length + (base - first), MS_ASYNC) == 0;
}

std::string describe(std::uint64_t base, std::uint64_t length) {
  return fmt::format("{} bytes at {:#x}", length, base);
}

Result<Registration> make_registration(std::uint64_t base, std::uint64_t length,
                                       std::string_view location, Permission permission) {
  if (length == 0 || base + length < base) {
    return fail(Code::kInvalidArgument, "register " + describe(base, length) + ": not a range");
  }
  if (!is_mapped(base, length)) {
    return fail(Code::kInvalidArgument, "register " + describe(base, length) + ": not mapped");
  }
  auto registration = std::make_shared<RegistrationState>();
  registration->region.base = base;
  registration->region.length = length;
  registration->region.location = location;
  // Memory that this process itself may not write (a file mapped for reading) is nobody's to write.
  const bool writable = os::is_user_writable(reinterpret_cast<const void*>(base));
  registration->region.permission = writable ? permission : Permission::kReadOnly;
  return registration;
}

}  // namespace

Access::Access(std::shared_ptr<RegistrationState> state) : state_(std::move(state)) {
  state_->accesses.fetch_add(1, std::memory_order_relaxed);
}
Access& Access::operator=(Access&& other) noexcept {
  Access ended(std::move(*this));
  state_ = std::move(other.state_);
  return *this;
}
Access::~Access() {
  if (state_) state_->accesses.fetch_sub(1, std::memory_order_release);
}
bool Access::live() const { return state_ && state_->live.load(std::memory_order_acquire); }
const Region& Access::region() const { return state_->region; }

Use::Use(std::shared_ptr<RegistrationState> state) : state_(std::move(state)) {
  state_->uses.fetch_add(1, std::memory_order_relaxed);
}
Use& Use::operator=(Use&& other) noexcept {
  Use ended(std::move(*this));
  state_ = std::move(other.state_);
  return *this;
}
Use::~Use() {
  if (state_) state_->uses.fetch_sub(1, std::memory_order_release);
}
bool Use::live() const { return state_->live.load(std::memory_order_acquire); }
const Region& Use::region() const { return state_->region; }

std::size_t Registry::Removed::accesses() const {
  return state_->accesses.load(std::memory_order_acquire);
}
bool Registry::Removed::is_clear() const {
  if (state_->uses.load(std::memory_order_acquire) != 0) return false;
  return !gate_ || gate_->is_clear(state_->region.pass);
}
void Registry::Removed::retire() {
  if (gate_) std::exchange(gate_, nullptr)->retire(state_->region.pass);
}
std::uint64_t Registry::Removed::base() const { return state_->region.base; }
std::uint64_t Registry::Removed::length() const { return state_->region.length; }

struct Registry::State {
  mutable std::mutex mutex;
  std::function<std::uint64_t()> random;  // guarded by mutex, as all below
  std::unordered_map<RegionKey, Registration> by_key;
  IntervalIndex<Registration> plain;
  IntervalIndex<Registration> guarded;
  std::list<const RegistrationState*> plain_by_age;  // oldest first
  std::uint64_t generation = 0;
  std::shared_ptr<Gate> gate;

  struct SharedPool {
    std::uint64_t number = 0, size = 0;
    int fd = -1;
  };
  std::map<std::uint64_t, SharedPool> pools;                     // by first address
  std::unordered_map<std::uint64_t, std::uint64_t> pool_places;  // number -> first address
  std::uint64_t next_pool = 1;
  std::function<void(std::uint64_t)> on_unshared;

  SharedPlace place_of(std::uint64_t base, std::uint64_t length) const {
    auto it = pools.upper_bound(base);
    if (it == pools.begin()) return {};
    const auto& [begin, pool] = *--it;
    if (base - begin > pool.size || length > pool.size - (base - begin)) return {};
    return {pool.number, base - begin};
  }
  template <typename Memory>
  std::uint64_t share(const Memory& memory) {
    const std::uint64_t number = next_pool++;
    const auto begin = reinterpret_cast<std::uint64_t>(memory.data());
    pools[begin] = {number, memory.size(), memory.fd()};
    pool_places[number] = begin;
    return number;
  }
  // Zero when it was not shared; else the number of which peers are to be told.
  std::uint64_t unshare(std::uint64_t begin) {
    const auto it = pools.find(begin);
    if (it == pools.end()) return 0;
    const std::uint64_t number = it->second.number;
    pools.erase(it);
    pool_places.erase(number);
    return number;
  }
  // Of one that is in no index any more.
  Removed end(const Registration& taken);
  RegionKey new_key() {
    for (;;) {
      const auto key = static_cast<RegionKey>(random());
      if (key != RegionKey{} && !by_key.contains(key)) return key;
    }
  }
  const Registration* covering(std::uint64_t base, std::uint64_t end) const {
    const Registration* const found = plain.covering(base, end);
    return found ? found : guarded.covering(base, end);
  }
  Result<void> check_conflict(const Region& region) const {
    const std::uint64_t end = region.base + region.length;
    const bool exclusive = region.extents != nullptr;
    if (!guarded.overlapping(region.base, end) &&
        !(exclusive && plain.overlapping(region.base, end))) {
      return {};
    }
    return fail(Code::kInvalidArgument,
                "register " + describe(region.base, region.length) + ": overlaps guarded memory");
  }
  Error not_registered(std::uint64_t base) const {
    if (place_of(base, 1).pool == 0) {
      return Error(Code::kAddressNotRegistered,
                   fmt::format("no registration begins at {:#x}", base));
    }
    return Error(Code::kInvalidArgument,
                 fmt::format("{:#x} lies in managed memory of this engine, which is given back by "
                             "free_managed_buffer() (Python) or free_memory() (C++)",
                             base));
  }
  const Region& insert(const Registration& registration) {
    Region& region = registration->region;
    region.key = new_key();
    if (gate) region.pass = gate->open();
    by_key.emplace(region.key, registration);
    const bool is_plain = region.extents == nullptr;
    if (!is_plain) region.words = share(region.extents->words_memory());
    (is_plain ? plain : guarded).insert(region.base, region.base + region.length, registration);
    if (is_plain) {
      registration->by_age = plain_by_age.insert(plain_by_age.end(), registration.get());
    }
    ++generation;
    return region;
  }
};

Registry::Registry(std::function<std::uint64_t()> random) : state_(std::make_unique<State>()) {
  state_->random = random ? std::move(random) : KernelRandom();
}
Registry::~Registry() = default;

Result<Region> Registry::add(std::uint64_t base, std::uint64_t length, std::string_view location,
                             Permission permission, std::shared_ptr<ExtentTable> extents) {
  MC_TRY(const Registration registration, make_registration(base, length, location, permission));
  registration->region.extents = std::move(extents);
  std::lock_guard lock(state_->mutex);
  MC_CHECK(state_->check_conflict(registration->region));
  return state_->insert(registration);
}

Result<Region> Registry::add_own(std::uint64_t base, std::uint64_t length) {
  auto registration = std::make_shared<RegistrationState>();
  registration->region.base = base;
  registration->region.length = length;
  registration->region.is_own = true;
  std::lock_guard lock(state_->mutex);
  MC_CHECK(state_->check_conflict(registration->region));
  return state_->insert(registration);
}

Result<void> Registry::add_all(std::span<const Range> ranges, std::string_view location) {
  std::vector<Registration> registrations;
  registrations.reserve(ranges.size());
  for (const Range& range : ranges) {
    MC_TRY(Registration registration,
           make_registration(range.base, range.length, location, Permission::kReadWrite));
    registrations.push_back(std::move(registration));
  }
  std::lock_guard lock(state_->mutex);
  for (const Registration& registration : registrations) {
    MC_CHECK(state_->check_conflict(registration->region));
  }
  for (const Registration& registration : registrations)
    state_->insert(registration);
  return {};
}

Registry::Removed Registry::State::end(const Registration& taken) {
  by_key.erase(taken->region.key);
  taken->live.store(false, std::memory_order_release);
  if (gate) gate->raise(taken->region.pass);
  ++generation;
  const bool in_pool = place_of(taken->region.base, taken->region.length).pool != 0;
  return {taken, gate, in_pool};
}

Result<Registry::Removed> Registry::remove_own(std::uint64_t base) {
  std::lock_guard lock(state_->mutex);
  const auto taken = state_->plain.take_youngest(
      base, [](const Registration& registration) { return registration->region.is_own; });
  if (!taken) {
    return fail(Code::kAddressNotRegistered,
                fmt::format("no memory of ours begins at {:#x}", base));
  }
  state_->plain_by_age.erase((*taken)->by_age);
  return state_->end(*taken);
}

Result<Registry::Removed> Registry::remove(std::uint64_t base) {
  std::unique_lock lock(state_->mutex);
  auto taken = state_->plain.take_youngest(
      base, [](const Registration& registration) { return !registration->region.is_own; });
  if (taken) {
    state_->plain_by_age.erase((*taken)->by_age);
  } else {
    taken = state_->guarded.take_youngest(base);
  }
  if (!taken) return fail(state_->not_registered(base));
  const Region& region = (*taken)->region;
  Removed removed = state_->end(*taken);
  if (region.words != 0) {
    const auto& words = region.extents->words_memory();
    state_->unshare(reinterpret_cast<std::uint64_t>(words.data()));
    const auto tell = state_->on_unshared;
    lock.unlock();
    if (tell) tell(region.words);
  }
  return removed;
}

void Registry::use_gate(std::shared_ptr<Gate> gate) {
  std::lock_guard lock(state_->mutex);
  state_->gate = std::move(gate);
}

std::uint64_t Registry::share_pool(const Pool& pool) {
  std::lock_guard lock(state_->mutex);
  return state_->share(pool);
}

void Registry::unshare_pool(const Pool& pool) {
  std::unique_lock lock(state_->mutex);
  const std::uint64_t number = state_->unshare(reinterpret_cast<std::uint64_t>(pool.data()));
  const auto tell = number != 0 ? state_->on_unshared : nullptr;
  lock.unlock();
  if (tell) tell(number);
}

void Registry::on_unshared(std::function<void(std::uint64_t)> callback) {
  std::lock_guard lock(state_->mutex);
  state_->on_unshared = std::move(callback);
}

SharedPlace Registry::place_of(std::uint64_t base, std::uint64_t length) const {
  std::lock_guard lock(state_->mutex);
  return state_->place_of(base, length);
}

Result<Registry::PoolMemory> Registry::pool_memory(std::uint64_t pool) const {
  std::lock_guard lock(state_->mutex);
  const auto place = state_->pool_places.find(pool);
  if (place == state_->pool_places.end()) {
    return fail(Code::kAddressNotRegistered, fmt::format("no pool {} is shared", pool));
  }
  const State::SharedPool& shared = state_->pools.at(place->second);
  PoolMemory memory;
  memory.fd = os::UniqueFd(::fcntl(shared.fd, F_DUPFD_CLOEXEC, 0));
  memory.size = shared.size;
  if (memory.fd) return memory;
  return fail(Code::kSystemCall, fmt::format("dup: {}", std::strerror(errno)));
}

Result<Access> Registry::admit(std::uint64_t base, std::uint64_t length, RegionKey key) const {
  if (length == 0 || base + length < base) return fail(Code::kAddressNotRegistered);
  std::lock_guard lock(state_->mutex);
  const auto it = state_->by_key.find(key);
  if (it != state_->by_key.end()) {
    const Region& region = it->second->region;
    if (base >= region.base && base + length <= region.base + region.length) {
      return Access(it->second);
    }
  }
  return fail(state_->covering(base, base + length) ? Code::kRegionKeyMismatch
                                                    : Code::kAddressNotRegistered);
}

// Under the mutex it comes before a removal, which then waits for it, or finds nothing.
Use Registry::use(std::uint64_t base, std::uint64_t length) const {
  if (length == 0 || base + length < base) return {};
  std::lock_guard lock(state_->mutex);
  const Registration* const found = state_->plain.covering(base, base + length);
  return found ? Use(*found) : Use();
}

Result<Region> Registry::find(std::uint64_t base, std::uint64_t length) const {
  if (length != 0 && base + length > base) {
    std::lock_guard lock(state_->mutex);
    if (const auto* found = state_->covering(base, base + length)) return (*found)->region;
  }
  return fail(Code::kAddressNotRegistered, describe(base, length));
}

bool Registry::covers(std::uint64_t base, std::uint64_t length, bool written) const {
  if (length == 0 || base + length < base) return false;
  std::lock_guard lock(state_->mutex);
  const auto* const found = state_->covering(base, base + length);
  if (found == nullptr) return false;
  return !written || (*found)->region.permission == Permission::kReadWrite;
}

std::uint64_t Registry::first_address() const {
  std::lock_guard lock(state_->mutex);
  return state_->plain_by_age.empty() ? 0 : state_->plain_by_age.front()->region.base;
}

std::size_t Registry::size() const {
  std::lock_guard lock(state_->mutex);
  return state_->by_key.size();
}

std::uint64_t Registry::generation() const {
  std::lock_guard lock(state_->mutex);
  return state_->generation;
}

}  // namespace mooncake::memory
