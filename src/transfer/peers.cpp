#include "transfer/peers.h"

namespace mooncake::transfer {

net::RpcClient& PeerClients::client(const net::Address& peer, Clients& clients) {
  auto& client = clients[net::to_string(peer)];
  if (!client) {
    net::RpcClient::Options options;
    options.identity = identity_;
    client = net::RpcClient::create(env_, peer, std::move(options));
  }
  return *client;
}

void PeerClients::forget_failures(const net::Address& peer) {
  for (auto* clients : {&data_, &control_}) {
    const auto it = clients->find(net::to_string(peer));
    if (it != clients->end()) it->second->forget_failures();
  }
}

base::Task<void> PeerClients::stop() {
  for (auto* clients : {&data_, &control_}) {
    for (auto& [address, client] : *clients)
      co_await client->stop();
  }
}

}  // namespace mooncake::transfer
