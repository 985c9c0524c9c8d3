// Messages as clients make them, field by field, so that tests can make wrong ones too. Only for
// *_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "net/rpc.h"
#include "store/master_generated.h"
#include "store/types.h"

namespace mooncake::store::master::testing {

using flatbuffers::FlatBufferBuilder;

// Keys as a batch carries them.
struct Keys {
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint16_t> lengths;

  Keys() = default;
  explicit Keys(const std::vector<std::string>& keys) {
    for (const std::string& key : keys) {
      bytes.insert(bytes.end(), key.begin(), key.end());
      lengths.push_back(static_cast<std::uint16_t>(key.size()));
    }
  }
};

template <typename Make>
net::Bytes packed(Make make) {
  FlatBufferBuilder builder;
  builder.Finish(make(builder));
  const base::ConstBuffer bytes =
      std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
  return net::Bytes(bytes.begin(), bytes.end());
}

struct Numbers {
  std::uint64_t client = 1;
  std::uint64_t first = 1;
  std::uint64_t oldest_open = 0;
};

inline net::Bytes grant_message(const Numbers& numbers, const Keys& keys,
                                const std::vector<std::uint64_t>& sizes, std::uint32_t replicas) {
  return packed([&](FlatBufferBuilder& b) {
    return wire::CreateGrantRequestDirect(b, numbers.client, numbers.first, numbers.oldest_open,
                                          &keys.bytes, &keys.lengths, &sizes, replicas);
  });
}

// With everything that a grant can ask for.
inline net::Bytes full_grant_message(std::uint8_t soft_pin, std::uint32_t ttl_ms,
                                     std::uint8_t data_type,
                                     const std::vector<std::string>& preferred) {
  return packed([&](FlatBufferBuilder& b) {
    const std::vector<std::uint8_t> key = {'k'};
    const std::vector<std::uint16_t> length = {1};
    const std::vector<std::uint64_t> size = {10};
    const auto names = b.CreateVectorOfStrings(preferred);
    const auto keys = b.CreateVector(key);
    const auto lengths = b.CreateVector(length);
    const auto sizes = b.CreateVector(size);
    return wire::CreateGrantRequest(b, 1, 1, 0, keys, lengths, sizes, 1, true, true,
                                    static_cast<wire::SoftPin>(soft_pin), ttl_ms, true, data_type,
                                    names);
  });
}

struct Finish {
  std::vector<std::uint64_t> versions;
  std::vector<std::uint8_t> replica_counts;
  std::vector<std::uint64_t> incarnations;
  bool set_aside = false;
};
inline net::Bytes finish_message(const Numbers& numbers, const Keys& keys, const Finish& finish) {
  return packed([&](FlatBufferBuilder& b) {
    return wire::CreateFinishRequestDirect(
        b, numbers.client, numbers.first, numbers.oldest_open, &keys.bytes, &keys.lengths,
        &finish.versions, &finish.replica_counts, &finish.incarnations, finish.set_aside);
  });
}

inline net::Bytes keys_message(std::uint64_t client, const Keys& keys) {
  return packed([&](FlatBufferBuilder& b) {
    return wire::CreateKeysRequestDirect(b, client, &keys.bytes, &keys.lengths);
  });
}

inline net::Bytes remove_message(const Numbers& numbers, const Keys& keys, bool force) {
  return packed([&](FlatBufferBuilder& b) {
    return wire::CreateRemoveRequestDirect(b, numbers.client, numbers.first, numbers.oldest_open,
                                           &keys.bytes, &keys.lengths, force);
  });
}

inline net::Bytes sweep_message(const Numbers& numbers, const std::string& pattern, bool force,
                                std::uint32_t cursor) {
  return packed([&](FlatBufferBuilder& b) {
    const std::vector<std::uint8_t> text(pattern.begin(), pattern.end());
    return wire::CreateSweepRequestDirect(b, numbers.client, numbers.first, numbers.oldest_open,
                                          &text, force, cursor);
  });
}

inline net::Bytes why_message(const Keys& keys, std::uint8_t most_events) {
  return packed([&](FlatBufferBuilder& b) {
    return wire::CreateWhyRequestDirect(b, &keys.bytes, &keys.lengths, most_events);
  });
}

struct Given {
  std::uint64_t id = 1;
  std::uint64_t incarnation = 1;
  std::uint64_t size = 100 * memory::kExtentUnit;
  bool with_id = true;
  std::string name = {};  // empty: by its id
  std::string host = "host";
};
inline net::Bytes mount_message(std::uint64_t client, std::uint64_t sequence,
                                std::uint32_t newest_epoch, const std::vector<Given>& given,
                                const std::string& client_name = "client") {
  return packed([&](FlatBufferBuilder& b) {
    std::vector<flatbuffers::Offset<wire::Segment>> segments;
    for (const Given& one : given) {
      const wire::Uuid id(one.id, 1);
      const std::string name = one.name.empty() ? "host" + std::to_string(one.id) : one.name;
      segments.push_back(wire::CreateSegment(b, b.CreateString(name), b.CreateString(one.host),
                                             one.with_id ? &id : nullptr, one.incarnation, one.id,
                                             4096, one.size, 77, one.size));
    }
    return wire::CreateMountRequest(b, client, sequence, newest_epoch, b.CreateString(client_name),
                                    b.CreateVector(segments));
  });
}

inline net::Bytes unmount_message(std::uint64_t client, std::uint64_t sequence,
                                  const std::vector<std::uint64_t>& ids,
                                  const std::vector<std::uint64_t>& incarnations,
                                  std::uint32_t grace_ms = 0) {
  return packed([&](FlatBufferBuilder& b) {
    std::vector<wire::Uuid> segments;
    for (const std::uint64_t id : ids)
      segments.emplace_back(id, 1);
    return wire::CreateUnmountRequestDirect(b, client, sequence, &segments, &incarnations,
                                            grace_ms);
  });
}

inline net::Bytes heartbeat_message(std::uint64_t client, std::uint64_t sequence) {
  return packed([&](FlatBufferBuilder& b) {
    return wire::CreateHeartbeatRequestDirect(b, client, sequence);
  });
}

}  // namespace mooncake::store::master::testing
