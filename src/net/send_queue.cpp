#include "net/send_queue.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "os/user_memory.h"

namespace mooncake::net {
namespace {

constexpr std::size_t kChunk = 64u << 10;         // small frames that wait lie together
constexpr std::size_t kTinyPiece = 512;           // below this on average a copy is cheaper
constexpr std::size_t kMaxGiven = 248;            // pieces of a source for one system call
constexpr std::size_t kMaxSystemCall = 1u << 20;  // bytes for one system call

constexpr std::array<std::byte, 64u << 10> kZeros{};

}  // namespace

bool Pieces::add(base::ConstBuffer bytes) {
  if (bytes.empty()) return true;
  if (count_ == kMaxPieces) return false;
  const std::size_t size = std::min(bytes.size(), kMaxSystemCall - total_);
  if (size > 0) {
    iov_[count_++] = {const_cast<std::byte*>(bytes.data()), size};
    total_ += size;
  }
  return size == bytes.size();
}

bool Pieces::add_zeros(std::size_t size) {
  while (size > 0) {
    const std::size_t step = std::min(size, kZeros.size());
    if (!add(base::ConstBuffer(kZeros).first(step))) return false;
    size -= step;
  }
  return true;
}

msghdr Pieces::message() {
  msghdr result{};
  result.msg_iov = iov_;
  result.msg_iovlen = count_;
  return result;
}

void Outgoing::abandon() {
  abandoned_ = true;
  for (; first_ < given_.size(); ++first_)
    unasked_ += given_[first_].size();
}

void Outgoing::ask() {
  if (!abandoned_ && !source_.live()) abandon();
  if (abandoned_ || first_ < given_.size() || unasked_ == 0) return;
  given_.resize(std::min(kMaxGiven, unasked_));
  const std::size_t size = std::min(unasked_, kMaxSystemCall);
  given_.resize(source_.next_all(size, given_));
  assert(!given_.empty());
  first_ = 0;
  const std::size_t total = base::total_size(given_);
  assert(total <= size);
  unasked_ -= total;
  is_copied_ = false;
  if (total / given_.size() < kTinyPiece) copy_tiny_pieces();
}

// Those that can't be read stay as they are: the system call will say so.
void Outgoing::copy_tiny_pieces() {
  copied_.resize(base::total_size(given_));
  is_copied_ = os::gather_from_user(copied_.data(), given_);
  if (is_copied_) given_.assign(1, base::ConstBuffer(copied_));
}

bool Outgoing::gather(Pieces& pieces) {
  ask();
  if (first_ < given_.size() && !is_copied_) pieces.note_user_memory();
  for (std::size_t i = first_; i < given_.size(); ++i) {
    if (!pieces.add(given_[i])) return false;
  }
  return abandoned_ ? pieces.add_zeros(unasked_) : unasked_ == 0;
}

std::size_t Outgoing::advance(std::size_t sent) {
  while (first_ < given_.size() && sent > 0) {
    base::ConstBuffer& piece = given_[first_];
    const std::size_t step = std::min(sent, piece.size());
    piece = piece.subspan(step);
    sent -= step;
    if (piece.empty()) ++first_;
  }
  if (!abandoned_) return sent;
  const std::size_t step = std::min(sent, unasked_);
  unasked_ -= step;
  return sent - step;
}

void SendQueue::append(base::ConstBuffer bytes) {
  if (items_.empty() || items_.back().frame ||
      items_.back().bytes.size() + bytes.size() >
          std::max(kChunk, items_.back().bytes.capacity())) {
    add_item().bytes = std::exchange(spare_, {});
  }
  std::vector<std::byte>& last = items_.back().bytes;
  last.insert(last.end(), bytes.begin(), bytes.end());
  copied_bytes_ += bytes.size();
}

void SendQueue::append(base::ConstBuffers parts, std::size_t total) {
  if (total > kChunk) add_item().bytes.reserve(total);
  for (base::ConstBuffer part : parts)
    append(part);
}

void SendQueue::append(Outgoing& frame) { add_item().frame = &frame; }

Backlog SendQueue::backlog() const {
  if (items_.empty()) return {};
  return {copied_bytes_, items_.front().since};
}

void SendQueue::gather(Pieces& pieces) {
  for (Item& item : items_) {
    const bool more = item.frame ? item.frame->gather(pieces)
                                 : pieces.add(base::ConstBuffer(item.bytes).subspan(item.sent));
    if (!more) return;
  }
}

std::vector<Outgoing*> SendQueue::consume(std::size_t sent) {
  std::vector<Outgoing*> left;
  while (!items_.empty()) {
    Item& item = items_.front();
    if (item.frame) {
      sent = item.frame->advance(sent);
      if (!item.frame->empty()) break;
      item.frame->result.emplace();
      left.push_back(item.frame);
    } else {
      const std::size_t step = std::min(sent, item.bytes.size() - item.sent);
      item.sent += step;
      sent -= step;
      if (item.sent < item.bytes.size()) break;
      copied_bytes_ -= item.sent;
      if (item.bytes.capacity() <= kChunk) {
        spare_ = std::move(item.bytes);
        spare_.clear();
      }
    }
    items_.pop_front();
  }
  return left;
}

std::vector<Outgoing*> SendQueue::drop(const Error& reason) {
  std::vector<Outgoing*> dropped;
  for (Item& item : items_) {
    if (!item.frame) continue;
    item.frame->result.emplace(fail(reason));
    dropped.push_back(item.frame);
  }
  items_.clear();
  spare_ = {};
  copied_bytes_ = 0;
  return dropped;
}

}  // namespace mooncake::net
