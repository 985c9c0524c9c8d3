// PeerClients: the connections of one engine to others, shared by the engine and its transports.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/task.h"
#include "net/address.h"
#include "net/rpc.h"
#include "os/env.h"

namespace mooncake::transfer {

// Two for each peer, made when first asked for: one for bulk data, and one for questions and
// fences, which must not wait behind it. Executor thread only.
class PeerClients {
 public:
  PeerClients(os::Env env, net::Identity identity) : env_(env), identity_(std::move(identity)) {}

  net::RpcClient& data(const net::Address& peer) { return client(peer, data_); }
  net::RpcClient& control(const net::Address& peer) { return client(peer, control_); }

  // The peer is said to be there again: it is connected to at once.
  void forget_failures(const net::Address& peer);

  // Ends all calls with kCancelled, those under way and those to come. Await it before destruction.
  base::Task<void> stop();

 private:
  using Clients = std::map<std::string, std::unique_ptr<net::RpcClient>>;
  net::RpcClient& client(const net::Address& peer, Clients& clients);

  const os::Env env_;
  const net::Identity identity_;
  Clients data_, control_;
};

}  // namespace mooncake::transfer
