#include "transfer/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "net/message.h"
#include "transfer/transfer_generated.h"

namespace mooncake::transfer {

namespace {

using memory::ExtentRecord;

wire::Attempt to_wire(AttemptId id) {
  return wire::Attempt(static_cast<std::uint64_t>(id.engine), id.batch, id.slice, id.attempt,
                       id.oldest_open_batch);
}

AttemptId from_wire(const wire::Attempt& attempt) {
  AttemptId id;
  id.engine = static_cast<base::Incarnation>(attempt.engine());
  id.batch = attempt.batch();
  id.slice = attempt.slice();
  id.attempt = attempt.attempt();
  id.oldest_open_batch = attempt.oldest_open_batch();
  return id;
}

std::vector<wire::Range> ranges_of(std::span<const Slice> slices) {
  std::vector<wire::Range> ranges;
  ranges.reserve(slices.size());
  for (const Slice& slice : slices) {
    ranges.emplace_back(slice.remote, slice.length, static_cast<std::uint64_t>(slice.key),
                        slice.guard, slice.extent);
  }
  return ranges;
}

std::vector<std::uint8_t> records_of(std::span<const Slice> slices) {
  std::vector<std::uint8_t> records;
  for (const Slice& slice : slices) {
    if (slice.guard == 0 || !slice.record) continue;
    const auto* const record = reinterpret_cast<const std::uint8_t*>(slice.record);
    records.insert(records.end(), record, record + sizeof(ExtentRecord));
    records.insert(records.end(), slice.record_key.begin(), slice.record_key.end());
  }
  return records;
}

using Numbers = flatbuffers::Vector<std::uint16_t>;

// None at all when all are kOk.
flatbuffers::Offset<Numbers> numbers_of(std::span<const Code> codes,
                                        flatbuffers::FlatBufferBuilder& builder) {
  if (std::ranges::all_of(codes, [](Code code) { return code == Code::kOk; })) return 0;
  std::vector<std::uint16_t> values;
  values.reserve(codes.size());
  for (const Code code : codes)
    values.push_back(static_cast<std::uint16_t>(code));
  return builder.CreateVector(values);
}

Result<void> apply_numbers(const Numbers* codes, std::span<Slice> slices) {
  const std::size_t count = codes ? codes->size() : 0;
  if (count != 0 && count != slices.size()) {
    return fail(Code::kProtocolError,
                fmt::format("a reply has {} codes for {} ranges", count, slices.size()));
  }
  for (std::size_t i = 0; i < slices.size(); ++i) {
    slices[i].code =
        count == 0 ? Code::kOk : code_from_wire(codes->Get(static_cast<flatbuffers::uoffset_t>(i)));
  }
  return {};
}

// Both requests have these.
template <typename Request>
Result<TransferMessage> decode_ranges(const Request& request,
                                      std::uint64_t most_bytes = kMaxRequestBytes) {
  const auto* const ranges = request.ranges();
  if (!request.attempt() || !ranges || ranges->size() == 0 || !net::are_aligned(ranges)) {
    return fail(Code::kProtocolError, "a transfer without attempt or ranges");
  }
  if (ranges->size() > kMaxRequestRanges) {
    return fail(Code::kInvalidArgument, fmt::format("{} ranges in one request, limit {}",
                                                    ranges->size(), kMaxRequestRanges));
  }
  TransferMessage message;
  message.attempt = from_wire(*request.attempt());
  message.receiver = static_cast<base::Incarnation>(request.receiver());
  message.ranges.reserve(ranges->size());
  for (const wire::Range* const range : *ranges) {
    if (range->length() > most_bytes - message.bytes) {
      return fail(Code::kInvalidArgument,
                  fmt::format("{} bytes at {:#x} are too many for one request, limit {}",
                              range->length(), range->address(), most_bytes));
    }
    message.bytes += range->length();
    RemoteRange& remote = message.ranges.emplace_back();
    remote.address = range->address();
    remote.length = range->length();
    remote.key = static_cast<memory::RegionKey>(range->key());
    remote.guard = range->guard();
    remote.extent = range->extent();
  }
  return message;
}

// Cuts the bytes into one record with its key for each guarded range.
Result<void> decode_records(base::ConstBuffer bytes, std::size_t record_size,
                            TransferMessage& message) {
  if (record_size < sizeof(ExtentRecord)) {
    return fail(Code::kProtocolError, fmt::format("records of {} bytes", record_size));
  }
  const auto guarded = std::count_if(message.ranges.begin(), message.ranges.end(),
                                     [](const RemoteRange& range) { return range.guard != 0; });
  for (auto left = guarded; left > 0; --left) {
    ExtentRecord record;
    if (bytes.size() < record_size) return fail(Code::kProtocolError, "a record is missing");
    std::memcpy(&record, bytes.data(), sizeof(record));
    bytes = bytes.subspan(record_size);
    if (record.key_length > bytes.size()) return fail(Code::kProtocolError, "a key is missing");
    message.records.push_back(record);
    message.keys.push_back(base::as_text(bytes.first(record.key_length)));
    bytes = bytes.subspan(record.key_length);
  }
  if (!bytes.empty()) return fail(Code::kProtocolError, "bytes behind the last record");
  return {};
}

}  // namespace

net::Bytes encode_write(AttemptId id, base::Incarnation receiver, std::span<const Slice> slices) {
  const std::vector<std::uint8_t> records = records_of(slices);
  flatbuffers::FlatBufferBuilder builder(128 + slices.size() * sizeof(wire::Range) +
                                         records.size());
  const auto ranges = builder.CreateVectorOfStructs(ranges_of(slices));
  const auto record_bytes = records.empty() ? 0 : builder.CreateVector(records);
  const wire::Attempt attempt = to_wire(id);
  builder.Finish(wire::CreateWriteRequest(builder, &attempt, static_cast<std::uint64_t>(receiver),
                                          ranges, sizeof(ExtentRecord), record_bytes));
  return net::copy_of(builder);
}

net::Bytes encode_read(AttemptId id, base::Incarnation receiver, std::span<const Slice> slices) {
  flatbuffers::FlatBufferBuilder builder(128 + slices.size() * sizeof(wire::Range));
  const auto ranges = builder.CreateVectorOfStructs(ranges_of(slices));
  const wire::Attempt attempt = to_wire(id);
  builder.Finish(
      wire::CreateReadRequest(builder, &attempt, static_cast<std::uint64_t>(receiver), ranges));
  return net::copy_of(builder);
}

net::Bytes encode_fence(AttemptId id, base::Incarnation receiver) {
  flatbuffers::FlatBufferBuilder builder(128);
  builder.Finish(wire::CreateFenceRequest(
      builder, static_cast<std::uint64_t>(receiver), id.oldest_open_batch,
      static_cast<std::uint64_t>(id.engine), id.batch, id.slice, id.attempt));
  return net::copy_of(builder);
}

net::Bytes encode_codes(std::span<const Code> codes) {
  flatbuffers::FlatBufferBuilder builder(64);
  const auto numbers = numbers_of(codes, builder);
  builder.Finish(wire::CreateTransferReply(builder, numbers));
  return net::copy_of(builder);
}

net::Bytes encode_begun(std::span<const Code> codes, memory::Pass pass) {
  flatbuffers::FlatBufferBuilder builder(64);
  const auto numbers = numbers_of(codes, builder);
  builder.Finish(wire::CreateBeginWriteReply(builder, numbers, static_cast<std::uint64_t>(pass)));
  return net::copy_of(builder);
}

net::Bytes encode_end(AttemptId id, base::Incarnation receiver, const std::vector<bool>& arrived) {
  flatbuffers::FlatBufferBuilder builder(128 + arrived.size());
  const auto bytes =
      builder.CreateVector(std::vector<std::uint8_t>(arrived.begin(), arrived.end()));
  const wire::Attempt attempt = to_wire(id);
  builder.Finish(
      wire::CreateEndWriteRequest(builder, &attempt, static_cast<std::uint64_t>(receiver), bytes));
  return net::copy_of(builder);
}

net::Bytes encode_fenced() {
  flatbuffers::FlatBufferBuilder builder(64);
  builder.Finish(wire::CreateFenceReply(builder));
  return net::copy_of(builder);
}

Result<void> apply_codes(base::ConstBuffer reply, std::span<Slice> slices) {
  MC_TRY(const auto* const table, net::verified<wire::TransferReply>(reply, "TransferReply"));
  return apply_numbers(table->codes(), slices);
}

Result<memory::Pass> apply_begun(base::ConstBuffer reply, std::span<Slice> slices) {
  MC_TRY(const auto* const table, net::verified<wire::BeginWriteReply>(reply, "BeginWriteReply"));
  MC_CHECK(apply_numbers(table->codes(), slices));
  return static_cast<memory::Pass>(table->pass());
}

Result<TransferMessage> decode_write(base::ConstBuffer body) {
  MC_TRY(const auto* const request, net::verified<wire::WriteRequest>(body, "WriteRequest"));
  MC_TRY(TransferMessage message, decode_ranges(*request));
  base::ConstBuffer records;
  if (request->records()) {
    records = {reinterpret_cast<const std::byte*>(request->records()->data()),
               request->records()->size()};
  }
  MC_CHECK(decode_records(records, request->record_bytes(), message));
  return message;
}

Result<TransferMessage> decode_read(base::ConstBuffer body) {
  MC_TRY(const auto* const request, net::verified<wire::ReadRequest>(body, "ReadRequest"));
  return decode_ranges(*request);
}

Result<TransferMessage> decode_pin(base::ConstBuffer body) {
  MC_TRY(const auto* const request, net::verified<wire::ReadRequest>(body, "ReadRequest"));
  return decode_ranges(*request, std::numeric_limits<std::uint64_t>::max());
}

Result<EndMessage> decode_end(base::ConstBuffer body) {
  MC_TRY(const auto* const request, net::verified<wire::EndWriteRequest>(body, "EndWriteRequest"));
  if (!request->attempt() || net::count_of(request->arrived()) > kMaxRequestRanges) {
    return fail(Code::kProtocolError, "EndWriteRequest is malformed");
  }
  EndMessage message;
  message.attempt = from_wire(*request->attempt());
  message.receiver = static_cast<base::Incarnation>(request->receiver());
  for (std::size_t i = 0; i < net::count_of(request->arrived()); ++i) {
    message.arrived.push_back(request->arrived()->Get(static_cast<flatbuffers::uoffset_t>(i)) != 0);
  }
  return message;
}

Result<FenceMessage> decode_fence(base::ConstBuffer body) {
  MC_TRY(const auto* const request, net::verified<wire::FenceRequest>(body, "FenceRequest"));
  FenceMessage message;
  message.receiver = static_cast<base::Incarnation>(request->receiver());
  message.attempt.engine = static_cast<base::Incarnation>(request->engine());
  message.attempt.batch = request->batch();
  message.attempt.slice = request->slice();
  message.attempt.attempt = request->up_to_attempt();
  message.attempt.oldest_open_batch = request->oldest_open_batch();
  return message;
}

}  // namespace mooncake::transfer
