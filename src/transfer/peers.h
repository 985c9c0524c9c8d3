// PeerClients: the connections of one engine to others, shared by the engine and its transports.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "base/task.h"
#include "net/address.h"
#include "net/rpc.h"
#include "os/env.h"

namespace mooncake::transfer {

// For each peer, made when first asked for: lanes for bulk data, and one connection for questions
// and fences, which must not wait behind it. Executor thread only.
class PeerClients {
 public:
  // `rings`: questions to processes of this host go through shared memory.
  PeerClients(os::Env env, net::Identity identity, bool rings)
      : env_(env), identity_(std::move(identity)), rings_(rings) {}

  net::RpcClient& data(const net::Address& peer, std::uint32_t lane) {
    return client(peer, 1 + lane);
  }
  net::RpcClient& control(const net::Address& peer) { return client(peer, kControl); }

  // The peer is said to be there again: it is connected to at once.
  void forget_failures(const net::Address& peer);

  // Nobody will call at this address again: its connections for data end, after the calls that are
  // under way.
  void retire(const net::Address& peer);

  // Ends all calls with kCancelled, those under way and those to come. Await it before destruction.
  base::Task<void> stop();

 private:
  static constexpr std::uint32_t kControl = 0;
  net::RpcClient& client(const net::Address& peer, std::uint32_t which);

  base::Task<void> end(std::unique_ptr<net::RpcClient> client);

  const os::Env env_;
  const net::Identity identity_;
  const bool rings_;
  std::map<std::pair<net::Address, std::uint32_t>, std::unique_ptr<net::RpcClient>> clients_;
  base::TaskGroup retiring_;
  bool stopping_ = false;
};

}  // namespace mooncake::transfer
