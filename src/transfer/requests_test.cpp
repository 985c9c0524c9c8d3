// Proves that requests and replies are read as they were written, that those over a limit are
// refused as such, and that damaged ones are refused or read, but never believed beyond their end.
#include "transfer/requests.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "transfer/describe.h"

namespace mooncake::transfer {
namespace {

constexpr auto kSelf = static_cast<base::Incarnation>(9);

AttemptId attempt_id() {
  AttemptId id;
  id.engine = static_cast<base::Incarnation>(7);
  id.batch = 3;
  id.slice = 4;
  id.attempt = 2;
  id.oldest_open_batch = 1;
  return id;
}

Slice slice(std::uint64_t remote, std::uint64_t length) {
  Slice made;
  made.opcode = Opcode::kWrite;
  made.remote = remote;
  made.length = length;
  made.key = static_cast<memory::RegionKey>(remote * 3);
  return made;
}

TEST(Messages, AWriteIsReadAsWritten) {
  memory::ExtentRecord record;
  record.version = 77;
  record.key_length = 3;
  std::vector<Slice> slices{slice(1000, 10), slice(2000, 20), slice(3000, 30)};
  slices[1].guard = 77;
  slices[1].extent = 1500;
  slices[1].record = &record;
  slices[1].record_key = "key";
  const net::Bytes body = encode_write(attempt_id(), kSelf, slices);
  const auto message = decode_write(body);
  ASSERT_TRUE(message) << message.error().message();
  EXPECT_EQ(message->attempt.engine, attempt_id().engine);
  EXPECT_EQ(message->attempt.batch, 3u);
  EXPECT_EQ(message->attempt.slice, 4u);
  EXPECT_EQ(message->attempt.attempt, 2u);
  EXPECT_EQ(message->attempt.oldest_open_batch, 1u);
  EXPECT_EQ(message->receiver, kSelf);
  EXPECT_EQ(message->bytes, 60u);
  ASSERT_EQ(message->ranges.size(), 3u);
  EXPECT_EQ(message->ranges[1].address, 2000u);
  EXPECT_EQ(message->ranges[1].length, 20u);
  EXPECT_EQ(message->ranges[1].key, slices[1].key);
  EXPECT_EQ(message->ranges[1].guard, 77u);
  EXPECT_EQ(message->ranges[1].extent, 1500u);
  ASSERT_EQ(message->records.size(), 1u);
  EXPECT_EQ(message->records[0].version, 77u);
  EXPECT_EQ(message->keys[0], "key");
}

TEST(Messages, CodesBelongToTheirRanges) {
  std::vector<Slice> slices(3);
  const Code codes[] = {Code::kOk, Code::kGrantRefused, Code::kRegionKeyMismatch};
  ASSERT_TRUE(apply_codes(encode_codes(codes), slices));
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(slices[i].code, codes[i]);
  ASSERT_TRUE(apply_codes(encode_codes({}), slices));
  EXPECT_EQ(slices[1].code, Code::kOk) << "no codes: all are fine";
  slices.resize(2);
  EXPECT_EQ(apply_codes(encode_codes(codes), slices).error().code(), Code::kProtocolError);
}

TEST(Messages, LimitsAreKept) {
  const auto code = [](const std::vector<Slice>& slices) {
    const auto message = decode_read(encode_read(attempt_id(), kSelf, slices));
    return message ? Code::kOk : message.error().code();
  };
  EXPECT_EQ(code(std::vector<Slice>(kMaxRequestRanges, slice(1, 1))), Code::kOk);
  EXPECT_EQ(code(std::vector<Slice>(kMaxRequestRanges + 1, slice(1, 1))), Code::kInvalidArgument);
  EXPECT_EQ(code({slice(1, kMaxRequestBytes)}), Code::kOk);
  EXPECT_EQ(code({slice(1, kMaxRequestBytes), slice(1, 1)}), Code::kInvalidArgument);
  EXPECT_EQ(code({slice(1, 10), slice(1, ~std::uint64_t{0} - 5)}), Code::kInvalidArgument);
  EXPECT_EQ(code({}), Code::kProtocolError);
}

TEST(Messages, RecordsMustBeThere) {
  std::vector<Slice> slices{slice(1000, 10)};
  slices[0].guard = 5;  // and no record
  EXPECT_EQ(decode_write(encode_write(attempt_id(), kSelf, slices)).error().code(),
            Code::kProtocolError);
  memory::ExtentRecord record;
  record.key_length = 4;
  slices[0].record = &record;
  slices[0].record_key = "key";
  EXPECT_EQ(decode_write(encode_write(attempt_id(), kSelf, slices)).error().code(),
            Code::kProtocolError);
  slices[0].record_key = "longer key";
  EXPECT_EQ(decode_write(encode_write(attempt_id(), kSelf, slices)).error().code(),
            Code::kProtocolError);
}

// Bytes changed, cut off or shifted: under the sanitizers nothing may show.
RC_GTEST_PROP(Messages, DamageIsHarmless, ()) {
  memory::ExtentRecord record;
  record.key_length = 3;
  std::vector<Slice> slices(*rc::gen::inRange<std::size_t>(1, 4), slice(1000, 10));
  slices[0].guard = 5;
  slices[0].record = &record;
  slices[0].record_key = "key";
  const std::vector<AskedRange> asked(2);
  net::Bytes body = *rc::gen::element(encode_write(attempt_id(), kSelf, slices),
                                      encode_read(attempt_id(), kSelf, slices),
                                      encode_fence(attempt_id(), kSelf), encode_describe(asked));
  const int changes = *rc::gen::inRange(0, 6);
  for (int i = 0; i < changes; ++i) {
    body[*rc::gen::inRange<std::size_t>(0, body.size())] =
        static_cast<std::byte>(*rc::gen::inRange(0, 256));
  }
  body.resize(*rc::gen::inRange<std::size_t>(body.size() / 2, body.size() + 1));
  memory::Registry registry;
  if (const auto message = decode_write(body)) {
    RC_ASSERT(message->keys.size() == message->records.size());
  }
  static_cast<void>(decode_read(body));
  static_cast<void>(decode_fence(body));
  static_cast<void>(answer_describe(registry, body));
  static_cast<void>(decode_described(body, 2));
  static_cast<void>(decode_first_address(body));
  std::vector<Slice> three(3);
  static_cast<void>(apply_codes(body, three));
}

}  // namespace
}  // namespace mooncake::transfer
