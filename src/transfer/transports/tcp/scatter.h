// WriteSink, ReadSource: the payload of one request, spread over the ranges of this process that it
// names. Each place is asked of its access directly before the copy.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "net/channel.h"
#include "transfer/access.h"
#include "transfer/transports/tcp/attempts.h"

namespace mooncake::transfer::tcp {

// What may not be written any more goes to scratch memory.
class WriteSink final : public net::PayloadSink {
 public:
  // Both outlive the sink.
  WriteSink(std::span<WriteAccess> accesses, const Attempts::Ongoing& attempt)
      : accesses_(accesses), attempt_(attempt) {}

  std::span<std::byte> prepare(std::size_t remaining) override;
  std::size_t prepare_all(std::size_t remaining, std::span<std::span<std::byte>> places) override;
  void commit(std::size_t size) override;
  bool fills_user_memory() const override { return true; }
  void lose() override;

 private:
  std::span<std::byte> scratch(std::size_t size);

  std::span<WriteAccess> accesses_;  // from the one that is being written
  const Attempts::Ongoing& attempt_;
  std::size_t offset_ = 0;  // in the first of them
  std::vector<std::byte> scratch_;
};

// What may not be read comes out as zeros; when that changes while a piece is on its way, the whole
// message is given up.
class ReadSource final : public net::PayloadSource {
 public:
  explicit ReadSource(std::span<const ReadAccess> accesses) : accesses_(accesses) {}

  base::ConstBuffer next(std::size_t remaining) override;
  std::size_t next_all(std::size_t remaining, std::span<base::ConstBuffer> pieces) override;
  bool live() const override;

 private:
  std::span<const ReadAccess> accesses_;
  std::size_t offset_ = 0;
  std::span<const ReadAccess> given_;  // whose memory was handed out last
};

}  // namespace mooncake::transfer::tcp
