#include "transfer/submitted_batch.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "os/run_blocking.h"

namespace mooncake::transfer {

namespace {

// Up to this size the submitter copies by itself where it can: that takes no longer than to hand it
// over.
constexpr std::uint64_t kCopiedAtOnce = 256u << 10;
constexpr std::chrono::milliseconds kNoWait(0), kLongestWait = std::chrono::hours(24);

}  // namespace

SubmittedBatch::SubmittedBatch(Engine& engine, os::Executor& executor,
                               std::vector<TransferRequest> requests,
                               std::optional<Notification> notification, os::OpenCalls::Stay stay)
    : owner_(::getpid()),
      requests_(std::move(requests)),
      batch_(std::in_place, engine, requests_, std::move(notification)),
      stay_(std::move(stay)),
      executor_(&executor) {}

SubmittedBatch::~SubmittedBatch() = default;

bool SubmittedBatch::in_own_process() const { return ::getpid() == owner_; }

void SubmittedBatch::start(TimePoint deadline) {
  if (batch_->bytes() <= kCopiedAtOnce) {
    batch_->copy_directly(deadline);
  } else {
    batch_->copy_overlapping(deadline);
  }
  const bool started =
      batch_->has_rest() && os::run_behind(*executor_, batch_->finish(deadline, &cancel_),
                                           [self = shared_from_this()] { self->end(); });
  if (!started) end();
}

void SubmittedBatch::end() {
  outcome_ = batch_->take_outcome();
  batch_.reset();
  requests_ = {};
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard lock(mutex_);
    done_.store(true, std::memory_order_release);
    executor_ = nullptr;
    if (event_) signal_fd();
    callbacks = std::exchange(callbacks_, {});
    changed_.notify_all();
  }
  for (const auto& callback : callbacks)
    callback();
  callbacks.clear();
  // Last of all: from here on the engine may go.
  const os::OpenCalls::Stay left = std::move(stay_);
}

bool SubmittedBatch::wait(std::chrono::milliseconds timeout) const {
  if (done() || !in_own_process()) return done();
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::clamp(timeout, kNoWait, kLongestWait),
                           [this] { return done(); });
}

const TransferOutcome& SubmittedBatch::outcome() const {
  static const TransferOutcome kNone = [] {
    TransferOutcome none;
    none.status = fail(Code::kBatchBusy);
    return none;
  }();
  return done() ? outcome_ : kNone;
}

void SubmittedBatch::cancel() {
  if (done() || !in_own_process()) return;
  // Under the lock the batch can't end, so that the executor lives.
  std::lock_guard lock(mutex_);
  if (executor_) executor_->post([self = shared_from_this()] { self->cancel_.cancel(); });
}

int SubmittedBatch::completion_fd() {
  if (!in_own_process()) return -1;
  std::lock_guard lock(mutex_);
  if (!event_) {
    event_ = os::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (event_ && done()) signal_fd();
  }
  return event_.get();
}

void SubmittedBatch::signal_fd() const { static_cast<void>(::eventfd_write(event_.get(), 1)); }

void SubmittedBatch::on_done(std::function<void()> callback) {
  if (!done()) {
    if (!in_own_process()) return;
    std::lock_guard lock(mutex_);
    if (!done()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

}  // namespace mooncake::transfer
