// The hello: who is there, which versions, and proof of the cluster secret both ways.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "net/channel.h"
#include "os/env.h"

namespace mooncake::net {

// What this process says of itself; equal on all its connections.
struct Identity {
  std::string role;
  std::string name;
  base::Uuid boot_id;
  base::Incarnation incarnation{};  // of this process (or simulated node); 0 is refused by peers
  // Shared by the whole cluster; empty = not secured. A side with a secret refuses one without,
  // both ways round.
  std::string cluster_secret;
  // Where processes of this host reach this server without sockets; empty = nowhere.
  std::string rings;
  std::uint8_t min_version = kOldestFrameVersion;  // settable for tests of N and N-1
  std::uint8_t max_version = kFrameVersion;
};

// What is known of the peer after the hello. `proven` is true only when it showed the secret.
struct PeerIdentity {
  std::string role;
  std::string name;
  base::Uuid boot_id;
  base::Incarnation incarnation{};
  std::uint8_t version = kFrameVersion;
  bool proven = false;
  std::string rings;  // of a server; as in Identity
};

// Both end within `deadline`, and leave the channel closed when they fail: kAuthenticationFailed,
// kVersionMismatch (names both ranges), kProtocolError, kDeadlineExceeded, kConnectionLost.
// Nothing that came before the proof is trusted with more than 4 KiB of memory.
Task<Result<PeerIdentity>> greet(os::Env env, Channel& channel, const Identity& self,
                                 const std::string& target, base::TimePoint deadline);
// `admit` is asked last, of a peer that has shown all it must: kBusy is told to it and returned.
Task<Result<PeerIdentity>> receive_greeting(os::Env env, Channel& channel, const Identity& self,
                                            base::TimePoint deadline,
                                            std::function<Result<void>()> admit = {});

}  // namespace mooncake::net
