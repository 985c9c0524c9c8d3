#include "transfer/inbox.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "net/message.h"
#include "transfer/transfer_generated.h"

namespace mooncake::transfer {

namespace {

Result<void> check_length(std::string_view what, std::size_t length, std::size_t limit) {
  if (length <= limit) return {};
  return fail(Code::kInvalidArgument,
              fmt::format("{} of a notification has {} bytes, limit {}", what, length, limit));
}

flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> bytes_in(
    flatbuffers::FlatBufferBuilder& builder, const std::string& text) {
  return builder.CreateVector(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

std::string text_of(const flatbuffers::Vector<std::uint8_t>* bytes) {
  if (!bytes) return {};
  return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
}

}  // namespace

Result<void> check_notification(const Notification& notification) {
  MC_CHECK(check_length("the name", notification.name.size(), kMaxNotificationName));
  return check_length("the message", notification.message.size(), kMaxNotificationMessage);
}

Result<void> Inbox::add(Notification notification) {
  MC_CHECK(check_notification(notification));
  const std::size_t bytes = notification.name.size() + notification.message.size();
  std::lock_guard lock(mutex_);
  if (notifications_.size() >= kMaxInboxEntries || bytes > kMaxInboxBytes - bytes_) {
    return fail(Code::kBusy, fmt::format("inbox is full: {} notifications, {} bytes",
                                         notifications_.size(), bytes_));
  }
  notifications_.push_back(std::move(notification));
  bytes_ += bytes;
  return {};
}

std::vector<Notification> Inbox::take_all() {
  std::lock_guard lock(mutex_);
  bytes_ = 0;
  return std::exchange(notifications_, {});
}

net::Bytes encode_notify(const Notification& notification) {
  flatbuffers::FlatBufferBuilder builder(64 + notification.name.size() +
                                         notification.message.size());
  const auto name = bytes_in(builder, notification.name);
  const auto message = bytes_in(builder, notification.message);
  builder.Finish(wire::CreateNotifyRequest(builder, name, message));
  return net::copy_of(builder);
}

Result<net::Bytes> answer_notify(Inbox& inbox, base::ConstBuffer body) {
  MC_TRY(const auto* const request, net::verified<wire::NotifyRequest>(body, "NotifyRequest"));
  // Before they are copied.
  MC_CHECK(check_length("the name", net::count_of(request->name()), kMaxNotificationName));
  MC_CHECK(check_length("the message", net::count_of(request->message()), kMaxNotificationMessage));
  Notification notification;
  notification.name = text_of(request->name());
  notification.message = text_of(request->message());
  MC_CHECK(inbox.add(std::move(notification)));
  flatbuffers::FlatBufferBuilder builder(64);
  builder.Finish(wire::CreateNotifyReply(builder));
  return net::copy_of(builder);
}

}  // namespace mooncake::transfer
