// Engines, requests and peers for tests of the public engine.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "mooncake/transfer.h"
#include "net/runtime.h"
#include "os/run_blocking.h"
#include "transfer/engine.h"

namespace mooncake::transfer::testing {

using namespace std::chrono_literals;

inline std::unique_ptr<TransferEngine> make(TransferOptions options = {},
                                            const char* path = "auto") {
  options.path = path;
  auto engine = TransferEngine::create(options);
  EXPECT_TRUE(engine) << engine.error().message();
  return *std::move(engine);
}

inline std::uint64_t address_of(const void* memory) {
  return reinterpret_cast<std::uint64_t>(memory);
}

inline TransferRequest request(Opcode opcode, void* source, SegmentHandle target, const void* there,
                               std::uint64_t length) {
  TransferRequest made;
  made.opcode = opcode;
  made.source = source;
  made.target = target;
  made.target_offset = address_of(there);
  made.length = length;
  return made;
}

// Listens, and says nothing to whoever comes.
class SilentPeer {
 public:
  SilentPeer() : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    port_ = ntohs(at.sin_port);
  }
  ~SilentPeer() {
    if (accepted_ >= 0) ::close(accepted_);
    ::close(listener_);
  }
  SilentPeer(const SilentPeer&) = delete;
  SilentPeer& operator=(const SilentPeer&) = delete;

  std::string name() const { return "127.0.0.1:" + std::to_string(port_); }
  // Blocks until somebody has come.
  void accept() { accepted_ = ::accept(listener_, nullptr, nullptr); }
  // A handle of it, which an engine has without having asked it anything.
  SegmentHandle open_in(TransferEngine& engine) const {
    const auto task = [](Engine& inner, std::string name, net::Address at) -> Task<SegmentHandle> {
      co_return inner.open_address(name, at);
    };
    return *os::run_blocking(engine.runtime().env().executor,
                             task(engine.engine(), name(), net::Address("127.0.0.1", port_)));
  }

 private:
  const int listener_;
  int accepted_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace mooncake::transfer::testing
