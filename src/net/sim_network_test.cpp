// The simulated network keeps the contract of Channel, does each fault that it documents and no
// other, and repeats itself for a seed, with the executor shuffling and not.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "net/sim_network.h"
#include "os/env.h"

namespace mooncake::net {
namespace {

using namespace std::chrono_literals;

struct StringSink final : PayloadSink {
  std::span<std::byte> prepare(std::size_t remaining) override {
    room.resize(remaining);
    return room;
  }
  void commit(std::size_t size) override {
    text.append(reinterpret_cast<const char*>(room.data()), size);
  }
  std::string text;
  std::vector<std::byte> room;
};

// Text that turns to be out of reach after `live_for` questions.
struct StringSource final : PayloadSource {
  explicit StringSource(std::string text_) : text(std::move(text_)) {}
  base::ConstBuffer next(std::size_t remaining) override {
    const std::string_view part = std::string_view(text).substr(used, remaining);
    used += part.size();
    return base::as_bytes(part);
  }
  bool live() const override { return live_for < 0 || asked++ < live_for; }
  std::string text;
  std::size_t used = 0;
  int live_for = -1;
  mutable int asked = 0;
};

struct Message {
  Message() = default;
  FrameHeader header;
  std::string text;
};

struct SimNetwork : testing::TestWithParam<bool> {
  FrameHeader frame(std::uint32_t id, Method method = Method::kLocate, std::uint16_t flags = 0) {
    FrameHeader header;
    header.request_id = id;
    header.method = static_cast<std::uint16_t>(method);
    header.flags = flags;
    return header;
  }
  Result<void> send(Channel& channel, FrameHeader header, std::string_view text) {
    const base::ConstBuffer part = base::as_bytes(text);
    return channel.send(header, {&part, 1});
  }
  static Task<Result<Message>> receive(Channel& channel) {
    Message message;
    MC_CO_TRY(message.header, co_await channel.receive());
    StringSink sink;
    MC_CO_CHECK(co_await channel.receive_payload(sink, message.header.payload_length));
    message.text = sink.text;
    co_return message;
  }
  // Everything that arrives until the connection ends.
  static Task<void> receive_all(Channel& channel, std::vector<Message>& all) {
    for (;;) {
      Result<Message> message = co_await receive(channel);
      if (!message) co_return;
      all.push_back(*message);
    }
  }
  static Task<void> store(Task<Result<void>> task, std::optional<Result<void>>& end) {
    end = co_await task;
  }
  static Task<void> store(Task<Result<Message>> task, std::optional<Result<Message>>& end) {
    end = co_await task;
  }
  static Task<void> store(Task<Result<std::unique_ptr<Channel>>> task,
                          std::optional<Result<std::unique_ptr<Channel>>>& end) {
    end.emplace(co_await task);
  }

  Result<std::unique_ptr<Channel>> connect(base::Duration within = 1s) {
    return executor.run(net_a.connect(listener->address(), executor.now() + within));
  }
  void open() {
    a = connect().value();
    b = executor.run(listener->accept()).value();
  }

  os::SimExecutor executor{7, GetParam()};
  os::SimHost host_a{executor}, host_b{executor};
  base::Random random{7};
  SimWorld world{executor, random};
  Network& net_a = world.host("a", host_a);
  Network& net_b = world.host("b", host_b);
  std::unique_ptr<Listener> listener = net_b.listen({"0.0.0.0", 0}).value();
  std::unique_ptr<Channel> a, b;
  base::TaskGroup group;
};

INSTANTIATE_TEST_SUITE_P(Order, SimNetwork, testing::Bool(), [](const auto& order) {
  return order.param ? std::string("shuffled") : std::string("posted");
});

TEST_P(SimNetwork, ConnectsWhereSomeoneListens) {
  EXPECT_EQ(listener->address().host, "b");
  open();
  EXPECT_EQ(a->peer().address, "b");
  EXPECT_EQ(b->peer().address, "a");
  EXPECT_GE(executor.now().time_since_epoch(), 40us);
  const auto again = net_b.listen(listener->address());
  EXPECT_EQ(again.error().code(), Code::kAddressInUse);
  EXPECT_NE(again.error().message().find("b:20000"), std::string::npos);
  listener->close();
  EXPECT_EQ(connect().error().code(), Code::kUnreachable);
  EXPECT_EQ(executor.run(listener->accept()).error().code(), Code::kCancelled);
}

TEST_P(SimNetwork, FramesArriveInOrderAndWhole) {
  open();
  std::vector<Message> all;
  group.start(receive_all(*b, all));
  for (std::uint32_t i = 1; i <= 50; ++i) {
    ASSERT_TRUE(send(*a, frame(i), std::string(i * 97, static_cast<char>('a' + i % 26))));
  }
  a->set_version(3);
  StringSource source(std::string(600'000, 'x'));  // more than the window
  std::optional<Result<void>> sent;
  group.start(store(a->send_from(frame(51, Method::kWrite, kData), source, 600'000), sent));
  executor.run_for(1s);
  ASSERT_EQ(all.size(), 51u);
  for (std::uint32_t i = 1; i <= 50; ++i) {
    EXPECT_EQ(all[i - 1].header.request_id, i);
    EXPECT_EQ(all[i - 1].text, std::string(i * 97, static_cast<char>('a' + i % 26)));
  }
  EXPECT_EQ(all[50].text, source.text);
  EXPECT_EQ(all[50].header.version, 3);
  EXPECT_TRUE(sent && *sent);
  EXPECT_EQ(world.counters().messages, 51u);
  a->close(Error(Code::kCancelled));
  executor.run_for(1s);
  EXPECT_EQ(group.running(), 0u);
}

TEST_P(SimNetwork, ASlowReceiverHoldsItsSender) {
  open();
  StringSource source(std::string(1'000'000, 'x'));
  std::optional<Result<void>> sent;
  group.start(store(a->send_from(frame(1), source, 1'000'000), sent));
  executor.run_for(10s);
  EXPECT_FALSE(sent);
  EXPECT_LT(source.used, 300'000u);
  const std::string body(kMaxControlPayload, 'y');
  while (send(*a, frame(2), body)) {
  }
  EXPECT_EQ(send(*a, frame(2), body).error().code(), Code::kBusy);
  EXPECT_EQ(executor.run(receive(*b))->text, source.text);
  EXPECT_TRUE(sent && *sent);
}

TEST_P(SimNetwork, ASourceThatGaveUpLeavesZeros) {
  open();
  StringSource source(std::string(2000, 'x'));
  source.live_for = 2;  // steps of 512
  std::optional<Result<void>> sent;
  group.start(store(a->send_from(frame(1), source, 2000), sent));
  EXPECT_EQ(executor.run(receive(*b))->text, std::string(1024, 'x') + std::string(976, '\0'));
}

TEST_P(SimNetwork, ClosingEndsBothSides) {
  open();
  std::optional<Result<Message>> own, others;
  group.start(store(receive(*a), own));
  ASSERT_TRUE(send(*a, frame(1), "on its way"));
  executor.run_ready();
  a->close(Error(Code::kCancelled, "enough"));
  executor.run_for(1s);
  EXPECT_EQ(own->error().code(), Code::kCancelled);
  EXPECT_EQ(executor.run(receive(*b))->text, "on its way");
  group.start(store(receive(*b), others));
  executor.run_for(1s);
  EXPECT_EQ(others->error().code(), Code::kConnectionLost);
  EXPECT_TRUE(a->closed() && b->closed());
  EXPECT_EQ(send(*b, frame(1), "x").error().code(), Code::kConnectionLost);
}

TEST_P(SimNetwork, ALostMessageBreaksTheConnection) {
  open();
  ASSERT_TRUE(send(*a, frame(1), "first"));
  executor.run_ready();
  world.faults.lose = 1;
  ASSERT_TRUE(send(*a, frame(2), "second"));
  std::vector<Message> all;
  group.start(receive_all(*b, all));
  std::optional<Result<Message>> reply;
  group.start(store(receive(*a), reply));
  executor.run_for(1s);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].text, "first");
  EXPECT_EQ(reply->error().code(), Code::kConnectionLost);
  EXPECT_EQ(world.counters().lost, 1u);
}

TEST_P(SimNetwork, AMessageOfManyFramesIsLostOnce) {
  world.faults.lose = 1;
  for (int round = 0; round < 20; ++round) {
    open();
    std::vector<Message> all;
    base::TaskGroup receiving;
    receiving.start(receive_all(*b, all));
    const std::string data(5000, 'd');
    ASSERT_TRUE(send(*a, frame(1, Method::kWrite, kMore), "body"));
    ASSERT_TRUE(send(*a, frame(1, Method::kWrite, kData | kMore), data));
    ASSERT_TRUE(send(*a, frame(1, Method::kWrite, kData), ""));
    executor.run_for(1s);
    EXPECT_LE(all.size(), 2u);
    EXPECT_EQ(receiving.running(), 0u);
  }
  EXPECT_EQ(world.counters().lost, 20u);
}

TEST_P(SimNetwork, AfterACutTheMessageStillArrivesAndCannotBeAnswered) {
  open();
  world.faults.cut = 1;
  ASSERT_TRUE(send(*a, frame(1), "late"));
  std::optional<Result<Message>> reply;
  group.start(store(receive(*a), reply));
  executor.run_until([&] { return reply.has_value(); }, executor.now() + 1s);
  EXPECT_EQ(reply->error().code(), Code::kConnectionLost);
  EXPECT_EQ(executor.run(receive(*b))->text, "late");
  (void)send(*b, frame(1, Method::kLocate, kReply), "answer");
  executor.run_for(2s);
  EXPECT_TRUE(b->closed());
  EXPECT_EQ(world.counters().cut, 1u);
}

TEST_P(SimNetwork, ADuplicateHasItsOwnIdAndNoReply) {
  open();
  world.faults.duplicate = 1;
  std::vector<Message> requests, replies;
  group.start(receive_all(*b, requests));
  group.start(receive_all(*a, replies));
  ASSERT_TRUE(send(*a, frame(1, Method::kHello), "hello"));
  ASSERT_TRUE(send(*a, frame(2), "one"));
  ASSERT_TRUE(send(*a, frame(3, Method::kWrite, kMore), "has data"));
  ASSERT_TRUE(send(*a, frame(3, Method::kWrite, kData), "data"));
  executor.run_for(1s);
  ASSERT_EQ(requests.size(), 5u);
  EXPECT_EQ(std::count_if(requests.begin(), requests.end(),
                          [](const Message& m) { return m.text == "one"; }),
            2);
  ASSERT_TRUE(send(*a, frame(4), "two"));
  executor.run_for(1s);
  ASSERT_EQ(requests.size(), 7u);
  std::vector<std::uint32_t> ids;
  for (const Message& request : requests) {
    if (request.header.flags & kData) continue;
    ids.push_back(request.header.request_id);
    ASSERT_TRUE(send(*b, frame(request.header.request_id, Method::kLocate, kReply | kMore), "da"));
    ASSERT_TRUE(send(*b, frame(request.header.request_id, Method::kLocate, kReply), request.text));
  }
  EXPECT_EQ(ids, (std::vector<std::uint32_t>{1, 2, 3, 4, 5, 6}));
  executor.run_for(1s);
  ASSERT_EQ(replies.size(), 8u);
  const std::string_view expected[] = {"hello", "one", "has data", "two"};
  for (std::size_t i = 1; i < replies.size(); i += 2) {
    EXPECT_EQ(replies[i].text, expected[replies[i].header.request_id - 1]);
  }
  EXPECT_EQ(world.counters().duplicated, 2u);
  a.reset();
  b.reset();
  executor.run_for(1s);
}

TEST_P(SimNetwork, AStallDelaysAndKeepsTheOrder) {
  open();
  world.faults.stall = 0.5;
  const base::TimePoint begin = executor.now();
  for (std::uint32_t i = 1; i <= 20; ++i) {
    ASSERT_TRUE(send(*a, frame(i), "m"));
  }
  for (std::uint32_t i = 1; i <= 20; ++i) {
    EXPECT_EQ(executor.run(receive(*b))->header.request_id, i);
  }
  EXPECT_GT(world.counters().stalled, 0u);
  EXPECT_GT(executor.now() - begin, 10ms);
}

TEST_P(SimNetwork, APartitionSwallowsFramesAndEndsOfConnections) {
  open();
  world.partition("b", "a");
  ASSERT_TRUE(send(*a, frame(1), "into the void"));
  std::vector<Message> all;
  group.start(receive_all(*b, all));
  const auto refused = connect(300ms);
  EXPECT_EQ(refused.error().code(), Code::kDeadlineExceeded);
  executor.run_for(1s);
  EXPECT_TRUE(all.empty());
  world.heal();
  ASSERT_TRUE(send(*a, frame(2), "again"));
  executor.run_for(1s);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].text, "again");

  world.partition("a", "b");
  std::optional<Result<std::unique_ptr<Channel>>> late;
  group.start(store(net_a.connect(listener->address(), executor.now() + 10s), late));
  a->close(Error(Code::kCancelled));
  executor.run_for(1s);
  EXPECT_FALSE(b->closed() || late);
  world.heal();
  executor.run_for(1s);
  EXPECT_TRUE(b->closed());
  EXPECT_TRUE(late && *late);
}

TEST_P(SimNetwork, AFrozenHostReceivesWhenItThaws) {
  open();
  std::vector<Message> all;
  group.start(receive_all(*b, all));
  ASSERT_TRUE(send(*b, frame(1), "sent before"));
  executor.run_ready();
  host_b.freeze();
  ASSERT_TRUE(send(*a, frame(1), "one"));
  ASSERT_TRUE(send(*a, frame(2), "two"));
  EXPECT_TRUE(connect());  // by its kernel
  executor.run_for(5s);
  EXPECT_EQ(executor.run(receive(*a))->text, "sent before");
  EXPECT_TRUE(all.empty());
  host_b.thaw();
  executor.run_ready();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].text, "one");
  b.reset();
  executor.run_for(1s);
}

TEST_P(SimNetwork, KillBreaksConnectionsAndTheNameLivesAgain) {
  open();
  std::optional<Result<Message>> own, others;
  group.start(store(receive(*b), own));
  group.start(store(receive(*a), others));
  ASSERT_TRUE(send(*b, frame(1), "last words"));
  executor.run_ready();
  const Address address = listener->address();
  world.kill("b");
  executor.run_ready();
  EXPECT_EQ(own->error().code(), Code::kConnectionLost);
  EXPECT_FALSE(others);
  executor.run_for(1s);
  EXPECT_EQ((*others)->text, "last words");
  EXPECT_TRUE(a->closed());
  EXPECT_EQ(connect().error().code(), Code::kUnreachable);
  EXPECT_FALSE(net_b.listen(address));
  EXPECT_EQ(executor.run(net_b.connect({"a", 1}, executor.now() + 1s)).error().code(),
            Code::kUnreachable);

  os::SimHost next_life(executor);
  Network& again = world.host("b", next_life);
  EXPECT_NE(&again, &net_b);
  listener = again.listen(address).value();
  EXPECT_TRUE(connect());
}

// A busy cluster with all faults, as one text.
std::string history(std::uint64_t seed, bool shuffle) {
  os::SimExecutor executor(seed, shuffle);
  os::SimHost hosts[2] = {os::SimHost(executor), os::SimHost(executor)};
  base::Random random(seed);
  std::string text;
  base::TaskGroup group;
  {
    SimWorld world(executor, random);
    world.faults.lose = world.faults.cut = 0.02;
    world.faults.duplicate = world.faults.stall = 0.1;
    Network& client = world.host("client", hosts[0]);
    std::unique_ptr<Listener> listener = world.host("server", hosts[1]).listen({"", 1}).value();
    for (int round = 0; round < 20; ++round) {
      auto from = executor.run(client.connect({"server", 1}, executor.now() + 1s)).value();
      auto to = executor.run(listener->accept()).value();
      std::vector<Message> all;
      group.start(SimNetwork::receive_all(*to, all));
      for (std::uint32_t i = 1; i <= 30; ++i) {
        FrameHeader header;
        header.request_id = i;
        header.method = static_cast<std::uint16_t>(Method::kLocate);
        const std::string payload(random.below(2000), 'p');
        const base::ConstBuffer part = base::as_bytes(payload);
        (void)from->send(header, {&part, 1});
        executor.run_for(1ms);
      }
      from.reset();
      executor.run_for(5s);
      for (const Message& message : all) {
        text += std::to_string(message.header.request_id) + ":" +
                std::to_string(message.text.size()) + " ";
      }
      text += std::to_string(executor.now().time_since_epoch().count()) + "\n";
    }
  }
  EXPECT_EQ(group.running(), 0u);
  return text;
}

TEST(SimNetworkSeeds, ASeedRepeatsItself) {
  for (bool shuffle : {false, true}) {
    EXPECT_EQ(history(11, shuffle), history(11, shuffle));
    EXPECT_NE(history(11, shuffle), history(12, shuffle));
  }
}

TEST(SimNetworkSeeds, WaitersEndWithTheWorld) {
  os::SimExecutor executor(1);
  os::SimHost host(executor);
  base::Random random(1);
  base::TaskGroup group;
  std::optional<Result<Message>> end;
  std::unique_ptr<Channel> from, to;
  {
    SimWorld world(executor, random);
    Network& net = world.host("x", host);
    std::unique_ptr<Listener> listener = net.listen({"x", 1}).value();
    from = executor.run(net.connect({"x", 1}, executor.now() + 1s)).value();
    to = executor.run(listener->accept()).value();
    group.start(SimNetwork::store(SimNetwork::receive(*from), end));
  }
  executor.run_for(1s);
  EXPECT_EQ(end->error().code(), Code::kConnectionLost);
}

}  // namespace
}  // namespace mooncake::net
