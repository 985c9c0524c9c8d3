#include "transfer/transports/shm/patient_copies.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "os/event.h"
#include "os/user_memory.h"
#include "transfer/cursor.h"

namespace mooncake::transfer::shm {

namespace {

constexpr std::size_t kMostParts = 256;  // of one job
constexpr base::Duration kLook = std::chrono::milliseconds(1);
constexpr std::string_view kWhy = "pages of the peer's memory do not come";
constexpr std::chrono::seconds kIdle(1);  // then a thread ends

// Bytes of one slice that one job copies.
struct Part {
  Slice* slice = nullptr;
  std::vector<base::MutableBuffer> local;
  std::uint64_t offset = 0, length = 0;
  bool is_last() const { return offset + length == slice->length; }
};

// Cuts what `peer` needs patience for.
class Cutter {
 public:
  Cutter(HostPeer& peer, std::span<Slice> slices, memory::Pass write_pass)
      : peer_(peer), rest_(slices), write_pass_(write_pass) {}

  // For one job; empty when nothing is left.
  std::vector<Part> next() {
    std::vector<Part> parts;
    for (std::uint64_t bytes = 0; !rest_.empty() && bytes < PatientCopies::kMostBytes;) {
      Slice& slice = rest_.front();
      if (offset_ == 0) {
        if (parts.size() == kMostParts) break;
        if (!peer_.needs_patience({&slice, 1}, write_pass_)) {
          rest_ = rest_.subspan(1);
          continue;
        }
        cursor_ = BufferCursor(slice.local);
      }
      parts.push_back(
          cut(slice, std::min(PatientCopies::kMostBytes - bytes, slice.length - offset_)));
      bytes += parts.back().length;
      if (!parts.back().is_last()) continue;
      offset_ = 0;
      rest_ = rest_.subspan(1);
    }
    return parts;
  }

 private:
  Part cut(Slice& slice, std::uint64_t length) {
    Part part{&slice, {}, offset_, length};
    while (length > 0) {
      const base::MutableBuffer piece = cursor_.peek(length);
      if (piece.empty()) break;
      part.local.push_back(piece);
      cursor_.advance(piece.size());
      length -= piece.size();
    }
    offset_ += part.length;
    return part;
  }

  HostPeer& peer_;
  std::span<Slice> rest_;
  const memory::Pass write_pass_;
  std::uint64_t offset_ = 0;  // of what is left of the first
  BufferCursor cursor_{std::span<const base::MutableBuffer>()};
};

}  // namespace

bool PatientThreads::take() {
  if (count_.fetch_add(1, std::memory_order_relaxed) < kMost) return true;
  give_back();
  return false;
}

// What a thread needs, apart from everything that a call may take with it.
struct PatientCopies::Job {
  std::shared_ptr<HostPeer> peer;
  AttemptId id;
  memory::Pass write_pass{};
  HostPeer::Trail trail;
  std::vector<Slice> slices;
  std::vector<std::byte> bytes;
  std::vector<base::MutableBuffer> locals;  // one for each slice, in `bytes`
  std::atomic<bool> called_off{false};
  bool left = false;                // guarded by Workers' mutex: it goes on without a caller
  std::shared_ptr<os::Event> done;  // guarded by Workers' mutex; null once nobody waits

  Job(const Call& call, std::span<const Part> parts);
  // For the bytes: that of a job that has ended.
  void use_memory(std::vector<std::byte> memory);
  bool is_write() const { return slices.front().opcode == Opcode::kWrite; }
  bool is_left_write() const { return left && is_write(); }
  bool meets(const AddressRange& range) const {
    return std::ranges::any_of(
        slices, [&range](const Slice& slice) { return range_of(slice).meets(range); });
  }
  // Their order is that of the parts. What can't be read is left out.
  void take_in(std::span<const Part> parts);
  bool hand_out(const Part& part, std::size_t index) const;
};

PatientCopies::Job::Job(const Call& call, std::span<const Part> parts)
    : peer(call.peer), id(call.id), write_pass(call.write_pass) {
  for (const Part& part : parts) {
    Slice& slice = slices.emplace_back(*part.slice);
    slice.remote += part.offset;
    slice.length = part.length;
    slice.record = nullptr;
    slice.record_key = {};
  }
}

void PatientCopies::Job::use_memory(std::vector<std::byte> memory) {
  bytes = std::move(memory);
  std::uint64_t size = 0;
  for (const Slice& slice : slices)
    size += slice.length;
  bytes.resize(size);
  locals.reserve(slices.size());
  std::uint64_t at = 0;
  for (Slice& slice : slices) {
    locals.emplace_back(bytes.data() + at, slice.length);
    slice.local = {&locals.back(), 1};
    at += slice.length;
  }
}

void PatientCopies::Job::take_in(std::span<const Part> parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::vector<base::ConstBuffer> from(parts[i].local.begin(), parts[i].local.end());
    if (!os::gather_from_user(locals[i].data(), from)) slices[i].length = 0;
  }
}

bool PatientCopies::Job::hand_out(const Part& part, std::size_t index) const {
  return os::scatter_to_user(part.local, locals[index]) == part.local.size();
}

// Nobody can wait for a thread that the kernel holds: none is joined, and each holds what it uses.
class PatientCopies::Workers : public std::enable_shared_from_this<Workers> {
 public:
  Workers(os::Executor& executor, std::shared_ptr<PatientThreads> account)
      : executor_(executor), account_(std::move(account)) {}

  // Whether the job would have a thread. What another was left at is not tried again before that
  // has ended: it would only take one more.
  bool has_room(const Job& job) const {
    std::lock_guard lock(mutex_);
    const auto hinders = [&job](const auto& other) {
      return other->left && std::ranges::any_of(job.slices, [&other](const Slice& slice) {
               return other->meets(range_of(slice));
             });
    };
    if (std::ranges::any_of(busy_, hinders)) return false;
    const std::size_t jobs = busy_.size() + waiting_.size();
    return jobs < threads_ || (jobs < kThreads && account_->has_room());
  }

  // False when no thread can be had.
  bool add(std::shared_ptr<Job> job) {
    std::lock_guard lock(mutex_);
    if (busy_.size() + waiting_.size() >= threads_ && !start()) return false;
    waiting_.push_back(std::move(job));
    wake_.notify_one();
    return true;
  }

  // Nobody waits for the job any more.
  void leave(const std::shared_ptr<Job>& job) {
    std::lock_guard lock(mutex_);
    if (std::erase(waiting_, job) == 0) let_go(*job);
    job->done = nullptr;
  }

  template <typename Predicate>
  bool none_is_left(Predicate predicate) const {
    std::lock_guard lock(mutex_);
    return std::ranges::none_of(
        busy_, [&](const auto& job) { return job->is_left_write() && predicate(*job); });
  }

  void stop() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    for (const auto& job : busy_) {
      let_go(*job);
      job->done = nullptr;
    }
    waiting_.clear();
    wake_.notify_all();
    ended_.wait(lock, [this] { return threads_ == busy_.size(); });
  }

 private:
  // A job that has begun, and may have ended by now.
  void let_go(Job& job) {
    job.called_off = true;
    const bool is_busy =
        std::ranges::any_of(busy_, [&job](const auto& each) { return each.get() == &job; });
    if (!is_busy || std::exchange(job.left, true)) return;
    if (job.is_write()) job.peer->note_left(job.slices);
  }

  bool start() {
    if (!account_->take()) return threads_ > 0;
    try {
      std::thread thread([self = shared_from_this()] { self->serve(); });
      ::pthread_setname_np(thread.native_handle(), "mc-vm-copy");
      thread.detach();
    } catch (const std::system_error&) {
      account_->give_back();
      return threads_ > 0;
    }
    ++threads_;
    return true;
  }

  void serve() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    std::unique_lock lock(mutex_);
    const auto is_wanted = [this] { return stopping_ || !waiting_.empty(); };
    while (wake_.wait_for(lock, kIdle, is_wanted) && !stopping_) {
      const std::shared_ptr<Job> job = std::move(waiting_.front());
      waiting_.pop_front();
      busy_.push_back(job);
      lock.unlock();
      job->peer->copy_patiently(job->slices, job->write_pass, job->called_off, job->trail);
      lock.lock();
      std::erase(busy_, job);
      if (job->is_left_write()) job->peer->forget_left(job->slices);
      if (job->done) executor_.post([done = std::move(job->done)] { done->set(); });
    }
    --threads_;
    account_->give_back();
    ended_.notify_all();
  }

  os::Executor& executor_;  // used while a job is waited for
  const std::shared_ptr<PatientThreads> account_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, ended_;
  std::deque<std::shared_ptr<Job>> waiting_;  // guarded by mutex, as all below
  std::vector<std::shared_ptr<Job>> busy_;
  std::size_t threads_ = 0;
  bool stopping_ = false;
};

PatientCopies::PatientCopies(os::Executor& executor, std::shared_ptr<PatientThreads> threads)
    : executor_(executor), workers_(std::make_shared<Workers>(executor, std::move(threads))) {}

PatientCopies::~PatientCopies() { workers_->stop(); }

Code PatientCopies::why_left(const Call& call) const {
  if (os::is_cancelled(call.cancel)) return Code::kCancelled;
  return closed_.cancelled() ? Code::kConnectionLost : Code::kDeadlineExceeded;
}

base::Task<Result<void>> PatientCopies::wait_for_thread(const Call& call, const Job& job) {
  while (!workers_->has_room(job)) {
    const bool is_over = os::is_cancelled(call.cancel) || closed_.cancelled();
    if (is_over || executor_.now() >= call.deadline) co_return fail(why_left(call), kWhy);
    co_await executor_.sleep_for(kLook);
  }
  co_return Result<void>();
}

base::Task<Result<void>> PatientCopies::run(const Call& call, std::shared_ptr<Job> job) {
  os::CancelToken over;
  os::CancelToken::Watch called_off(call.cancel, [&over] { over.cancel(); });
  os::CancelToken::Watch closed(&closed_, [&over] { over.cancel(); });
  const auto done = std::make_shared<os::Event>(executor_);
  job->done = done;
  if (!workers_->add(job)) co_return fail(Code::kTransferFailed, "no thread for a copy");
  const bool in_time = co_await done->wait(call.deadline, &over);
  if (in_time) co_return Result<void>();
  workers_->leave(job);
  co_return fail(why_left(call), kWhy);
}

base::Task<Result<void>> PatientCopies::copy(const Call& call, std::span<Slice> slices,
                                             HostPeer::Trail& trail) {
  Cutter cutter(*call.peer, slices, call.write_pass);
  const Slice* broken = nullptr;  // a part of it is missing
  std::vector<std::byte> bytes;
  for (auto parts = cutter.next(); !parts.empty() && call.peer->alive(); parts = cutter.next()) {
    const auto job = std::make_shared<Job>(call, parts);
    MC_CO_CHECK(co_await wait_for_thread(call, *job));
    job->use_memory(std::move(bytes));
    job->trail = trail;
    if (job->is_write()) job->take_in(parts);
    MC_CO_CHECK(co_await run(call, job));
    trail = job->trail;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Slice& slice = *parts[i].slice;
      const Slice& copied = job->slices[i];
      bool whole = copied.code == Code::kOk;
      if (whole && !job->is_write()) whole = job->hand_out(parts[i], i);
      if (!whole) broken = &slice;
      if (copied.code == Code::kGenerationMismatch) slice.code = copied.code;
      if (slice.code != Code::kNotReady || broken == &slice || !parts[i].is_last()) continue;
      slice.code = Code::kOk;
      slice.way = copied.way;
    }
    HostPeer::give_up(slices, trail);
    bytes = std::move(job->bytes);
  }
  co_return Result<void>();
}

bool PatientCopies::are_over() const {
  return workers_->none_is_left([](const Job&) { return true; });
}

bool PatientCopies::are_over(const AttemptId& id) const {
  return workers_->none_is_left([&id](const Job& job) {
    return job.id.batch == id.batch && job.id.slice == id.slice && job.id.attempt <= id.attempt;
  });
}

bool PatientCopies::may_land(std::span<const Slice> slices) const {
  return !workers_->none_is_left([slices](const Job& job) {
    return std::ranges::any_of(slices, [&job](const Slice& slice) {
      return is_plain_write(slice) && job.meets(range_of(slice));
    });
  });
}

}  // namespace mooncake::transfer::shm
