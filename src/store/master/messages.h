// Messages of clients: checked bytes in, commands out; effects in, replies out.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/buffers.h"
#include "net/frame.h"
#include "net/rpc.h"
#include "store/master/core.h"

namespace mooncake::store::master {

// A command and what it points to. Keys point into the message's body, which must outlive it.
struct Request {
  Command command;
  std::vector<CommandItem> items;
  std::vector<base::SegmentIncarnation> incarnations;
  std::vector<MountedSegment> segments;
  std::vector<std::string_view> preferred;  // into the message's body

  // Effects that the command asks for: one per item, or per segment.
  std::size_t outcomes() const {
    return command.items.empty() ? command.segments.size() : command.items.size();
  }
};

// A peer's bytes: verified as a whole, every length held against its neighbours, counts against
// kMaxBatch and kMaxSegmentsPerMessage, and names fit to be shown (base::name_fault).
// kInvalidArgument says what is wrong.
inline constexpr std::size_t kMaxSegmentsPerMessage = 256;
Result<Request> parse_request(net::Method method, base::ConstBuffer body);

// kWhy, which is a question to the core and no command. Keys point into the message's body.
struct WhyQuestion {
  std::vector<std::string_view> keys;
  std::size_t most_events = 0;
};
// Likewise checked; an empty or over-long key is kInvalidArgument for all of them.
Result<WhyQuestion> parse_why(base::ConstBuffer body);

struct MountTerms {
  Epoch epoch{};
  base::Duration client_ttl{};
  base::Duration heartbeat{};
};
net::Bytes encode_mount_reply(const MountTerms& terms, std::span<const Effect> effects);
net::Bytes encode_heartbeat_reply(Epoch epoch);
net::Bytes encode_codes_reply(std::span<const Effect> effects);
net::Bytes encode_unmount_reply(std::span<const Effect> effects);
net::Bytes encode_sweep_reply(const Effect& effect);
// At most kMaxWhyKeys reports, of one Master.
net::Bytes encode_why_reply(std::span<const KeyReport> reports);
net::Bytes encode_grant_reply(const Core& core, const Effects& effects);
net::Bytes encode_locate_reply(const Core& core, const Effects& effects, base::Duration lease);

}  // namespace mooncake::store::master
