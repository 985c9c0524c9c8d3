// HostLink: the way to one peer of this host, from the invitation to its end: what HostServer is on
// the other side.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net/fd_watch.h"
#include "os/event.h"
#include "transfer/transport.h"
#include "transfer/transports/shm/host_peer.h"
#include "transfer/transports/shm/messages.h"
#include "transfer/transports/shm/patient_copies.h"

namespace mooncake::transfer::shm {

// Why a wait was left before what it waited for.
inline Code why_left(const os::CancelToken* cancel) {
  return os::is_cancelled(cancel) ? Code::kCancelled : Code::kDeadlineExceeded;
}

// Executor thread only.
class HostLink {
 public:
  // `tasks` take up what goes on for a while after this link has ended.
  HostLink(const TransportContext& context, std::shared_ptr<MappingAccount> mappings,
           std::shared_ptr<PatientThreads> threads, base::TaskGroup& tasks, Peer peer);
  ~HostLink();
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;

  // Asks for an invitation and follows it. Once; others wait for opened().
  Task<void> open(TimePoint deadline);
  os::Event& opened() { return opened_; }
  // Empty until it is open, and after its end.
  const std::shared_ptr<HostPeer>& peer() const { return host_; }
  // Why it is not open, once it has been tried.
  const Error& failure() const { return failure_; }
  bool has_failed() const { return opened_.is_set() && !host_; }
  TimePoint failed_at() const { return failed_at_; }
  // It was open, and the peer has ended it, most likely by its exit.
  bool was_lost() const { return has_failed() && failure_.code() == Code::kConnectionLost; }

  // Lets the peer describe these ranges, and maps the pools in which they lie.
  Task<Result<void>> learn(std::vector<AskedRange> ranges, TimePoint deadline,
                           os::CancelToken* cancel);
  void close(Error reason);
  // Outlives the link's end: what a call has left may still land.
  PatientCopies& patient() { return patient_; }

 private:
  Task<Result<void>> connect(TimePoint deadline);
  Result<void> check_process();
  void read_all();
  Result<void> handle(os::LocalSocket::Message message);
  Result<void> take_welcome(const os::LocalSocket::Message& message);
  Result<void> take_pool(os::LocalSocket::Message& message);
  Result<void> map_pool(const PoolGiven& given, os::UniqueFd fd);
  std::vector<os::Event*> ask_pools(std::span<const std::uint64_t> pools);

  const os::Env env_;
  PeerClients& peers_;
  CopyCrew& crew_;
  const std::function<void()> direct_path_ended_;
  const std::shared_ptr<MappingAccount> mappings_;
  base::TaskGroup& tasks_;
  const Peer remote_;
  os::Event opened_;
  os::Event welcomed_;
  HostPeer::Process process_;  // until it is the HostPeer's
  std::shared_ptr<HostPeer> host_;
  std::unique_ptr<net::FdWatch> socket_watch_, process_watch_;
  std::map<std::uint64_t, std::unique_ptr<os::Event>> pools_coming_;
  bool warned_ = false;
  Error failure_{Code::kNotReady};
  TimePoint failed_at_{};
  PatientCopies patient_;
};

}  // namespace mooncake::transfer::shm
