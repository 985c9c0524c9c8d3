// One request at its server: what the handler sees, and the connection it came by.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "net/rpc.h"

namespace mooncake::net {

class Request;

// A greeted connection. Kept by its reader and its requests.
struct ServerConnection {
  explicit ServerConnection(std::unique_ptr<Channel> channel_) : channel(std::move(channel_)) {}

  std::unique_ptr<Channel> channel;
  PeerIdentity peer;
  std::unordered_map<std::uint32_t, std::shared_ptr<Request>> open;  // handler has not ended
  std::size_t body_bytes = 0;                                        // of these
  DiscardSink discard;
  base::TaskGroup handlers;
};

class Request final : public ServerCall {
 public:
  Request(os::Executor& executor, std::shared_ptr<ServerConnection> connection,
          const FrameHeader& header, base::TimePoint deadline)
      : executor_(executor),
        connection_(std::move(connection)),
        header_(header),
        deadline_(deadline),
        data_done_(executor) {}

  base::ConstBuffer body() const override { return body_; }
  base::TimePoint deadline() const override { return deadline_; }
  const PeerIdentity& peer() const override { return connection_->peer; }
  const PeerInfo& connection() const override { return connection_->channel->peer(); }
  std::uint64_t trace_id() const override { return header_.trace_id; }
  base::Epoch epoch() const override { return static_cast<base::Epoch>(header_.epoch); }
  Task<Result<void>> receive_data(PayloadSink& sink, std::size_t size) override;
  Task<Result<void>> send_data(PayloadSource& source, std::size_t size) override;
  void stage_data(base::ConstBuffers data) override;

  // For the server.
  const FrameHeader& header() const { return header_; }
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
    void commit(std::size_t size) override;

   private:
    Request& request_;
  };

  void settle(Result<void> result);
  Result<void> send_copied(PayloadSource& source, std::size_t size);

  os::Executor& executor_;
  const std::shared_ptr<ServerConnection> connection_;
  const FrameHeader header_;
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
