// For fuzzers of the methods that engines serve each other: the handlers alone, without a network.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "net/network.h"
#include "net/rpc.h"

namespace mooncake::transfer {

inline void require(bool holds) {
  if (!holds) std::abort();
}

class NoNetwork final : public net::Network {
 public:
  base::Task<Result<std::unique_ptr<net::Channel>>> connect(net::Address,
                                                            base::TimePoint) override {
    co_return fail(Code::kUnreachable);
  }
  Result<std::unique_ptr<net::Listener>> listen(const net::Address&) override {
    return fail(Code::kAddressInUse);
  }
};

// Keeps the handlers, and nothing else.
class Handlers final : public net::RpcServer {
 public:
  void handle(net::Method method, net::Handler handler) override {
    handlers[method] = std::move(handler);
  }
  Result<net::Address> listen(const net::Address& at) override { return at; }
  void serve(std::unique_ptr<net::Channel>) override {}
  void on_disconnect(std::function<void(const net::PeerIdentity&)>) override {}
  base::Task<void> stop() override { co_return; }
  Counters counters() const override { return {}; }
  std::map<net::Method, net::Handler> handlers;
};

// Readable and writable pages at this very address.
inline void map_at(std::uint64_t address, std::size_t size) {
  void* const wanted = reinterpret_cast<void*>(address);
  void* const got = ::mmap(wanted, size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  require(got == wanted);
}

}  // namespace mooncake::transfer
