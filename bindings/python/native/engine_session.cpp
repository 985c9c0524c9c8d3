#include "native/engine_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "native/interpreter.h"
#include "net/runtime.h"
#include "os/cancel.h"
#include "os/run_blocking.h"
#include "transfer/engine.h"
#include "transfer/inbox.h"
#include "transfer/request_batch.h"

namespace mooncake::python {

namespace {

constexpr std::chrono::hours kLongest{24};
constexpr std::size_t kMostFailing = 1024;
constexpr std::chrono::milliseconds kLookUp{100};  // while a call waits
constexpr std::chrono::minutes kRepeat{1};         // of a line about failures of one kind

// The message without its numbers: addresses and lengths differ from one failure to the next.
std::string kind_of(std::string_view message) {
  std::string kind;
  bool in_word = false;
  bool in_number = false;
  for (const char c : message) {
    const bool digit = '0' <= c && c <= '9';
    const bool letter = ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z');
    if (digit && !in_word) in_number = true;  // goes on through letters, as in 0x7f
    if (!digit && !letter) in_number = false;
    in_word = letter && !in_number;
    if (!in_number) kind += c;
  }
  return kind;
}

// One byte adds one nanosecond.
std::chrono::milliseconds time_for(std::span<const TransferRequest> requests) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::chrono::nanoseconds(kLongest).count());
  std::uint64_t bytes = 0;
  for (const TransferRequest& request : requests)
    bytes = std::min(kMost, bytes + std::min(kMost, request.length));
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::nanoseconds(bytes));
}

// Returns by the batch's deadline; soon, once a signal handler has raised, which sets `given_up`.
void wait_for(TransferBatch& batch, bool& given_up) {
  while (!batch.wait(kLookUp)) {
    given_up = given_up || interrupted();
    if (given_up) batch.cancel();
  }
}

base::Task<bool> finish(transfer::RequestBatch& batch, base::TimePoint deadline,
                        os::CancelToken& cancel) {
  co_await batch.finish(deadline, &cancel);
  co_return true;
}

// As TransferEngine::transfer(), but a signal handler that raises ends it. The caller holds the
// session, so that the engine stays.
TransferOutcome transfer_interruptibly(TransferEngine& engine,
                                       std::span<const TransferRequest> requests,
                                       std::chrono::milliseconds timeout,
                                       const std::optional<Notification>& notification) {
  const os::Env env = engine.runtime().env();
  const base::TimePoint deadline = env.now() + timeout;
  transfer::RequestBatch batch(engine.engine(), requests, notification);
  batch.copy_directly(deadline);
  if (batch.has_rest()) {
    os::CancelToken cancel;
    os::run_blocking(env.executor, finish(batch, deadline, cancel), kLookUp, interrupted,
                     [&cancel] { cancel.cancel(); });
  }
  return batch.take_outcome();
}

}  // namespace

EngineSession::EngineSession(std::unique_ptr<TransferEngine> engine,
                             std::chrono::milliseconds timeout)
    : engine_(std::move(engine)),
      timeout_(timeout),
      managed_memory_(transfer::managed_source(*engine_)) {}

template <typename T>
Result<T> EngineSession::ask(const std::function<base::Task<Result<T>>(
                                 transfer::Engine&, base::TimePoint, os::CancelToken&)>& begin) {
  const os::Env env = engine_->runtime().env();
  os::CancelToken cancel;
  auto answer =
      os::run_blocking(env.executor, begin(engine_->engine(), env.now() + timeout_, cancel),
                       kLookUp, interrupted, [&cancel] { cancel.cancel(); });
  return answer ? *std::move(answer) : fail(Code::kNotReady, "the engine is being closed");
}

Result<SegmentHandle> EngineSession::open(const std::string& target) {
  {
    std::lock_guard lock(mutex_);
    const auto known = handles_.find(target);
    if (known != handles_.end()) return known->second;
  }
  MC_TRY(const SegmentHandle handle,
         ask<SegmentHandle>([&](auto& engine, auto deadline, auto& cancel) {
           return engine.open_segment(transfer::segment_name(target), deadline, &cancel);
         }));
  std::lock_guard lock(mutex_);
  handles_.emplace(target, handle);
  return handle;
}

Result<void> EngineSession::move(const std::string& target, std::vector<TransferRequest>& requests,
                                 const std::optional<Notification>& notification) {
  if (notification) {
    MC_CHECK(transfer::check_notification(*notification));
  }
  const auto begin = std::chrono::steady_clock::now();
  MC_TRY(const SegmentHandle handle, open(target));
  for (TransferRequest& request : requests)
    request.target = handle;
  const auto gone = std::chrono::steady_clock::now() - begin;
  const auto timeout =
      timeout_ + time_for(requests) - std::chrono::floor<std::chrono::milliseconds>(gone);
  const TransferOutcome outcome =
      on_main_thread() ? transfer_interruptibly(*engine_, requests, timeout, notification)
                       : engine_->transfer(requests, timeout, notification);
  return outcome.status ? outcome.notified : outcome.status;
}

int EngineSession::transfer(const std::string& target, std::vector<TransferRequest>& requests,
                            const std::optional<Notification>& notification) {
  return note(target, move(target, requests, notification));
}

Result<std::uint64_t> EngineSession::start(const std::string& target,
                                           std::vector<TransferRequest> requests) {
  MC_CHECK(batches_.check_room());
  MC_TRY(const SegmentHandle handle, open(target));
  for (TransferRequest& request : requests)
    request.target = handle;
  const auto timeout = timeout_ + time_for(requests);
  MC_TRY(auto batch, engine_->submit(std::move(requests), timeout));
  return batches_.add({std::move(batch), target});
}

std::uint64_t EngineSession::submit(const std::string& target,
                                    std::vector<TransferRequest> requests) {
  const auto number = start(target, std::move(requests));
  if (number) return *number;
  note(target, fail(number.error()));
  return 0;
}

int EngineSession::wait(std::span<const std::uint64_t> batches) {
  int code = 0;
  bool given_up = false;
  for (const std::uint64_t number : batches) {
    const SubmittedBatch submitted = batches_.take(number);
    if (!submitted.batch) {
      if (!batches_.has_timed_out(number)) {
        base::log_error("get_batch_transfer_status: there is no batch {}", number);
      }
      code = -1;
      continue;
    }
    wait_for(*submitted.batch, given_up);
    if (note(submitted.target, submitted.batch->outcome().status) != 0) code = -1;
  }
  return code;
}

int EngineSession::check(std::uint64_t number) {
  SubmittedBatch submitted = batches_.find(number);
  if (submitted.batch && !submitted.batch->done()) return 0;
  if (submitted.batch) submitted = batches_.take(number);  // one of two callers gets it
  if (!submitted.batch) return batches_.has_timed_out(number) ? -2 : -1;
  const Result<void>& outcome = submitted.batch->outcome().status;
  if (note(submitted.target, outcome) == 0) return 1;
  if (outcome.error().code() != Code::kDeadlineExceeded) return -1;
  batches_.note_timed_out(number);
  return -2;
}

int EngineSession::notify(const std::string& target, const Notification& notification) {
  return note(target, ask<void>([&](auto& engine, auto deadline, auto& cancel) {
                return engine.notify_by_name(transfer::segment_name(target), notification, deadline,
                                             &cancel);
              }));
}

int EngineSession::probe(const std::string& target) {
  return note(target, ask<void>([&](auto& engine, auto deadline, auto& cancel) {
                return engine.probe(transfer::segment_name(target), deadline, &cancel);
              }));
}

std::uint64_t EngineSession::first_buffer(const std::string& target) {
  const auto address = ask<std::uint64_t>([&](auto& engine, auto deadline, auto& cancel) {
    return engine.first_buffer(transfer::segment_name(target), deadline, &cancel);
  });
  if (address) return *address;
  base::log_error("get_first_buffer_address: {}", address.error().message());
  return 0;
}

int EngineSession::note(const std::string& target, const Result<void>& outcome) {
  std::lock_guard lock(mutex_);
  if (outcome) {
    if (!failing_.empty()) failing_.erase(target);
    return 0;
  }
  if (failing_.size() >= kMostFailing) failing_.clear();
  const std::string message = outcome.error().message();
  std::string kind = kind_of(message);
  const auto now = std::chrono::steady_clock::now();
  Failing& failing = failing_[target];
  if (failing.kind == kind && now - failing.logged < kRepeat) {
    ++failing.suppressed;
    return -1;
  }
  const std::string more =
      failing.suppressed == 0
          ? ""
          : fmt::format(" ({} more like the last one were not logged)", failing.suppressed);
  base::log_error("transfer with {}: {}{}", target, message, more);
  failing = {std::move(kind), now, 0};
  return -1;
}

void EngineSession::stop() {
  os::run_blocking(engine_->runtime().env().executor, engine_->engine().stop());
}

}  // namespace mooncake::python
