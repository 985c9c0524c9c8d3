// For fuzzers: a channel whose incoming bytes are the input, and the memory that it made us take.
#pragma once

#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net/channel.h"
#include "net/network.h"
#include "os/disk.h"
#include "os/env.h"
#include "os/sim_executor.h"

namespace mooncake::net {

// Reads `prefix` as it is, then the input; when `mend` is set, headers of the input get the right
// magic, version and checksum first, so that what is behind these checks is reached. Ends like a
// peer that left.
class ByteChannel final : public Channel {
 public:
  ByteChannel(os::Executor& executor, std::vector<std::byte> prefix,
              std::span<const std::byte> input, bool mend)
      : executor_(executor), prefix_size_(prefix.size()), bytes_(std::move(prefix)), mend_(mend) {
    bytes_.insert(bytes_.end(), input.begin(), input.end());
  }

  Result<void> send(FrameHeader, base::ConstBuffers) override {
    if (closed_) return fail(*closed_);
    return {};
  }
  Task<Result<void>> send_from(FrameHeader, PayloadSource& source, std::size_t size) override {
    while (size > 0 && !closed_ && source.live())
      size -= source.next(size).size();
    co_await executor_.yield();
    if (closed_) co_return fail(*closed_);
    co_return Result<void>();
  }
  Backlog backlog() const override { return {}; }
  Task<Result<FrameHeader>> receive() override {
    co_await executor_.yield();
    if (closed_) co_return fail(*closed_);
    if (bytes_.size() - at_ < kFrameHeaderSize) co_return fail(end());
    const bool mend = mend_ && at_ >= prefix_size_;
    FrameBytes bytes;
    std::memcpy(bytes.data(), bytes_.data() + at_, bytes.size());
    at_ += bytes.size();
    if (mend) {
      FrameHeader header;
      std::memcpy(&header, bytes.data(), sizeof header);
      header.magic = kFrameMagic;
      header.version = kFrameVersion;
      header.header_length = kFrameHeaderSize;
      bytes = encode(header);
    }
    Result<FrameHeader> header = decode(bytes);
    if (!header) close(header.error());
    co_return header;
  }
  Task<Result<void>> receive_payload(PayloadSink& sink, std::size_t size) override {
    while (size > 0) {
      if (closed_) co_return fail(*closed_);
      if (at_ == bytes_.size()) co_return fail(end());
      const std::span<std::byte> place = sink.prepare(size);
      if (place.empty() || place.size() > size) std::abort();
      const std::size_t step = std::min(place.size(), bytes_.size() - at_);
      std::memcpy(place.data(), bytes_.data() + at_, step);
      sink.commit(step);
      at_ += step;
      size -= step;
    }
    co_return Result<void>();
  }
  void set_version(std::uint8_t) override {}
  void close(Error reason) override {
    if (!closed_) closed_.emplace(reason);
  }
  bool closed() const override { return closed_.has_value(); }
  const PeerInfo& peer() const override { return peer_; }

 private:
  Error end() {
    close(Error(Code::kConnectionLost, "end of input"));
    return *closed_;
  }

  os::Executor& executor_;
  const std::size_t prefix_size_;
  std::vector<std::byte> bytes_;
  const bool mend_;
  std::size_t at_ = 0;
  std::optional<Error> closed_;
  PeerInfo peer_;
};

class NoNetwork final : public Network {
 public:
  Task<Result<std::unique_ptr<Channel>>> connect(Address, base::TimePoint) override {
    co_return fail(Code::kUnreachable);
  }
  Result<std::unique_ptr<Listener>> listen(const Address&) override {
    return fail(Code::kNotSupported);
  }
};

struct FuzzWorld {
  os::SimExecutor executor{1};
  base::Random random{1};
  NoNetwork network;
  os::FakeDisk disk;
  os::Env env() { return {executor, random, network, disk}; }
};

// Ends the process when more than `limit` bytes are in use at once beyond those at its start.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::int64_t limit) {
    static const int installed = __sanitizer_install_malloc_and_free_hooks(&on_malloc, &on_free);
    (void)installed;
    used() = 0;
    allowed() = limit;
  }
  ~MemoryLimit() { allowed() = INT64_MAX; }

 private:
  static std::int64_t& used() {
    static std::int64_t bytes = 0;
    return bytes;
  }
  static std::int64_t& allowed() {
    static std::int64_t bytes = INT64_MAX;
    return bytes;
  }
  static void on_malloc(const volatile void*, std::size_t size) {
    used() += static_cast<std::int64_t>(size);
    if (used() > allowed()) std::abort();
  }
  static void on_free(const volatile void* pointer) {
    if (pointer == nullptr) return;
    used() -=
        static_cast<std::int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(pointer)));
  }
};

}  // namespace mooncake::net
