// What the client says to the Master and hears from it, between plain structs and master.fbs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "mooncake/result.h"
#include "mooncake/why.h"
#include "net/rpc.h"
#include "store/types.h"

namespace mooncake::store {

// A number for each item of a command that changes objects; see master.fbs.
struct Numbers {
  std::uint64_t first = 0;
  std::uint64_t oldest_open = 0;
};

// Where a granted or located object lies.
struct PlacedObject {
  Code code = Code::kOk;
  std::uint64_t size = 0;  // located objects only
  base::Version version;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> replicas;  // index into segments, offset
};
struct PlacedBatch {
  std::vector<SegmentAddress> segments;
  std::vector<PlacedObject> objects;  // one for each asked item
  std::string shortage;               // grants: why the first item without space got none
};

struct OwnSegment {
  SegmentAddress address;
  std::uint64_t prepared = 0;
};
struct MountOutcome {
  base::Epoch epoch{};
  base::Duration heartbeat{};
  std::vector<Code> codes;  // one for each segment
};
struct FinishItem {
  std::string_view key;
  base::Version version;
  std::vector<base::SegmentIncarnation> arrived;  // kPublish: one per replica, 0 = did not arrive
};

net::Bytes encode_mount(ClientId client, std::uint64_t sequence, base::Epoch newest,
                        std::string_view name, std::span<const OwnSegment> segments);
// No segments: the client and all it has.
net::Bytes encode_unmount(ClientId client, std::uint64_t sequence,
                          std::span<const OwnSegment> segments, base::Duration grace);
net::Bytes encode_heartbeat(ClientId client, std::uint64_t sequence, base::Version newest,
                            std::span<const OwnSegment> segments);
// The config has passed check_config().
net::Bytes encode_grant(ClientId client, Numbers numbers, std::span<const std::string_view> keys,
                        std::span<const std::uint64_t> sizes, const ReplicateConfig& config,
                        bool upsert);
// `set_aside`, of kRevoke: an owner was busy; the extents are to rest for a while.
net::Bytes encode_finish(ClientId client, Numbers numbers, std::span<const FinishItem> items,
                         bool set_aside);
net::Bytes encode_keys(ClientId client, std::span<const std::string_view> keys);
net::Bytes encode_remove(ClientId client, Numbers numbers, std::span<const std::string_view> keys,
                         bool force);

// At most kMaxWhyKeys keys.
net::Bytes encode_why(std::span<const std::string_view> keys, std::size_t most_events);

net::Bytes encode_sweep(ClientId client, Numbers numbers, std::string_view pattern, bool force,
                        std::uint32_t cursor);

// Replies are a peer's bytes: verified, and their counts held against what was asked (`expected`).
// kProtocolError says what is wrong.
Result<MountOutcome> decode_mount(base::ConstBuffer body, std::size_t expected);
Result<PlacedBatch> decode_grant(base::ConstBuffer body, std::size_t expected);
Result<PlacedBatch> decode_locate(base::ConstBuffer body, std::size_t expected);
struct SweepStep {
  Code code = Code::kOk;
  std::uint64_t removed = 0;
  std::uint32_t cursor = 0;
};
inline constexpr std::uint32_t kSweepEnd = 0xFFFFFFFF;
Result<SweepStep> decode_sweep(base::ConstBuffer body);
// Facts and words of each of `keys`.
Result<std::vector<KeyReport>> decode_why(base::ConstBuffer body,
                                          std::span<const std::string_view> keys,
                                          std::size_t most_events);
Result<std::vector<Code>> decode_unmount(base::ConstBuffer body, std::size_t expected);
Result<std::vector<Code>> decode_codes(base::ConstBuffer body, std::size_t expected);

}  // namespace mooncake::store
