// HostServer: lets processes of this host in: invites them over the authenticated connection, hands
// them the gate and the memory of pools over a Unix socket, and notices when they go.
#pragma once

#include <array>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "memory/gate.h"
#include "net/fd_watch.h"
#include "os/local_socket.h"
#include "transfer/transport.h"
#include "transfer/transports/shm/guests.h"
#include "transfer/transports/shm/host_pins.h"
#include "transfer/transports/shm/host_writes.h"
#include "transfer/transports/shm/messages.h"

namespace mooncake::transfer::shm {

// Executor thread only. All input is hostile.
class HostServer {
 public:
  explicit HostServer(const TransportContext& context);
  ~HostServer();
  HostServer(const HostServer&) = delete;
  HostServer& operator=(const HostServer&) = delete;

  // Makes the gate and listens. Without it nobody is invited. kNotSupported names what is missing.
  Result<void> start();
  // Nobody enters any more; returns when nobody is inside, or when one has been for too long.
  Task<void> stop();

 private:
  struct Session;
  struct Late {
    std::uint64_t pool = 0;
    bool dropped = false;  // else it was asked for
  };
  struct Invited {
    base::Incarnation peer{};
    TimePoint until;
  };
  using Place = std::list<std::unique_ptr<Session>>::iterator;

  Result<net::Bytes> invite(const net::ServerCall& call);
  // Who was invited with it; it is good once.
  std::optional<base::Incarnation> take_token(const Token& token);
  void drop_old_tokens();
  void drop_tokens_of(base::Incarnation peer);
  void accept_all();
  void drop_silent_sessions();
  void read_all(Place session);
  Result<void> answer(Session& session, const os::LocalSocket::Message& message);
  Result<void> welcome(Session& session, const Hello& hello);
  void tell_dropped(std::uint64_t pool);
  // Sends now or, while the peer doesn't read, later and in order.
  Result<void> tell(Session& session, Late message);
  Result<void> send(Session& session, const Late& message);
  void send_late();
  void end(Place session, const Error& reason);

  const TransportContext context_;
  std::shared_ptr<memory::Gate> gate_;
  Guests guests_;
  std::unique_ptr<HostWrites> writes_;
  std::unique_ptr<HostPins> pins_;
  std::string name_;
  os::LocalSocket listener_;
  std::unique_ptr<net::FdWatch> listener_watch_;
  std::list<std::unique_ptr<Session>> sessions_;
  bool sends_late_ = false;  // a timer is set
  std::map<Token, Invited> tokens_;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);  // for what was posted
};

}  // namespace mooncake::transfer::shm
