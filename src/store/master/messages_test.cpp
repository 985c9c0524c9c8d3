// Messages of honest clients become the commands they mean; of hostile ones, errors that name what
// is wrong. Nothing outside a message is ever read: bodies lie at the end of their allocation, and
// the sanitizer build watches.
#include "store/master/messages.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "store/master/messages_testing.h"

namespace mooncake::store::master {
namespace {

using namespace testing;
using net::Method;

const Keys kTwoKeys({"a", "bcd"});

std::string refusal(Method method, const net::Bytes& body) {
  const Result<Request> request = parse_request(method, body);
  if (request) return "";
  EXPECT_EQ(request.error().code(), Code::kInvalidArgument);
  return std::string(request.error().detail());
}

#define EXPECT_REFUSED(method, body, why) \
  EXPECT_NE(refusal(method, body).find(why), std::string::npos) << refusal(method, body)

TEST(Messages, GrantsAreRead) {
  const auto body =
      grant_message({.client = 9, .first = 5, .oldest_open = 4}, kTwoKeys, {10, 20}, 3);
  const Result<Request> request = parse_request(Method::kGrant, body);
  ASSERT_TRUE(request) << request.error().message();
  const Command& command = request->command;
  EXPECT_EQ(command.kind, CommandKind::kGrant);
  EXPECT_EQ(command.client, ClientId{9});
  EXPECT_EQ(command.sequence, 5u);
  EXPECT_EQ(command.oldest_open, 4u);
  EXPECT_EQ(command.replicas, 3u);
  ASSERT_EQ(command.items.size(), 2u);
  EXPECT_EQ(command.items[0].key, "a");
  EXPECT_EQ(command.items[1].key, "bcd");
  EXPECT_EQ(command.items[1].size, 20u);
  EXPECT_EQ(request->outcomes(), 2u);
}

TEST(Messages, TermsOfGrantsAreRead) {
  const net::Bytes body = full_grant_message(1, 250, 2, {"a:1", "b:2"});
  Result<Request> read = parse_request(Method::kGrant, body);
  ASSERT_TRUE(read) << read.error().message();
  const Request request = std::move(*read);  // what it points to comes along
  const GrantTerms& terms = request.command.terms;
  EXPECT_TRUE(terms.upsert && terms.hard_pin && terms.prefer_same_node);
  EXPECT_EQ(terms.soft_pin, SoftPin::kEnable);
  EXPECT_EQ(terms.soft_pin_ttl, base::Duration(std::chrono::milliseconds(250)));
  EXPECT_EQ(request.command.data_type, ObjectDataType::kTensor);
  ASSERT_EQ(terms.preferred.size(), 2u);
  EXPECT_EQ(terms.preferred[1], "b:2");
  // Those of a client that knows none of it.
  const net::Bytes old = grant_message({}, kTwoKeys, {10, 20}, 3);
  const Result<Request> plain = parse_request(Method::kGrant, old);
  ASSERT_TRUE(plain);
  EXPECT_FALSE(plain->command.terms.upsert || plain->command.terms.hard_pin);
  EXPECT_FALSE(plain->command.terms.soft_pin_ttl);

  EXPECT_REFUSED(Method::kGrant, full_grant_message(3, 0, 0, {}), "soft pin 3");
  EXPECT_REFUSED(Method::kGrant, full_grant_message(0, 0, 10, {}), "data type 10");
  EXPECT_REFUSED(Method::kGrant, full_grant_message(0, 0, 0, {""}), "is empty");
  EXPECT_REFUSED(Method::kGrant, full_grant_message(0, 0, 0, {std::string(kMaxName + 1, 'n')}),
                 "the name of a preferred segment is 301 bytes long");
  const std::vector<std::string> many(kMaxPreferred + 1, "n");
  EXPECT_REFUSED(Method::kGrant, full_grant_message(0, 0, 0, many), "65 preferred segments");
}

TEST(Messages, PublishesAreRead) {
  const Finish finish{{11, 12}, {2, 1}, {1, 2, 3}, true};
  for (const auto& [method, kind] : {std::pair(Method::kPublish, CommandKind::kPublish),
                                     std::pair(Method::kRevoke, CommandKind::kRevoke)}) {
    const Result<Request> request = parse_request(method, finish_message({}, kTwoKeys, finish));
    ASSERT_TRUE(request) << request.error().message();
    EXPECT_EQ(request->command.kind, kind);
    EXPECT_EQ(request->command.set_aside, kind == CommandKind::kRevoke);
    const auto items = request->command.items;
    ASSERT_EQ(items.size(), 2u);
    EXPECT_EQ(items[0].version, Version::from_value(11));
    ASSERT_EQ(items[0].incarnations.size(), 2u);
    ASSERT_EQ(items[1].incarnations.size(), 1u);
    EXPECT_EQ(items[1].incarnations[0], base::SegmentIncarnation{3});
  }
}

TEST(Messages, MountsAreRead) {
  const net::Bytes body = mount_message(7, 3, 55, {{.id = 4}, {.id = 5}});
  const Result<Request> request = parse_request(Method::kMount, body);
  ASSERT_TRUE(request) << request.error().message();
  EXPECT_EQ(request->command.newest_epoch, Epoch{55});
  EXPECT_EQ(request->command.client_name, "client");
  ASSERT_EQ(request->command.segments.size(), 2u);
  const MountedSegment& segment = request->command.segments[1];
  EXPECT_EQ(segment.address.id, (base::Uuid{5, 1}));
  EXPECT_EQ(segment.address.name, "host5");
  EXPECT_EQ(segment.address.region_key, 77u);
  EXPECT_EQ(segment.prepared, segment.address.size);
  EXPECT_EQ(request->outcomes(), 2u);
}

TEST(Messages, OthersAreRead) {
  const Result<Request> exist = parse_request(Method::kExist, keys_message(1, kTwoKeys));
  ASSERT_TRUE(exist);
  EXPECT_EQ(exist->command.kind, CommandKind::kExist);
  const Result<Request> remove = parse_request(Method::kRemove, remove_message({}, kTwoKeys, true));
  ASSERT_TRUE(remove);
  EXPECT_TRUE(remove->command.force);
  const Result<Request> unmount = parse_request(Method::kUnmount, unmount_message(1, 2, {3}, {4}));
  ASSERT_TRUE(unmount);
  EXPECT_EQ(unmount->command.segments[0].address.incarnation, base::SegmentIncarnation{4});
  EXPECT_EQ(unmount->command.grace, base::Duration{});
  const Result<Request> leave =
      parse_request(Method::kUnmount, unmount_message(1, 2, {3}, {4}, ~std::uint32_t{0}));
  ASSERT_TRUE(leave);
  EXPECT_EQ(leave->command.grace, base::Duration(std::chrono::milliseconds(~std::uint32_t{0})));
  EXPECT_REFUSED(Method::kUnmount, unmount_message(1, 2, {}, {}, 1), "a grace without segments");
  const net::Bytes body = sweep_message({.first = 7}, "^a", true, 55);
  const Result<Request> sweep = parse_request(Method::kSweep, body);
  ASSERT_TRUE(sweep);
  EXPECT_EQ(sweep->command.kind, CommandKind::kSweep);
  EXPECT_EQ(sweep->command.sequence, 7u);
  EXPECT_EQ(sweep->command.cursor, 55u);
  EXPECT_TRUE(sweep->command.force);
  ASSERT_EQ(sweep->outcomes(), 1u);
  EXPECT_EQ(sweep->items[0].key, "^a");
  EXPECT_TRUE(parse_request(Method::kSweep, sweep_message({}, "", false, 0)));
  EXPECT_REFUSED(Method::kSweep, sweep_message({.first = 0}, "", false, 0), "number");
  EXPECT_REFUSED(Method::kSweep, sweep_message({}, std::string(4097, 'a'), false, 0),
                 "a pattern of 4097 bytes");
  EXPECT_TRUE(parse_request(Method::kHeartbeat, heartbeat_message(1, 2)));
}

TEST(Messages, WhatDoesNotVerifyIsRefused) {
  for (const Method method :
       {Method::kMount, Method::kUnmount, Method::kHeartbeat, Method::kGrant, Method::kPublish,
        Method::kRevoke, Method::kLocate, Method::kExist, Method::kRemove, Method::kSweep}) {
    EXPECT_REFUSED(method, net::Bytes(), "verify");
    EXPECT_REFUSED(method, net::Bytes(64, std::byte{0xFF}), "verify");
    EXPECT_NE(refusal(method, net::Bytes(64)), "");
  }
  EXPECT_EQ(parse_request(Method::kWrite, net::Bytes()).error().code(), Code::kNotSupported);
}

TEST(Messages, ListsThatDisagreeAreRefused) {
  Keys keys = kTwoKeys;
  keys.lengths[1] = 4;
  EXPECT_REFUSED(Method::kExist, keys_message(1, keys), "keys end before");
  keys.lengths[1] = 2;
  EXPECT_REFUSED(Method::kExist, keys_message(1, keys), "bytes after");
  keys.lengths.clear();
  EXPECT_REFUSED(Method::kExist, keys_message(1, keys), "no keys");
  keys = Keys();
  keys.lengths = {65535, 65535};
  EXPECT_REFUSED(Method::kLocate, keys_message(1, keys), "keys end before");
  EXPECT_REFUSED(Method::kGrant, grant_message({}, kTwoKeys, {1}, 1), "sizes");
  EXPECT_REFUSED(Method::kGrant, grant_message({}, kTwoKeys, {1, 2, 3}, 1), "sizes");
  EXPECT_REFUSED(Method::kGrant, grant_message({}, kTwoKeys, {1, 2}, 0), "replicas");
  EXPECT_REFUSED(Method::kPublish, finish_message({}, kTwoKeys, {{1}, {1, 1}, {1, 2}}), "versions");
  EXPECT_REFUSED(Method::kPublish, finish_message({}, kTwoKeys, {{1, 2}, {1}, {1, 2}}), "counts");
  EXPECT_REFUSED(Method::kPublish, finish_message({}, kTwoKeys, {{1, 2}, {1, 5}, {1, 2}}),
                 "counts");
  EXPECT_REFUSED(Method::kPublish, finish_message({}, kTwoKeys, {{1, 2}, {1, 2}, {1, 2}}),
                 "counts");
  EXPECT_REFUSED(Method::kPublish, finish_message({}, kTwoKeys, {{1, 2}, {1, 0}, {1, 2}}), "after");
  EXPECT_REFUSED(Method::kUnmount, unmount_message(1, 1, {1, 2}, {1}), "incarnations");
}

TEST(Messages, LimitsHold) {
  const Keys most(std::vector<std::string>(kMaxBatch, "k"));
  EXPECT_TRUE(parse_request(Method::kExist, keys_message(1, most)));
  const Keys more(std::vector<std::string>(kMaxBatch + 1, "k"));
  EXPECT_REFUSED(Method::kExist, keys_message(1, more), "keys");
  const std::vector<Given> segments(kMaxSegmentsPerMessage + 1);
  EXPECT_REFUSED(Method::kMount, mount_message(1, 1, 0, segments), "segments");
  EXPECT_REFUSED(Method::kMount, mount_message(1, 1, 0, {{.with_id = false}}), "id");
  EXPECT_REFUSED(Method::kMount, mount_message(0, 1, 0, {}), "client");
  EXPECT_REFUSED(Method::kExist, keys_message(0, kTwoKeys), "client");
  EXPECT_REFUSED(Method::kRemove, remove_message({.first = 0}, kTwoKeys, true), "number");
  EXPECT_REFUSED(Method::kRemove, remove_message({.first = ~std::uint64_t{0}}, kTwoKeys, true),
                 "number");
}

TEST(Messages, NamesThatCannotBeShownAreRefused) {
  const std::string longest(kMaxName, 'n');
  EXPECT_TRUE(parse_request(Method::kMount,
                            mount_message(1, 1, 0, {{.name = longest, .host = longest}}, longest)));
  EXPECT_TRUE(parse_request(Method::kMount, mount_message(1, 1, 0, {{.host = ""}}, "h\xC3\xB6st")));
  const std::pair<std::string, std::string> wrong[] = {
      {longest + "n", "is 301 bytes long, at most 300 are allowed"},
      {"n\xFF", "is not UTF-8"},
      {"n\n", "holds a control character"},
      {std::string("n\0", 2), "holds a control character"}};
  for (const auto& [text, why] : wrong) {
    EXPECT_REFUSED(Method::kMount, mount_message(1, 1, 0, {}, text), "the client's name " + why);
    EXPECT_REFUSED(Method::kMount, mount_message(1, 1, 0, {{.id = 2}, {.name = text}}),
                   "the name of a segment " + why);
    EXPECT_REFUSED(Method::kMount, mount_message(1, 1, 0, {{.host = text}}),
                   "the host of a segment " + why);
  }
  EXPECT_REFUSED(Method::kMount, mount_message(1, 1, 0, {}, ""), "the client's name is empty");
  const auto nameless = packed([](FlatBufferBuilder& b) {
    const wire::Uuid id(1, 1);
    std::vector segments = {wire::CreateSegmentDirect(b, nullptr, nullptr, &id)};
    return wire::CreateMountRequestDirect(b, 1, 1, 0, "client", &segments);
  });
  EXPECT_REFUSED(Method::kMount, nameless, "the name of a segment is empty");
}

// 256 segments that point to one text of 1 MiB; as copies they would take 256 MiB.
TEST(Messages, ALongTextThatManyShareIsRefusedAtOnce) {
  const net::Bytes mount = packed([](FlatBufferBuilder& b) {
    const auto text = b.CreateString(std::string(1 << 20, 'n'));
    const auto name = b.CreateString("n");
    const wire::Uuid id(1, 1);
    std::vector<flatbuffers::Offset<wire::Segment>> segments;
    for (std::size_t i = 0; i < kMaxSegmentsPerMessage; ++i)
      segments.push_back(wire::CreateSegment(b, name, text, &id, 1, 1, 4096, 4096, 1, 0));
    return wire::CreateMountRequest(b, 1, 1, 0, name, b.CreateVector(segments));
  });
  EXPECT_LT(mount.size(), std::size_t{3} << 19);
  EXPECT_REFUSED(Method::kMount, mount, "the host of a segment is 1048576 bytes long");
}

TEST(Messages, NumbersAtTheirEndsArePassedOnOrRefused) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  const auto grant =
      grant_message({.client = kMost, .first = kMost - kMaxBatch, .oldest_open = kMost}, kTwoKeys,
                    {0, kMost}, ~std::uint32_t{0});
  const Result<Request> granted = parse_request(Method::kGrant, grant);
  ASSERT_TRUE(granted) << granted.error().message();
  EXPECT_EQ(granted->items[1].size, kMost);
  EXPECT_EQ(granted->command.replicas, ~std::uint32_t{0});
  EXPECT_REFUSED(Method::kGrant,
                 grant_message({.first = kMost - kMaxBatch + 1}, kTwoKeys, {1, 1}, 1), "too high");
  // A count of 255 for each of 4096 items, over an empty list.
  const Keys many(std::vector<std::string>(kMaxBatch, "k"));
  Finish finish{
      std::vector<std::uint64_t>(kMaxBatch, kMost), std::vector<std::uint8_t>(kMaxBatch, 255), {}};
  EXPECT_REFUSED(Method::kPublish, finish_message({}, many, finish), "counts");
  finish.replica_counts.assign(kMaxBatch, kMaxReplicas);
  EXPECT_REFUSED(Method::kPublish, finish_message({}, many, finish), "counts");
  finish.incarnations.assign(kMaxBatch * kMaxReplicas, kMost);
  EXPECT_TRUE(parse_request(Method::kPublish, finish_message({}, many, finish)));
  // Lengths whose sum is far beyond the bytes, and beyond 16 and 24 bits.
  Keys keys;
  keys.bytes.assign(100, 'k');
  keys.lengths.assign(kMaxBatch, 65535);
  EXPECT_REFUSED(Method::kExist, keys_message(1, keys), "keys end before");
}

TEST(Messages, DamagedOnesAreReadOrRefusedAndNeverMore) {
  const std::vector<std::pair<Method, net::Bytes>> messages = {
      {Method::kGrant, grant_message({}, kTwoKeys, {10, 20}, 3)},
      {Method::kGrant, full_grant_message(1, 250, 2, {"a:1", "b:2"})},
      {Method::kSweep, sweep_message({}, "^a", true, 5)},
      {Method::kPublish, finish_message({}, kTwoKeys, {{11, 12}, {2, 1}, {1, 2, 3}})},
      {Method::kMount, mount_message(7, 3, 55, {{.id = 4}, {.id = 5}})},
      {Method::kUnmount, unmount_message(1, 1, {1, 2}, {1, 2})},
      {Method::kRemove, remove_message({}, kTwoKeys, true)},
  };
  base::Random random(1);
  for (const auto& [method, message] : messages) {
    for (std::size_t size = 0; size < message.size(); ++size) {
      (void)parse_request(method,
                          net::Bytes(message.begin(), message.begin() + static_cast<long>(size)));
    }
    for (int round = 0; round < 3000; ++round) {
      net::Bytes damaged = message;
      for (std::uint64_t i = 0; i <= random.below(3); ++i) {
        damaged[random.below(damaged.size())] = static_cast<std::byte>(random.next());
      }
      const Result<Request> request = parse_request(method, damaged);
      if (!request) continue;
      for (const CommandItem& item : request->command.items) {
        EXPECT_TRUE(item.key.empty() ||
                    (reinterpret_cast<const std::byte*>(item.key.data()) >= damaged.data() &&
                     reinterpret_cast<const std::byte*>(item.key.data() + item.key.size()) <=
                         damaged.data() + damaged.size()));
      }
    }
  }
}

TEST(Messages, QuestionsWhyAreReadWithinTheirLimits) {
  const net::Bytes body = why_message(kTwoKeys, 255);
  const Result<WhyQuestion> question = parse_why(body);
  ASSERT_TRUE(question) << question.error().message();
  EXPECT_EQ(question->keys, (std::vector<std::string_view>{"a", "bcd"}));
  EXPECT_EQ(question->most_events, kMaxWhyEvents);
  const auto refusal_of = [](const net::Bytes& wrong) {
    const Result<WhyQuestion> read = parse_why(wrong);
    return read ? std::string() : std::string(read.error().detail());
  };
  EXPECT_NE(refusal_of(net::Bytes(64, std::byte{0xFF})).find("verify"), std::string::npos);
  EXPECT_NE(refusal_of(why_message(Keys(), 1)).find("no keys"), std::string::npos);
  EXPECT_NE(refusal_of(why_message(Keys({""}), 1)).find("a key of 0 bytes"), std::string::npos);
  EXPECT_NE(refusal_of(why_message(Keys({std::string(4097, 'k')}), 1)).find("4097 bytes"),
            std::string::npos);
  EXPECT_TRUE(parse_why(why_message(Keys(std::vector<std::string>(kMaxWhyKeys, "k")), 1)));
  const Keys many(std::vector<std::string>(kMaxWhyKeys + 1, "k"));
  EXPECT_NE(refusal_of(why_message(many, 1)).find("257 keys, at most 256"), std::string::npos);
  base::Random random(2);
  for (int round = 0; round < 3000; ++round) {
    net::Bytes damaged = body;
    damaged[random.below(damaged.size())] = static_cast<std::byte>(random.next());
    const Result<WhyQuestion> read = parse_why(damaged);
    if (read) {
      EXPECT_LE(read->keys.size(), kMaxWhyKeys);
    }
  }
}

TEST(Messages, RepliesNameEachSegmentOnce) {
  CoreOptions options;
  options.epoch = Epoch{1};
  options.epoch_limit = Epoch{10};
  Core core(options);
  std::vector<Effect> effects_of(64);
  Effects effects;
  effects.items = effects_of;
  const net::Bytes mount = mount_message(1, 1, 0, {{.id = 1}, {.id = 2}});
  const Result<Request> mounted = parse_request(Method::kMount, mount);
  core.apply(mounted->command, TimePoint{}, effects);
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i)
    names.push_back("k" + std::to_string(i));
  const net::Bytes grant = grant_message({}, Keys(names), std::vector<std::uint64_t>(20, 1), 2);
  const Result<Request> granted = parse_request(Method::kGrant, grant);
  effects.items = std::span(effects_of).first(20);
  core.apply(granted->command, TimePoint{}, effects);

  const net::Bytes reply = encode_grant_reply(core, effects);
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(reply.data()), reply.size());
  ASSERT_TRUE(verifier.VerifyBuffer<wire::GrantReply>(nullptr));
  const auto* table = flatbuffers::GetRoot<wire::GrantReply>(reply.data());
  EXPECT_EQ(table->codes()->size(), 20u);
  EXPECT_EQ(table->segments()->size(), 2u);
  ASSERT_EQ(table->locations()->size(), 40u);
  for (flatbuffers::uoffset_t i = 0; i < 20; ++i) {
    EXPECT_EQ(table->codes()->Get(i), 0);
    EXPECT_EQ(table->replica_counts()->Get(i), 2);
    EXPECT_NE(table->locations()->Get(2 * i)->segment(),
              table->locations()->Get(2 * i + 1)->segment());
  }
}

}  // namespace
}  // namespace mooncake::store::master
