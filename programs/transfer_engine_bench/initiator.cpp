#include "transfer_engine_bench/initiator.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace mooncake::bench {

namespace {

constexpr std::chrono::seconds kTimeout{30};

// The target, found.
struct Target {
  SegmentHandle segment{};
  std::uint64_t base = 0;  // of its oldest buffer
};

tl::unexpected<Error> at_target(Error error, const Plan& plan) {
  return fail(std::move(error).with_context("segment_id '" + plan.segment + "'"));
}

Result<Target> find(TransferEngine& engine, const Plan& plan) {
  auto segment = engine.open_segment(plan.segment);
  if (!segment) return at_target(std::move(segment).error(), plan);
  auto base = engine.first_buffer(plan.segment);
  if (!base) return at_target(std::move(base).error(), plan);
  return Target{*segment, *base};
}

// A target can't tell who has written to it, and keeps what was.
Error wrong_byte(std::uint64_t offset, std::uint64_t size, const Plan& plan) {
  const std::string_view why =
      plan.opcode == Opcode::kRead
          ? "is not what the target was filled with: most likely an initiator has written to it "
            "since; restart the target, or verify with --operation=write"
          : "is not what was written: most likely another initiator writes to the target, too";
  return Error(Code::kChecksumMismatch, fmt::format("byte {} of {} {}", offset, size, why));
}

// Blocks of one thread; those of all threads lie side by side.
std::vector<TransferRequest> batch_of(const Plan& plan, const Target& target, const Memory& memory,
                                      std::uint64_t thread) {
  std::vector<TransferRequest> batch(plan.batch_size);
  for (std::uint64_t i = 0; i < plan.batch_size; ++i) {
    const std::uint64_t offset = plan.block_size * (i * plan.threads + thread);
    batch[i].opcode = plan.opcode;
    batch[i].source = memory.bytes().data() + offset;
    batch[i].target = target.segment;
    batch[i].target_offset = target.base + offset;
    batch[i].length = plan.block_size;
  }
  return batch;
}

class Workers {
 public:
  Workers(TransferEngine& engine, const Plan& plan, const Target& target, const Memory& memory)
      : engine_(engine) {
    for (std::uint64_t thread = 0; thread < plan.threads; ++thread) {
      threads_.emplace_back(
          [this, batch = batch_of(plan, target, memory, thread)] { work(batch); });
    }
  }
  ~Workers() { join(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Returns early when one has failed.
  void run_for(std::chrono::milliseconds duration) {
    std::unique_lock lock(mutex_);
    failed_.wait_for(lock, duration, [this] { return !failure_.has_value(); });
  }
  Result<std::uint64_t> join() {
    stop_.store(true, std::memory_order_relaxed);
    for (std::thread& thread : threads_)
      thread.join();
    threads_.clear();
    if (!failure_) return fail(failure_.error());
    return batches_.load(std::memory_order_relaxed);
  }

 private:
  void work(std::span<const TransferRequest> batch) {
    do {
      const TransferOutcome outcome = engine_.transfer(batch, kTimeout);
      if (!outcome.ok()) return give_up(outcome.status.error());
      batches_.fetch_add(1, std::memory_order_relaxed);
    } while (!stop_.load(std::memory_order_relaxed));
  }
  void give_up(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (failure_) failure_ = fail(error);
    stop_.store(true, std::memory_order_relaxed);
    failed_.notify_all();
  }

  TransferEngine& engine_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> batches_{0};
  std::mutex mutex_;
  std::condition_variable failed_;
  Result<void> failure_;  // guarded by mutex
  std::vector<std::thread> threads_;
};

}  // namespace

Result<Measured> measure(TransferEngine& engine, const Plan& plan, const Memory& memory) {
  MC_TRY(const Target target, find(engine, plan));
  const auto begin = std::chrono::steady_clock::now();
  Workers workers(engine, plan, target, memory);
  workers.run_for(plan.duration);
  const auto batches = workers.join();
  if (!batches) return at_target(batches.error(), plan);
  Measured measured;
  measured.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  measured.batches = *batches;
  measured.bytes = *batches * plan.batch_size * plan.block_size;
  return measured;
}

Result<std::uint64_t> verify(TransferEngine& engine, const Plan& plan, const Memory& memory) {
  const std::span<std::byte> moved = memory.bytes().first(plan.moved_at_once());
  Side filled = Side::kTarget;
  if (plan.opcode == Opcode::kWrite) {
    filled = Side::kInitiator;
    MC_TRY(const Target target, find(engine, plan));
    std::fill(moved.begin(), moved.end(), std::byte{0});
    TransferRequest back;
    back.source = moved.data();
    back.target = target.segment;
    back.target_offset = target.base;
    back.length = moved.size();
    const TransferOutcome outcome = engine.transfer({&back, 1}, kTimeout);
    if (!outcome.ok()) return at_target(outcome.status.error(), plan);
  }
  const auto wrong = first_wrong(moved, filled);
  if (!wrong) return moved.size();
  return at_target(wrong_byte(*wrong, moved.size(), plan), plan);
}

}  // namespace mooncake::bench
