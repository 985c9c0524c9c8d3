#include "net/send_queue.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

namespace mooncake::net {
namespace {

constexpr std::size_t kChunk = 64u << 10;         // small frames that wait lie together
constexpr std::size_t kSmallPiece = 16u << 10;    // pieces of sources below this are gathered
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

void Outgoing::ask() {
  if (!abandoned_ && !source_.live()) abandoned_ = true;
  if (abandoned_) {
    unasked_ += std::exchange(piece_, {}).size();
    return;
  }
  if (gathered_rest().empty()) {
    gathered_.clear();
    gathered_sent_ = 0;
  }
  while (piece_.empty() && unasked_ > 0 && gathered_.size() < kChunk) {
    const base::ConstBuffer next = source_.next(unasked_);
    assert(!next.empty() && next.size() <= unasked_);
    unasked_ -= next.size();
    if (next.size() < kSmallPiece) {
      gathered_.insert(gathered_.end(), next.begin(), next.end());
    } else {
      piece_ = next;
    }
  }
}

bool Outgoing::gather(Pieces& pieces) {
  ask();
  if (!pieces.add(gathered_rest()) || !pieces.add(piece_)) return false;
  return abandoned_ ? pieces.add_zeros(unasked_) : unasked_ == 0;
}

std::size_t Outgoing::advance(std::size_t sent) {
  std::size_t step = std::min(sent, gathered_rest().size());
  gathered_sent_ += step;
  sent -= step;
  step = std::min(sent, piece_.size());
  piece_ = piece_.subspan(step);
  sent -= step;
  if (abandoned_) {
    step = std::min(sent, unasked_);
    unasked_ -= step;
    sent -= step;
  }
  return sent;
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
