#include "transfer/peers.h"

#include <chrono>

namespace mooncake::transfer {

namespace {
constexpr base::Duration kLookInterval = std::chrono::milliseconds(10);
}

net::RpcClient& PeerClients::client(const net::Address& peer, std::uint32_t which) {
  auto& client = clients_[{peer, which}];
  if (!client) {
    net::RpcClient::Options options;
    options.identity = identity_;
    options.rings = rings_ && which == kControl;
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

void PeerClients::retire(const net::Address& peer) {
  for (auto it = clients_.lower_bound({peer, kControl + 1});
       it != clients_.end() && it->first.first == peer;) {
    retiring_.start(end(std::move(it->second)));
    it = clients_.erase(it);
  }
}

base::Task<void> PeerClients::end(std::unique_ptr<net::RpcClient> client) {
  while (!client->idle() && !stopping_)
    co_await env_.executor.sleep_for(kLookInterval);
  co_await client->stop();
}

base::Task<void> PeerClients::stop() {
  stopping_ = true;
  for (auto& [which, client] : clients_)
    co_await client->stop();
  co_await retiring_.join();
}

}  // namespace mooncake::transfer
