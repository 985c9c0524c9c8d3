// One request at its server: what the handler sees, and the connection it came by.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "net/rpc.h"
#include "net/rpc_memory.h"

namespace mooncake::net {

class Request;

// A greeted connection. Kept by its reader and its requests.
struct ServerConnection {
  ServerConnection(std::unique_ptr<Channel> channel_, PeerIdentity peer_, ServerMemory& memory_)
      : channel(std::move(channel_)), peer(std::move(peer_)), memory(memory_) {}

  const std::unique_ptr<Channel> channel;
  const PeerIdentity peer;
  ServerMemory& memory;
  std::shared_ptr<Request> arriving;                                 // its body is not whole yet
  std::unordered_map<std::uint32_t, std::shared_ptr<Request>> open;  // handler has not ended
  std::size_t body_bytes = 0;                                        // of all these
  std::size_t cost = 0;                                              // of all these
  base::TimePoint last_active{};                                     // a request came, or was open
  // Place among those who leave: what comes is not worked on any more.
  std::optional<std::uint64_t> dismissed;
  os::TimerId leave_timer = os::TimerId::kNone;
  DiscardSink discard;
  base::TaskGroup handlers;
};

// Takes its memory from the connection's and the server's while it lives, before its body arrives.
class Request final : public ServerCall {
 public:
  Request(os::Executor& executor, std::shared_ptr<ServerConnection> connection,
          const FrameHeader& header, base::TimePoint began, base::TimePoint deadline);
  ~Request() override;
  // Bytes of memory that a request takes whose header is this one.
  static std::size_t cost_of(const FrameHeader& header);

  base::ConstBuffer body() const override { return body_; }
  base::TimePoint deadline() const override { return deadline_; }
  const PeerIdentity& peer() const override { return connection_->peer; }
  const PeerInfo& connection() const override { return connection_->channel->peer(); }
  std::uint64_t trace_id() const override { return header_.trace_id; }
  base::Epoch epoch() const override { return static_cast<base::Epoch>(header_.epoch); }
  Task<Result<void>> receive_data(PayloadSink& sink, std::size_t size) override;
  Task<Result<void>> send_data(PayloadSource& source, std::size_t size) override;
  bool stage_data(base::ConstBuffers data) override;

  // For the server.
  const FrameHeader& header() const { return header_; }
  base::TimePoint began() const { return began_; }
  std::size_t cost() const { return cost_of(header_); }
  void set_body(Bytes body) { body_ = std::move(body); }
  // Before the handler starts. `epoch`: what replies say.
  void set_reply_header(const FrameHeader& header) { reply_ = header; }
  Result<void> send_staged();
  // A data frame has arrived; its payload goes to `sink()`, which is scratch memory when nobody
  // takes it.
  void begin_data(const FrameHeader& frame);
  PayloadSink& sink() { return sink_; }
  void end_data(const FrameHeader& frame);
  // Ends a receive_data() that waits; its sink is not referred to any more.
  void stop_data(Error reason);

 private:
  // The handler's sink as long as it waits.
  class Sink final : public PayloadSink {
   public:
    explicit Sink(Request& request) : request_(request) {}
    std::span<std::byte> prepare(std::size_t remaining) override;
    std::size_t prepare_all(std::size_t remaining, std::span<std::span<std::byte>> places) override;
    void commit(std::size_t size) override;
    bool fills_user_memory() const override;
    void lose() override;

   private:
    Request& request_;
  };

  void settle(Result<void> result);
  Result<void> send_copied(PayloadSource& source, std::size_t size);

  os::Executor& executor_;
  const std::shared_ptr<ServerConnection> connection_;
  const FrameHeader header_;
  const base::TimePoint began_;
  const base::TimePoint deadline_;
  Bytes body_;
  FrameHeader reply_;
  Bytes staged_;

  Sink sink_{*this};
  PayloadSink* taker_ = nullptr;  // the handler's, while it waits
  std::size_t wanted_ = 0;
  std::size_t received_ = 0;
  bool passed_ = false;  // data came that nobody took
  os::Completion<Result<void>> data_done_;
};

}  // namespace mooncake::net
