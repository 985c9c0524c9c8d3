// Registry: which ranges of this process peers may touch, and with what key. Every access of a peer
// is checked here at the moment of use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "memory/extent_table.h"
#include "memory/gate.h"
#include "memory/pool.h"
#include "mooncake/result.h"
#include "os/local_socket.h"

namespace mooncake::memory {

// Random, one for each registration; an access that doesn't present it is refused.
enum class RegionKey : std::uint64_t {};

enum class Permission : std::uint8_t { kReadWrite, kReadOnly };

struct RegistrationState;

// One live registration. `extents` makes it guarded: then every access must name a generation or
// grant.
struct Region {
  std::uint64_t base = 0;
  std::uint64_t length = 0;
  RegionKey key{};
  Permission permission = Permission::kReadWrite;
  std::string location = "*";
  std::shared_ptr<ExtentTable> extents;
  Pass pass = Pass::kNone;  // for copiers of this host; kNone: none may come that way
  std::uint64_t words = 0;  // of guarded memory: number of the pool where its extents' words are
  bool is_own = false;      // see Registry::add_own()
};

// Memory of a pool, or of the words of guarded memory, which processes of this host may map.
struct SharedPlace {
  std::uint64_t pool = 0;  // number of the pool, never used again; 0 = in none
  std::uint64_t offset = 0;
};

// One admitted access. Holds no memory alive: it says whether the access is still meant, and lets
// unregistration wait for its end. Ask live() before each copy, on the executor's thread.
class Access {
 public:
  Access() = default;
  explicit Access(std::shared_ptr<RegistrationState> state);
  Access(Access&&) noexcept = default;
  Access& operator=(Access&& other) noexcept;
  ~Access();  // ends the access

  // False once the registration has been taken back: the rest goes to a sink, or comes out as
  // zeros.
  bool live() const;
  const Region& region() const;

 private:
  std::shared_ptr<RegistrationState> state_;
};

// One copy in registered memory by a thread of this process: as long as it lasts, the range is not
// given back to its owner.
class Use {
 public:
  Use() = default;
  explicit Use(std::shared_ptr<RegistrationState> state);
  Use(Use&&) noexcept = default;
  Use& operator=(Use&& other) noexcept;
  ~Use();  // ends the copy

  explicit operator bool() const { return state_ != nullptr; }
  // False once the registration has been taken back: then the copy should end soon.
  bool live() const;
  const Region& region() const;

 private:
  std::shared_ptr<RegistrationState> state_;
};

// Registering an equal or overlapping range again succeeds and is counted: a range is accessible
// while at least one registration covers it. Only guarded memory is exclusive: no other
// registration may overlap it. O(log n). Thread-safe.
class Registry {
 public:
  // Keys come from `random`; by default from the kernel.
  explicit Registry(std::function<std::uint64_t()> random = {});
  ~Registry();

  // kInvalidArgument when empty, wrapping around, not mapped (checked against the kernel's view),
  // or in conflict with guarded memory.
  Result<Region> add(std::uint64_t base, std::uint64_t length, std::string_view location = "*",
                     Permission permission = Permission::kReadWrite,
                     std::shared_ptr<ExtentTable> extents = nullptr);
  // A buffer in a pool of the engine's own, which is mapped and writable. Only remove_own() takes
  // it back: what a user registers there himself comes and goes beside it.
  Result<Region> add_own(std::uint64_t base, std::uint64_t length);
  struct Range {
    std::uint64_t base = 0;
    std::uint64_t length = 0;
  };
  // Registers all of these plain ranges, or, with the first one's error, none: nobody ever sees a
  // part of them.
  Result<void> add_all(std::span<const Range> ranges, std::string_view location = "*");
  // Takes back one registration that begins at `base`, the youngest first; kAddressNotRegistered
  // when there is none, kInvalidArgument when there is none and the memory is the engine's own.
  // From here on its accesses are not live; the returned handle tells whether they have ended.
  class Removed {
   public:
    Removed(std::shared_ptr<RegistrationState> state, std::shared_ptr<Gate> gate, bool in_pool)
        : state_(std::move(state)), gate_(std::move(gate)), in_pool_(in_pool) {}
    // Accesses of peers through this process that have not ended. They are not live any more: what
    // asks before each copy, on the executor's thread, does no harm there.
    std::size_t accesses() const;
    // Whether nobody copies any more under this registration: no other process, no thread of this
    // one.
    bool is_clear() const;
    // Call once it is clear: the pass may be given to another registration.
    void retire();
    std::uint64_t base() const;
    std::uint64_t length() const;
    // Whether it lay in a pool that was shared then.
    bool in_pool() const { return in_pool_; }

   private:
    std::shared_ptr<RegistrationState> state_;
    std::shared_ptr<Gate> gate_;
    bool in_pool_ = false;
  };
  Result<Removed> remove(std::uint64_t base);
  Result<Removed> remove_own(std::uint64_t base);

  // Admits an access of a peer to [base, base + length) under this key. kAddressNotRegistered, or
  // kRegionKeyMismatch when the range is registered under another key by now.
  Result<Access> admit(std::uint64_t base, std::uint64_t length, RegionKey key) const;
  // Plain memory that has this range, for a copy on any thread; none when there is none.
  Use use(std::uint64_t base, std::uint64_t length) const;
  // Registrations from here on get passes of this gate.
  void use_gate(std::shared_ptr<Gate> gate);

  // Pools whose memory processes of this host may map, for as long as they are shared.
  std::uint64_t share_pool(const Pool& pool);
  void unshare_pool(const Pool& pool);
  // Called with the number of each pool that is shared no more, on the thread that says so.
  void on_unshared(std::function<void(std::uint64_t)> callback);
  SharedPlace place_of(std::uint64_t base, std::uint64_t length) const;
  struct PoolMemory {
    os::UniqueFd fd;  // a duplicate
    std::uint64_t size = 0;
  };
  Result<PoolMemory> pool_memory(std::uint64_t pool) const;

  // Any region that covers the range: for descriptors, and for accesses from this process.
  Result<Region> find(std::uint64_t base, std::uint64_t length) const;
  // `written`: one that may be written.
  bool covers(std::uint64_t base, std::uint64_t length, bool written = false) const;
  // Where the oldest live plain registration begins; 0 when there is none. O(1).
  std::uint64_t first_address() const;

  std::size_t size() const;
  // Rises with every change; a descriptor of an older generation may be out of date.
  std::uint64_t generation() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mooncake::memory
