#include "net/rpc_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "net/rpc_codec.h"
#include "os/user_memory.h"

namespace mooncake::net {
namespace {

// What a request takes beside its body: itself, its handler's task, its places in tables.
constexpr std::size_t kRequestCost = 1024;

}  // namespace

Request::Request(os::Executor& executor, std::shared_ptr<ServerConnection> connection,
                 const FrameHeader& header, base::TimePoint began, base::TimePoint deadline)
    : executor_(executor),
      connection_(std::move(connection)),
      header_(header),
      began_(began),
      deadline_(deadline),
      data_done_(executor) {
  connection_->body_bytes += header_.payload_length;
  connection_->cost += cost();
  connection_->memory.take(cost());
}

Request::~Request() {
  connection_->body_bytes -= header_.payload_length;
  connection_->cost -= cost();
  connection_->memory.give_back(cost());
}

std::size_t Request::cost_of(const FrameHeader& header) {
  return kRequestCost + header.payload_length;
}

std::span<std::byte> Request::Sink::prepare(std::size_t remaining) {
  PayloadSink* taker = request_.taker_;
  return taker ? taker->prepare(remaining) : request_.connection_->discard.prepare(remaining);
}

std::size_t Request::Sink::prepare_all(std::size_t remaining,
                                       std::span<std::span<std::byte>> places) {
  PayloadSink* taker = request_.taker_;
  if (taker) return taker->prepare_all(remaining, places);
  places.front() = prepare(remaining);
  return 1;
}

void Request::Sink::commit(std::size_t size) {
  if (!request_.taker_) return;
  request_.received_ += size;
  request_.taker_->commit(size);
}

bool Request::Sink::fills_user_memory() const {
  return request_.taker_ && request_.taker_->fills_user_memory();
}

void Request::Sink::lose() {
  if (request_.taker_) request_.taker_->lose();
}

Task<Result<void>> Request::receive_data(PayloadSink& sink, std::size_t size) {
  assert(!taker_ && wanted_ == 0 && "once per call");
  if ((header_.flags & kMore) == 0) {
    if (size == 0) co_return Result<void>();
    co_return fail(Code::kProtocolError, fmt::format("0 bytes of data, {} expected", size));
  }
  if (passed_ || data_done_.is_set()) {
    co_return fail(Code::kInternal, "the data has passed: take it before anything else");
  }
  if (connection_->channel->closed()) co_return fail(Code::kConnectionLost);
  taker_ = &sink;
  wanted_ = size;
  const os::TimerId timer =
      executor_.run_at(deadline_, [this] { stop_data(Error(Code::kDeadlineExceeded)); });
  Result<void> result = co_await data_done_;
  executor_.cancel(timer);
  co_return result;
}

void Request::settle(Result<void> result) {
  taker_ = nullptr;
  data_done_.set(std::move(result));
}

void Request::stop_data(Error reason) {
  if (taker_) settle(fail(std::move(reason)));
}

void Request::begin_data(const FrameHeader& frame) {
  if (!taker_) {
    passed_ = true;
  } else if (frame.payload_length > wanted_ - received_) {
    settle(fail(Code::kProtocolError, fmt::format("{} bytes of data, {} expected",
                                                  received_ + frame.payload_length, wanted_)));
  }
}

void Request::end_data(const FrameHeader& frame) {
  if (!taker_ || (frame.flags & kMore) != 0) return;
  if ((frame.flags & kAbandon) != 0) {
    settle(fail(Code::kCancelled, "the sender gave up"));
  } else if (received_ < wanted_) {
    settle(fail(Code::kProtocolError,
                fmt::format("{} bytes of data, {} expected", received_, wanted_)));
  } else {
    settle({});
  }
}

// Frames of copies leave in one system call with the reply that follows.
Result<void> Request::send_copied(PayloadSource& source, std::size_t size) {
  Bytes bytes;
  bytes.reserve(size);
  while (bytes.size() < size) {
    if (!source.live()) return fail(Code::kCancelled, "the data is out of reach");
    const base::ConstBuffer piece = source.next(size - bytes.size());
    const std::size_t before = bytes.size();
    bytes.resize(before + piece.size());
    if (!os::gather_from_user(bytes.data() + before, {&piece, 1})) {
      return fail(Code::kCancelled, "the data can't be read");
    }
  }
  FrameHeader header = reply_;
  header.flags = kReply | kData | kMore;
  const base::ConstBuffer part(bytes);
  return connection_->memory.send(*connection_, header, {&part, 1});
}

Task<Result<void>> Request::send_data(PayloadSource& source, std::size_t size) {
  if (size <= kCopiedData) co_return send_copied(source, size);
  while (size > 0) {
    if (!source.live()) co_return fail(Code::kCancelled, "the data is out of reach");
    const std::size_t step = std::min<std::size_t>(size, kMaxDataPayload);
    FrameHeader header = reply_;
    header.flags = kReply | kData | kMore;
    MC_CO_CHECK(co_await connection_->channel->send_from(header, source, step));
    size -= step;
  }
  if (!source.live()) co_return fail(Code::kCancelled, "the data is out of reach");
  co_return Result<void>();
}

bool Request::stage_data(base::ConstBuffers data) {
  const std::size_t before = staged_.size();
  staged_.resize(before + base::total_size(data));
  if (os::gather_from_user(staged_.data() + before, data)) return true;
  staged_.resize(before);
  return false;
}

Result<void> Request::send_staged() {
  base::ConstBuffer rest(staged_);
  while (!rest.empty()) {
    const base::ConstBuffer part = rest.first(std::min<std::size_t>(rest.size(), kMaxDataPayload));
    FrameHeader header = reply_;
    header.flags = kReply | kData | kMore;
    MC_CHECK(connection_->memory.send(*connection_, header, {&part, 1}));
    rest = rest.subspan(part.size());
  }
  return {};
}

}  // namespace mooncake::net
