#include "net/rpc_codec.h"

#include <algorithm>
#include <limits>
#include <new>

#include "net/common_generated.h"
#include "net/message.h"

namespace mooncake::net {
namespace {

constexpr std::size_t kMaxDetail = 1024;
constexpr std::size_t kGrowth = 64u << 10;

// Cut between characters: a detail is text for people.
std::string_view cut(std::string_view text) {
  if (text.size() <= kMaxDetail) return text;
  std::size_t end = kMaxDetail;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  return text.substr(0, end);
}

class BodySink final : public PayloadSink {
 public:
  explicit BodySink(Bytes& body) : body_(body) {}
  std::span<std::byte> prepare(std::size_t remaining) override {
    if (body_.size() == filled_) {
      body_.resize(filled_ + std::min(remaining, std::max(filled_, kGrowth)));
    }
    return std::span<std::byte>(body_).subspan(filled_);
  }
  void commit(std::size_t size) override { filled_ += size; }

 private:
  Bytes& body_;
  std::size_t filled_ = 0;
};

}  // namespace

Bytes encode_error(const Error& error) {
  flatbuffers::FlatBufferBuilder builder(256);
  const std::string_view detail = cut(error.detail());
  const auto text = builder.CreateString(detail.data(), detail.size());
  builder.Finish(wire::CreateErrorReply(builder, static_cast<std::uint16_t>(error.code()),
                                        error.store_code(), error.retriable(),
                                        error.retry_after_ms(), text));
  return copy_of(builder);
}

Error decode_error(base::ConstBuffer body) {
  const auto* reply = verified_root<wire::ErrorReply>(body);
  if (!reply) return Error(Code::kProtocolError, "error reply cannot be read");
  Code code = code_from_wire(reply->code());
  if (code == Code::kOk) code = Code::kInternal;
  const std::string_view detail = reply->detail()
                                      ? cut({reply->detail()->c_str(), reply->detail()->size()})
                                      : std::string_view();
  return Error(code, detail).with_retry_after(reply->retry_after_ms());
}

Task<Result<Bytes>> receive_body(Channel& channel, std::size_t size) {
  Bytes body;
  try {
    body.reserve(size);
  } catch (const std::bad_alloc&) {
    co_return fail(Code::kOutOfMemory, "body of " + std::to_string(size) + " bytes");
  }
  if (size > 0) {
    BodySink sink(body);
    MC_CO_CHECK(co_await channel.receive_payload(sink, size));
  }
  co_return body;
}

Task<Result<void>> discard_payload(Channel& channel, PayloadSink& sink, std::size_t size) {
  if (size == 0) co_return Result<void>();
  co_return co_await channel.receive_payload(sink, size);
}

std::uint32_t remaining_us(base::TimePoint now, base::TimePoint deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline - now).count();
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(left, 1, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace mooncake::net
