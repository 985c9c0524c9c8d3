// Shared memory in both directions: what this process makes for its peers, and what peers have
// made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "mooncake/result.h"

namespace mooncake::os {

// Address space of `size` bytes (a multiple of 4 KiB) that begins on a huge page, so that huge
// pages can be mapped. Nothing is there yet. Null when there is none.
std::byte* reserve_address_space(std::uint64_t size);

// A range of address space and, where it is ours, the memfd behind it. Unmapped and closed in the
// process that mapped it; left out of forked children.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept { *this = std::move(other); }
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }

 protected:
  Mapping(std::byte* data, std::uint64_t size, int fd);
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  int fd_ = -1;
  int process_ = 0;  // that mapped it
};

// A memfd of our own: size sealed from birth, mapped for writing.
class OwnedMapping : public Mapping {
 public:
  enum class PeersMay : std::uint8_t { kWrite, kOnlyRead };
  // `size` is rounded up to whole pages. kOnlyRead: no mapping made later, here or elsewhere, can
  // write. `flags` are further ones of memfd_create. kSystemCall names the step and the size.
  static Result<OwnedMapping> create(const std::string& name, std::uint64_t size, PeersMay peers,
                                     unsigned flags = 0);
  int fd() const { return fd_; }

 private:
  using Mapping::Mapping;
};

// Puts the pages that a peer's memory has into this process's page table, which else costs a fault
// for each at its first use: a third of the time of a copy with huge pages, six times a copy with
// small ones. Pages that are not there yet are left alone. One thread at a time.
class MappingWarmer {
 public:
  // `mapping` begins at the begin of `fd`; both outlive it.
  MappingWarmer(const Mapping& mapping, int fd) : mapping_(mapping), fd_(fd) {}

  // The next 2 MiB that hold pages: half a millisecond for small ones. False at the end.
  bool step();
  // Offset up to which nothing is left to do.
  std::uint64_t warm_to() const { return at_; }

 private:
  const Mapping& mapping_;
  const int fd_;
  std::uint64_t at_ = 0;
};

// A peer's memfd. It can't shrink under us: its seals are looked at before its size, and both
// before it is mapped.
class SharedMapping : public Mapping {
 public:
  enum class Use : std::uint8_t { kRead, kReadWrite };
  // Doesn't take over `fd`. kProtocolError when it is not a sealed memfd of exactly `size` bytes.
  static Result<SharedMapping> map(int fd, std::uint64_t size, Use use);

 private:
  using Mapping::Mapping;
};

}  // namespace mooncake::os
