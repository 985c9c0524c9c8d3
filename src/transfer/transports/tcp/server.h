// TcpServer: serves kWrite, kRead and kFence of other engines out of this process's registered
// memory.
#pragma once

#include <span>

#include "net/rpc.h"
#include "transfer/access.h"
#include "transfer/requests.h"
#include "transfer/transport.h"
#include "transfer/transports/tcp/attempts.h"

namespace mooncake::transfer::tcp {

// Executor thread only. All input is hostile: verified, limited and checked against the registry
// before it is used. Outlives the handlers of the RpcServer.
class TcpServer {
 public:
  explicit TcpServer(const TransportContext& context);
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;

 private:
  Task<Result<net::Bytes>> write(net::ServerCall& call);
  Task<Result<net::Bytes>> read(net::ServerCall& call);
  Result<net::Bytes> fence(net::ServerCall& call);
  static void stage(net::ServerCall& call, std::span<ReadAccess> accesses);
  // Whether the message comes from who it says, and is meant for this life of this engine.
  Result<void> check_parties(const net::ServerCall& call, const TransferMessage& message) const;
  void count_refusal(Code code);

  const TransportContext context_;
  Attempts attempts_;
};

}  // namespace mooncake::transfer::tcp
