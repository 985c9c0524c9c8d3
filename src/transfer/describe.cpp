#include "transfer/describe.h"

#include <fmt/format.h>

#include "net/message.h"
#include "transfer/transfer_generated.h"

namespace mooncake::transfer {

net::Bytes encode_describe(std::span<const AskedRange> ranges) {
  std::vector<wire::AddressRange> asked;
  asked.reserve(ranges.size());
  for (const AskedRange& range : ranges)
    asked.emplace_back(range.address, range.length);
  flatbuffers::FlatBufferBuilder builder(64 + asked.size() * sizeof(wire::AddressRange));
  const bool guarded = !ranges.empty() && ranges.front().guarded;
  builder.Finish(
      wire::CreateDescribeRequest(builder, builder.CreateVectorOfStructs(asked), guarded));
  return net::copy_of(builder);
}

Result<std::vector<DescribedRegion>> decode_described(base::ConstBuffer body, std::size_t asked) {
  MC_TRY(const auto* const reply, net::verified<wire::DescribeReply>(body, "DescribeReply"));
  const std::size_t count = net::count_of(reply->regions());
  const std::size_t places = net::count_of(reply->places());
  const std::size_t words = net::count_of(reply->words());
  if (!net::are_aligned(reply->regions(), reply->places(), reply->words()) ||
      (places != 0 && places != count) || (words != 0 && words != count)) {
    return fail(Code::kProtocolError, "DescribeReply is malformed");
  }
  if (count != asked) {
    return fail(Code::kProtocolError,
                fmt::format("DescribeReply has {} regions, {} were asked for", count, asked));
  }
  std::vector<DescribedRegion> regions;
  regions.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<flatbuffers::uoffset_t>(i);
    const auto* const in = reply->regions()->Get(at);
    DescribedRegion region{in->base(), in->length(), static_cast<memory::RegionKey>(in->key())};
    if (places != 0) {
      const auto* const place = reply->places()->Get(at);
      region.pass = static_cast<memory::Pass>(place->pass());
      region.place = {place->pool(), place->offset()};
    }
    if (words != 0) region.words = reply->words()->Get(at);
    regions.push_back(region);
  }
  return regions;
}

Result<std::uint64_t> decode_first_address(base::ConstBuffer body) {
  MC_TRY(const auto* const reply, net::verified<wire::DescribeReply>(body, "DescribeReply"));
  return reply->first_address();
}

Result<net::Bytes> answer_describe(const memory::Registry& registry, base::ConstBuffer body) {
  MC_TRY(const auto* const request, net::verified<wire::DescribeRequest>(body, "DescribeRequest"));
  if (!net::are_aligned(request->ranges())) {
    return fail(Code::kProtocolError, "DescribeRequest is malformed");
  }
  const std::size_t count = net::count_of(request->ranges());
  if (count > kMaxDescribed) {
    return fail(Code::kInvalidArgument,
                fmt::format("DescribeRequest asks for {} ranges, limit {}", count, kMaxDescribed));
  }
  // Before the regions, so that a change in between shows as a newer generation.
  const std::uint64_t generation = registry.generation();
  std::vector<wire::RegionInfo> regions(count);
  std::vector<wire::RegionPlace> places(count);
  std::vector<std::uint64_t> words(request->guarded() ? count : 0);
  for (std::size_t i = 0; i < count; ++i) {
    const auto* const asked = request->ranges()->Get(static_cast<flatbuffers::uoffset_t>(i));
    const auto found = registry.find(asked->address(), asked->length());
    const bool is_guarded = found && found->extents;
    if (!found || is_guarded != request->guarded()) continue;
    regions[i] = wire::RegionInfo(found->base, found->length,
                                  is_guarded ? 0 : static_cast<std::uint64_t>(found->key));
    // Read-only memory is not for processes that could write to it unasked.
    if (found->permission != memory::Permission::kReadWrite) continue;
    const memory::SharedPlace place = registry.place_of(found->base, found->length);
    places[i] =
        wire::RegionPlace(static_cast<std::uint64_t>(found->pass), place.pool, place.offset);
    if (is_guarded) words[i] = found->words;
  }
  flatbuffers::FlatBufferBuilder builder(
      64 + count * (sizeof(wire::RegionInfo) + sizeof(wire::RegionPlace)));
  const auto region_vector = builder.CreateVectorOfStructs(regions);
  const auto place_vector = builder.CreateVectorOfStructs(places);
  const auto word_vector = request->guarded() ? builder.CreateVector(words) : 0;
  builder.Finish(wire::CreateDescribeReply(builder, generation, region_vector, place_vector,
                                           registry.first_address(), word_vector));
  return net::copy_of(builder);
}

}  // namespace mooncake::transfer
