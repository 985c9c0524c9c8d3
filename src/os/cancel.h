// CancelToken: says to a task, and to what that waits for, that nobody wants its result any more.
#pragma once

#include <cassert>
#include <functional>
#include <list>
#include <utility>

namespace mooncake::os {

// Executor thread only. Outlives the tasks that it was given to; what ends early ends with
// kCancelled.
class CancelToken {
 public:
  CancelToken() = default;
  CancelToken(const CancelToken&) = delete;
  CancelToken& operator=(const CancelToken&) = delete;
  ~CancelToken() { assert(watches_.empty()); }

  // Once and for all. Ends what waits under the eyes of a Watch.
  void cancel() {
    cancelled_ = true;
    while (!watches_.empty()) {
      Watch* const watch = watches_.front();
      watches_.pop_front();
      watch->token_ = nullptr;
      watch->work_();
    }
  }
  bool cancelled() const { return cancelled_; }

  // Stands around a wait: runs `work`, which must end it, from inside cancel(), or here when that
  // has been called already. Without a token it never does.
  class Watch {
   public:
    Watch(CancelToken* token, std::function<void()> work) : work_(std::move(work)) {
      if (!token) return;
      if (token->cancelled_) {
        work_();
        return;
      }
      token_ = token;
      at_ = token->watches_.insert(token->watches_.end(), this);
    }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    ~Watch() {
      if (token_) token_->watches_.erase(at_);
    }

   private:
    friend class CancelToken;
    std::function<void()> work_;
    CancelToken* token_ = nullptr;  // null once `work` has run
    std::list<Watch*>::iterator at_;
  };

 private:
  bool cancelled_ = false;
  std::list<Watch*> watches_;
};

inline bool is_cancelled(const CancelToken* token) { return token && token->cancelled(); }

}  // namespace mooncake::os
