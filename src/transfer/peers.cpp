#include "transfer/peers.h"

namespace mooncake::transfer {

net::RpcClient& PeerClients::client(const net::Address& peer, std::uint32_t which) {
  auto& client = clients_[{peer, which}];
  if (!client) {
    net::RpcClient::Options options;
    options.identity = identity_;
    client = net::RpcClient::create(env_, peer, std::move(options));
  }
  return *client;
}

void PeerClients::forget_failures(const net::Address& peer) {
  for (auto it = clients_.lower_bound({peer, kControl});
       it != clients_.end() && it->first.first == peer; ++it) {
    it->second->forget_failures();
  }
}

base::Task<void> PeerClients::stop() {
  for (auto& [which, client] : clients_)
    co_await client->stop();
}

}  // namespace mooncake::transfer
