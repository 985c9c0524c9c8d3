// The two ends of an in-process connection: frames arrive whole and in order, payloads from sources
// go straight into sinks in bounded steps, and closing ends every waiter and lets go of every
// source.
#include "net/channel_pair.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "os/sim_executor.h"

namespace mooncake::net {
namespace {

FrameHeader frame(std::uint32_t id, std::uint16_t flags = 0) {
  FrameHeader header;
  header.request_id = id;
  header.flags = flags;
  return header;
}

// Collects a payload in pieces of at most `piece` bytes.
class StringSink final : public PayloadSink {
 public:
  explicit StringSink(std::size_t piece = 1000) : piece_(piece) {}
  std::span<std::byte> prepare(std::size_t remaining) override {
    room_.resize(std::min(remaining, piece_));
    return room_;
  }
  void commit(std::size_t size) override {
    text.append(reinterpret_cast<const char*>(room_.data()), size);
  }
  std::string text;

 private:
  std::size_t piece_;
  std::vector<std::byte> room_;
};

// Hands out a text in pieces of at most `piece` bytes, and counts how often it is asked.
class StringSource final : public PayloadSource {
 public:
  explicit StringSource(std::string text, std::size_t piece = 700)
      : text_(std::move(text)), piece_(piece) {}
  base::ConstBuffer next(std::size_t remaining) override {
    ++asked;
    base::ConstBuffer part = base::as_bytes(text_).subspan(used_);
    part = part.first(std::min({part.size(), remaining, piece_}));
    used_ += part.size();
    return part;
  }
  int asked = 0;

 private:
  std::string text_;
  std::size_t piece_;
  std::size_t used_ = 0;
};

struct ChannelPair : testing::Test {
  ChannelPair() { std::tie(a, b) = make_channel_pair(executor); }

  Task<Result<std::string>> receive_text(Channel& channel) {
    MC_CO_TRY(FrameHeader header, co_await channel.receive());
    StringSink sink;
    MC_CO_CHECK(co_await channel.receive_payload(sink, header.payload_length));
    co_return sink.text;
  }
  Result<void> send_text(Channel& channel, std::string_view text, std::uint16_t flags = 0) {
    const base::ConstBuffer part = base::as_bytes(text);
    return channel.send(frame(1, flags), {&part, 1});
  }

  os::SimExecutor executor{1};
  std::unique_ptr<Channel> a, b;
};

Task<void> store(Task<Result<void>> task, std::optional<Result<void>>& end) { end = co_await task; }
Task<void> store_header(Channel& channel, std::optional<Result<FrameHeader>>& end) {
  end = co_await channel.receive();
}

TEST_F(ChannelPair, FramesArriveInOrderBothWays) {
  ASSERT_TRUE(send_text(*a, "one"));
  ASSERT_TRUE(send_text(*a, ""));
  ASSERT_TRUE(send_text(*a, "three"));
  ASSERT_TRUE(send_text(*b, "back"));
  EXPECT_EQ(executor.run(receive_text(*b)).value(), "one");
  EXPECT_EQ(executor.run(receive_text(*b)).value(), "");
  EXPECT_EQ(executor.run(receive_text(*b)).value(), "three");
  EXPECT_EQ(executor.run(receive_text(*a)).value(), "back");
  EXPECT_TRUE(a->peer().same_process);
}

TEST_F(ChannelPair, PartsOfAPayloadAreJoinedAndTheVersionIsSet) {
  const base::ConstBuffer parts[] = {base::as_bytes("ab"), {}, base::as_bytes("cd")};
  a->set_version(3);
  ASSERT_TRUE(a->send(frame(9), parts));
  const auto header = executor.run(b->receive());
  EXPECT_EQ(header->request_id, 9u);
  EXPECT_EQ(header->payload_length, 4u);
  EXPECT_EQ(header->version, 3);
  StringSink first, rest;
  EXPECT_TRUE(executor.run(b->receive_payload(first, 1)));
  EXPECT_TRUE(executor.run(b->receive_payload(rest, 3)));
  EXPECT_EQ(first.text + rest.text, "abcd");
}

TEST_F(ChannelPair, ASourceIsReadWhenTheReceiverTakesThePayload) {
  const std::string text = std::string(5000, 'x') + std::string(5000, 'y');
  StringSource source(text);
  std::optional<Result<void>> sent;
  base::TaskGroup group;
  group.start(store(a->send_from(frame(2, kData), source, text.size()), sent));
  executor.run_ready();
  EXPECT_FALSE(sent);
  EXPECT_EQ(source.asked, 0);
  ASSERT_TRUE(send_text(*a, "after"));
  EXPECT_EQ(executor.run(receive_text(*b)).value(), text);
  EXPECT_TRUE(sent && *sent);
  EXPECT_EQ(executor.run(receive_text(*b)).value(), "after");
}

TEST_F(ChannelPair, LargePayloadsAreCopiedInSteps) {
  const std::string text(kMaxControlPayload, 'z');
  StringSource source(text, text.size());
  StringSink sink(text.size());
  std::optional<Result<void>> sent, received;
  base::TaskGroup group;
  group.start(store(a->send_from(frame(2), source, text.size()), sent));
  executor.run(b->receive());
  group.start(store(b->receive_payload(sink, text.size()), received));
  EXPECT_EQ(sink.text.size(), std::size_t{8} << 20);  // one turn
  EXPECT_FALSE(received);
  executor.run_ready();
  EXPECT_EQ(sink.text, text);
  EXPECT_TRUE(received && *received && sent && *sent);
}

TEST_F(ChannelPair, LimitsAreKept) {
  const std::string text(kMaxDataPayload + 1, 'z');
  EXPECT_EQ(send_text(*a, text, kData).error().code(), Code::kInvalidArgument);
  const std::string body(kMaxControlPayload, 'z');
  for (std::size_t queued = 0; queued < kMaxQueuedBytes; queued += body.size()) {
    ASSERT_TRUE(send_text(*a, body));
  }
  EXPECT_EQ(send_text(*a, "more").error().code(), Code::kBusy);
  EXPECT_EQ(executor.run(receive_text(*b))->size(), body.size());
  EXPECT_TRUE(send_text(*a, "more"));
}

TEST_F(ChannelPair, CloseEndsWaitersOnBothSides) {
  StringSource source("never read");
  std::optional<Result<void>> sent;
  std::optional<Result<FrameHeader>> own, others;
  auto [c, d] = make_channel_pair(executor);
  base::TaskGroup group;
  group.start(store(a->send_from(frame(1), source, 10), sent));
  group.start(store_header(*a, own));
  group.start(store_header(*d, others));
  a->close(Error(Code::kCancelled, "enough"));
  a->close(Error(Code::kInternal, "too late"));
  c.reset();
  executor.run_ready();
  ASSERT_TRUE(sent && own && others);
  EXPECT_EQ(sent->error().code(), Code::kCancelled);
  EXPECT_EQ(own->error().code(), Code::kCancelled);
  EXPECT_EQ(others->error().code(), Code::kConnectionLost);
  EXPECT_EQ(source.asked, 0);
  EXPECT_TRUE(a->closed() && b->closed() && d->closed());
  EXPECT_EQ(send_text(*a, "x").error().code(), Code::kCancelled);
  EXPECT_EQ(send_text(*b, "x").error().code(), Code::kConnectionLost);
  EXPECT_EQ(executor.run(b->receive()).error().code(), Code::kConnectionLost);
}

TEST_F(ChannelPair, WhatWasSentBeforeTheCloseStillArrives) {
  ASSERT_TRUE(send_text(*a, "last words"));
  a->close(Error(Code::kCancelled));
  EXPECT_FALSE(b->closed());
  EXPECT_EQ(executor.run(receive_text(*b)).value(), "last words");
  EXPECT_EQ(executor.run(receive_text(*b)).error().code(), Code::kConnectionLost);
}

TEST_F(ChannelPair, ACloseInTheMiddleOfAPayloadLetsGoOfBothMemories) {
  const std::string text(kMaxControlPayload, 'z');
  for (Channel* closing : {a.get(), b.get()}) {
    auto [c, d] = make_channel_pair(executor);
    StringSource source(text, text.size());
    StringSink sink(text.size());
    std::optional<Result<void>> sent, received;
    base::TaskGroup group;
    group.start(store(c->send_from(frame(2), source, text.size()), sent));
    executor.run(d->receive());
    group.start(store(d->receive_payload(sink, text.size()), received));
    (closing == a.get() ? c : d)->close(Error(Code::kCancelled));
    executor.run_ready();
    ASSERT_TRUE(sent && received);
    EXPECT_FALSE(*sent);
    EXPECT_FALSE(*received);
    EXPECT_EQ(source.asked, 1);
    EXPECT_LT(sink.text.size(), text.size());
  }
}

TEST_F(ChannelPair, AChannelMayGoBeforeItsWaiters) {
  std::optional<Result<FrameHeader>> own;
  base::TaskGroup group;
  group.start(store_header(*a, own));
  a.reset();
  executor.run_ready();
  EXPECT_EQ(own->error().code(), Code::kConnectionLost);
}

}  // namespace
}  // namespace mooncake::net
