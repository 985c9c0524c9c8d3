// Inbox: notifications of peers that the process has not taken yet, and their messages.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "base/buffers.h"
#include "mooncake/transfer.h"
#include "net/rpc.h"

namespace mooncake::transfer {

inline constexpr std::size_t kMaxNotificationName = 4u << 10;     // bytes
inline constexpr std::size_t kMaxNotificationMessage = 1u << 20;  // bytes
inline constexpr std::size_t kMaxInboxEntries = 65536;
inline constexpr std::size_t kMaxInboxBytes = 16u << 20;  // of names and messages

// Keeps the order of arrival. Thread-safe.
class Inbox {
 public:
  // kInvalidArgument when it is too long, kBusy when the inbox is full.
  Result<void> add(Notification notification);
  std::vector<Notification> take_all();

 private:
  std::mutex mutex_;
  std::vector<Notification> notifications_;  // guarded by mutex, as all below
  std::size_t bytes_ = 0;
};

// kInvalidArgument names the limit.
Result<void> check_notification(const Notification& notification);
net::Bytes encode_notify(const Notification& notification);
// The receiver's side.
Result<net::Bytes> answer_notify(Inbox& inbox, base::ConstBuffer body);

}  // namespace mooncake::transfer
