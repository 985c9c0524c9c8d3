#include "demo_control.h"

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"

namespace mooncake::demo {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Setup, role, name, master, segment_bytes, block_bytes, slots,
                                   slot_blocks, seed, replicas, path)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DecodePeer, name, segment, address)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Peers, decode)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Corruption, position, offset)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Slot, request, decode, slot)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Verify, request, slot, first, ids)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ready, segment, address)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Found, request, hits)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Call, bytes, microseconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WrongBlock, request, block, position, offset, node, stage)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Check, bytes, wrong_blocks, wrong)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Stored, request, up_to, not_stored, get, put, check)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Handed, request, first, count, last, call, reasons)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Verified, request, slot, check)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Stopped, bytes_by_path)

namespace {

using Json = nlohmann::json;

// In the order of Message's alternatives.
constexpr std::array<std::string_view, std::variant_size_v<Message>> kTypes = {
    "setup", "peers", "work",   "slot",   "verify",   "stop",
    "ready", "found", "stored", "handed", "verified", "stopped"};

void to_json(Json& out, const Stop&) { out = Json::object(); }
void from_json(const Json&, Stop&) {}

// By hand for the optional.
void to_json(Json& out, const Work& work) {
  out = {{"request", work.request}, {"ids", work.ids}};
  if (work.corruption) out["corruption"] = *work.corruption;
}
void from_json(const Json& in, Work& work) {
  in.at("request").get_to(work.request);
  in.at("ids").get_to(work.ids);
  const auto corruption = in.find("corruption");
  if (corruption != in.end()) work.corruption = corruption->get<Corruption>();
}

template <std::size_t I = 0>
Message read_as(std::size_t type, const Json& json) {
  if constexpr (I < std::variant_size_v<Message>) {
    if (type != I) return read_as<I + 1>(type, json);
    std::variant_alternative_t<I, Message> message;
    from_json(json, message);
    return message;
  }
  return Message();
}

auto refuse(std::string_view line, std::string_view why) {
  return fail(Code::kProtocolError,
              fmt::format("control message {}: {}", base::quote(line.substr(0, 200)), why));
}

}  // namespace

std::string encode(const Message& message) {
  Json json = std::visit(
      [](const auto& value) {
        Json out;
        to_json(out, value);
        return out;
      },
      message);
  json["type"] = kTypes[message.index()];
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Message> decode(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return refuse(line, "is not a JSON object");
  try {
    const auto& type = json.at("type").get_ref<const std::string&>();
    for (std::size_t i = 0; i < kTypes.size(); ++i) {
      if (type == kTypes[i]) return read_as(i, json);
    }
    return refuse(line, "has an unknown type");
  } catch (const Json::exception& error) {
    return refuse(line, error.what());
  }
}

ControlChannel::ControlChannel(int fd) : fd_(fd) {}
ControlChannel::~ControlChannel() { close(); }

ControlChannel::ControlChannel(ControlChannel&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      outgoing_(std::move(other.outgoing_)),
      sent_(std::exchange(other.sent_, 0)),
      incoming_(std::move(other.incoming_)) {}

ControlChannel& ControlChannel::operator=(ControlChannel&& other) noexcept {
  if (this == &other) return *this;
  close();
  fd_ = std::exchange(other.fd_, -1);
  outgoing_ = std::move(other.outgoing_);
  sent_ = std::exchange(other.sent_, 0);
  incoming_ = std::move(other.incoming_);
  return *this;
}

void ControlChannel::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void ControlChannel::shut_down() {
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
}

void ControlChannel::send(const Message& message) {
  outgoing_ += encode(message);
  outgoing_ += '\n';
  flush();
}

void ControlChannel::send_all(const Message& message) {
  send(message);
  while (has_unsent()) {
    pollfd entry = {fd_, POLLOUT, 0};
    ::poll(&entry, 1, -1);
    flush();
  }
}

void ControlChannel::flush() {
  while (has_unsent()) {
    const ssize_t n = ::send(fd_, outgoing_.data() + sent_, outgoing_.size() - sent_,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0) break;
    sent_ += static_cast<std::size_t>(n);
  }
  outgoing_.clear();
  sent_ = 0;
}

Result<std::vector<Message>> ControlChannel::receive() {
  constexpr std::size_t kChunk = 65536;
  std::vector<Message> messages;
  for (;;) {
    const std::size_t old = incoming_.size();
    incoming_.resize(old + kChunk);
    const ssize_t n = ::recv(fd_, incoming_.data() + old, kChunk, MSG_DONTWAIT);
    const int error = errno;
    incoming_.resize(old + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && error == EINTR) continue;
    if (n < 0 && (error == EAGAIN || error == EWOULDBLOCK)) return messages;
    if (n <= 0) {
      // What came before the end counts; the end is seen again by the next call.
      if (!messages.empty()) return messages;
      return fail(Code::kConnectionLost, n == 0 ? "end of the control stream" : strerror(error));
    }
    std::size_t begin = 0;
    std::size_t from = old;
    for (std::size_t end; (end = incoming_.find('\n', from)) != std::string::npos;) {
      MC_TRY(Message message, decode(std::string_view(incoming_).substr(begin, end - begin)));
      messages.push_back(std::move(message));
      begin = from = end + 1;
    }
    incoming_.erase(0, begin);
    if (incoming_.size() > kMaxLineBytes) {
      return refuse(incoming_, fmt::format("is longer than {} bytes", kMaxLineBytes));
    }
  }
}

}  // namespace mooncake::demo
