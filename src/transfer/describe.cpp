#include "transfer/describe.h"

#include <fmt/format.h>

#include "transfer/wire.h"

namespace mooncake::transfer {

net::Bytes encode_describe(std::span<const AskedRange> ranges) {
  std::vector<wire::AddressRange> asked;
  asked.reserve(ranges.size());
  for (const AskedRange& range : ranges)
    asked.emplace_back(range.address, range.length);
  flatbuffers::FlatBufferBuilder builder(64 + asked.size() * sizeof(wire::AddressRange));
  builder.Finish(wire::CreateDescribeRequest(builder, builder.CreateVectorOfStructs(asked)));
  return copy_of(builder);
}

Result<std::vector<DescribedRegion>> decode_described(base::ConstBuffer body, std::size_t asked) {
  MC_TRY(const auto* const reply, verified<wire::DescribeReply>(body, "DescribeReply"));
  if (!is_aligned(reply->regions()))
    return fail(Code::kProtocolError, "DescribeReply is malformed");
  const std::size_t count = reply->regions() ? reply->regions()->size() : 0;
  if (count != asked) {
    return fail(Code::kProtocolError,
                fmt::format("DescribeReply has {} regions, {} were asked for", count, asked));
  }
  std::vector<DescribedRegion> regions;
  regions.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto* const region = reply->regions()->Get(static_cast<flatbuffers::uoffset_t>(i));
    regions.push_back(
        {region->base(), region->length(), static_cast<memory::RegionKey>(region->key())});
  }
  return regions;
}

Result<net::Bytes> answer_describe(const memory::Registry& registry, base::ConstBuffer body) {
  MC_TRY(const auto* const request, verified<wire::DescribeRequest>(body, "DescribeRequest"));
  if (!is_aligned(request->ranges())) {
    return fail(Code::kProtocolError, "DescribeRequest is malformed");
  }
  const std::size_t count = request->ranges() ? request->ranges()->size() : 0;
  if (count > kMaxDescribed) {
    return fail(Code::kInvalidArgument,
                fmt::format("DescribeRequest asks for {} ranges, limit {}", count, kMaxDescribed));
  }
  // Before the regions, so that a change in between shows as a newer generation.
  const std::uint64_t generation = registry.generation();
  std::vector<wire::RegionInfo> regions(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto* const asked = request->ranges()->Get(static_cast<flatbuffers::uoffset_t>(i));
    const auto found = registry.find(asked->address(), asked->length());
    if (!found || found->extents) continue;
    regions[i] =
        wire::RegionInfo(found->base, found->length, static_cast<std::uint64_t>(found->key));
  }
  flatbuffers::FlatBufferBuilder builder(64 + count * sizeof(wire::RegionInfo));
  builder.Finish(
      wire::CreateDescribeReply(builder, generation, builder.CreateVectorOfStructs(regions)));
  return copy_of(builder);
}

}  // namespace mooncake::transfer
