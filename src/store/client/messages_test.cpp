// What a Master says of keys is believed only as far as it can be: a hostile one is refused.
#include "store/client/messages.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "net/message.h"
#include "store/master_generated.h"

namespace mooncake::store {
namespace {

using flatbuffers::FlatBufferBuilder;

struct Told {
  std::size_t reports = 1;
  std::uint8_t state = 0;
  std::size_t events = 1;
  std::uint8_t kind = 1;
  std::string segment = "10.0.0.7:1";
  std::size_t segments = 1;
  std::uint64_t age_ms = 2000;
  std::int64_t unix_seconds = 1'800'000'000;
};

net::Bytes reply(const Told& told) {
  FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<wire::KeyReport>> reports;
  for (std::size_t i = 0; i < told.reports; ++i) {
    std::vector<flatbuffers::Offset<wire::KeyEvent>> events;
    for (std::size_t e = 0; e < told.events; ++e)
      events.push_back(wire::CreateKeyEventDirect(builder, told.kind, false, 7, 4096, told.age_ms,
                                                  told.segment.c_str()));
    std::vector<flatbuffers::Offset<flatbuffers::String>> segments;
    for (std::size_t s = 0; s < told.segments; ++s)
      segments.push_back(builder.CreateString(told.segment));
    reports.push_back(wire::CreateKeyReportDirect(builder, told.state, 7, 4096, &segments, false,
                                                  false, 0, 0, nullptr, 0, &events));
  }
  builder.Finish(
      wire::CreateWhyReplyDirect(builder, &reports, 5, 1000, false, 9000, told.unix_seconds));
  return net::copy_of(builder);
}

const std::vector<std::string_view> kKey = {"k"};

Code code_of(const Told& told) {
  const auto read = decode_why(reply(told), kKey, 4);
  return read ? Code::kOk : read.error().code();
}

TEST(WhyReply, IsReadAndExplained) {
  const auto read =
      decode_why(reply({.kind = static_cast<std::uint8_t>(KeyEventKind::kRemoved)}), kKey, 4);
  ASSERT_TRUE(read) << read.error().message();
  const KeyReport& report = read->front();
  EXPECT_EQ(report.reason, MissReason::kRemoved);
  EXPECT_EQ(report.summary, "'k' was removed by its key, 2.0 s ago (4096 bytes, in 10.0.0.7:1).");
  EXPECT_EQ(report.master_uptime, std::chrono::seconds(9));
  // What a younger Master knows more is no error.
  EXPECT_EQ(decode_why(reply({.kind = 99}), kKey, 4)->front().events[0].kind,
            KeyEventKind::kUnknown);
}

TEST(WhyReply, OfAHostileMasterIsRefused) {
  EXPECT_EQ(code_of({.reports = 0}), Code::kProtocolError);
  EXPECT_EQ(code_of({.reports = 2}), Code::kProtocolError);
  EXPECT_EQ(code_of({.state = 3}), Code::kProtocolError);
  EXPECT_EQ(code_of({.events = 4}), Code::kOk);
  EXPECT_EQ(code_of({.events = 5}), Code::kProtocolError);
  EXPECT_EQ(code_of({.segments = kMaxReplicas + 1}), Code::kProtocolError);
  EXPECT_EQ(code_of({.segment = "a\x1b[2J"}), Code::kProtocolError);
  EXPECT_EQ(code_of({.segment = std::string(kMaxName + 1, 'n')}), Code::kProtocolError);
  EXPECT_EQ(code_of({.unix_seconds = -1}), Code::kProtocolError);
  EXPECT_EQ(code_of({.unix_seconds = std::int64_t{1} << 60}), Code::kProtocolError);
  EXPECT_FALSE(decode_why(net::Bytes(64, std::byte{0xFF}), kKey, 4));
  const auto old = decode_why(reply({.age_ms = ~std::uint64_t{0}}), kKey, 4);
  ASSERT_TRUE(old);
  EXPECT_GT(old->front().events[0].ago.count(), 0);
}

TEST(WhyReply, DamagedIsReadOrRefused) {
  const net::Bytes whole = reply({.events = 3});
  base::Random random(5);
  for (int round = 0; round < 5000; ++round) {
    net::Bytes damaged = whole;
    damaged[random.below(damaged.size())] = static_cast<std::byte>(random.next());
    const auto read = decode_why(damaged, kKey, 4);
    if (read) {
      EXPECT_EQ(read->size(), 1u);
    }
  }
}

}  // namespace
}  // namespace mooncake::store
