// Registry: which ranges of this process peers may touch, and with what key. Every access of a peer
// is checked here at the moment of use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "memory/extent_table.h"
#include "mooncake/result.h"

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
  // Takes back one registration that begins at `base`, the youngest first; kAddressNotRegistered
  // when there is none. From here on its accesses are not live; `accesses` of the returned handle
  // tells how many have not ended yet.
  class Removed {
   public:
    explicit Removed(std::shared_ptr<RegistrationState> state) : state_(std::move(state)) {}
    std::size_t accesses() const;

   private:
    std::shared_ptr<RegistrationState> state_;
  };
  Result<Removed> remove(std::uint64_t base);

  // Admits an access of a peer to [base, base + length) under this key. kAddressNotRegistered, or
  // kRegionKeyMismatch when the range is registered under another key by now.
  Result<Access> admit(std::uint64_t base, std::uint64_t length, RegionKey key) const;
  // Any region that covers the range: for descriptors, and for accesses from this process.
  Result<Region> find(std::uint64_t base, std::uint64_t length) const;
  bool covers(std::uint64_t base, std::uint64_t length) const;

  std::size_t size() const;
  // Rises with every change; a descriptor of an older generation may be out of date.
  std::uint64_t generation() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mooncake::memory
