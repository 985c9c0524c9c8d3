// OpenCalls: who is inside an object that many threads use, so that its destructor can wait for
// them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>

namespace mooncake::os {

// Thread-safe.
class OpenCalls {
 public:
  // Somebody inside; empty when the door was closed.
  class Stay {
   public:
    Stay() = default;
    Stay(Stay&& other) noexcept : calls_(std::exchange(other.calls_, nullptr)) {}
    Stay& operator=(Stay&& other) noexcept {
      std::swap(calls_, other.calls_);
      return *this;
    }
    ~Stay() {
      if (calls_) calls_->leave();
    }
    explicit operator bool() const { return calls_ != nullptr; }

   private:
    friend class OpenCalls;
    explicit Stay(OpenCalls* calls) : calls_(calls) {}
    OpenCalls* calls_ = nullptr;
  };

  Stay enter() {
    std::lock_guard lock(mutex_);
    if (closed_) return Stay();
    ++inside_;
    return Stay(this);
  }
  // Nobody enters any more.
  void close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  // Blocks until all have left. This may then be destroyed.
  void wait_until_empty() {
    std::unique_lock lock(mutex_);
    empty_.wait(lock, [this] { return inside_ == 0; });
  }

 private:
  void leave() {
    std::lock_guard lock(mutex_);
    if (--inside_ == 0) empty_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable empty_;
  std::size_t inside_ = 0;  // guarded by mutex, as below
  bool closed_ = false;
};

}  // namespace mooncake::os
