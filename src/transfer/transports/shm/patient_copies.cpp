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

constexpr std::size_t kThreads = 4;             // to one peer: as many may stand still at once
constexpr std::uint64_t kMostBytes = 1u << 20;  // of one job
constexpr std::size_t kMostParts = 256;         // of one job

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
    for (std::uint64_t bytes = 0; !rest_.empty() && bytes < kMostBytes;) {
      Slice& slice = rest_.front();
      if (offset_ == 0) {
        if (parts.size() == kMostParts) break;
        if (!peer_.needs_patience({&slice, 1}, write_pass_)) {
          rest_ = rest_.subspan(1);
          continue;
        }
        cursor_ = BufferCursor(slice.local);
      }
      parts.push_back(cut(slice, std::min(kMostBytes - bytes, slice.length - offset_)));
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

// What a thread needs, apart from everything that a call may take with it.
struct PatientCopies::Job {
  std::shared_ptr<HostPeer> peer;
  memory::Pass write_pass{};
  HostPeer::Trail trail;
  std::vector<Slice> slices;
  std::vector<std::byte> bytes;
  std::vector<base::MutableBuffer> locals;  // one for each slice, in `bytes`
  std::atomic<bool> called_off{false};
  std::shared_ptr<os::Event> done;  // guarded by Workers' mutex; null once nobody waits

  // `bytes_`: of a job that has ended, to be used again.
  Job(std::shared_ptr<HostPeer> peer_, std::span<const Part> parts, std::vector<std::byte> bytes_);
  bool is_write() const { return slices.front().opcode == Opcode::kWrite; }
  // Their order is that of the parts.
  bool take_in(std::span<const Part> parts);
  bool hand_out(const Part& part, std::size_t index) const;
};

PatientCopies::Job::Job(std::shared_ptr<HostPeer> peer_, std::span<const Part> parts,
                        std::vector<std::byte> bytes_)
    : peer(std::move(peer_)), bytes(std::move(bytes_)) {
  std::uint64_t size = 0;
  for (const Part& part : parts)
    size += part.length;
  bytes.resize(size);
  locals.reserve(parts.size());
  std::uint64_t at = 0;
  for (const Part& part : parts) {
    locals.emplace_back(bytes.data() + at, part.length);
    at += part.length;
    Slice& slice = slices.emplace_back(*part.slice);
    slice.local = {&locals.back(), 1};
    slice.remote += part.offset;
    slice.length = part.length;
    slice.record = nullptr;
    slice.record_key = {};
  }
}

// False when some of it can't be read.
bool PatientCopies::Job::take_in(std::span<const Part> parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::vector<base::ConstBuffer> from(parts[i].local.begin(), parts[i].local.end());
    if (!os::gather_from_user(locals[i].data(), from)) return false;
  }
  return true;
}

bool PatientCopies::Job::hand_out(const Part& part, std::size_t index) const {
  return os::scatter_to_user(part.local, locals[index]) == part.local.size();
}

// Nobody can wait for a thread that the kernel holds: none is joined, and each holds what it uses.
class PatientCopies::Workers : public std::enable_shared_from_this<Workers> {
 public:
  explicit Workers(os::Executor& executor) : executor_(executor) {}

  // False when no thread can be had.
  bool add(std::shared_ptr<Job> job) {
    std::lock_guard lock(mutex_);
    if (busy_.size() + waiting_.size() >= threads_ && threads_ < kThreads && !start()) {
      return false;
    }
    waiting_.push_back(std::move(job));
    wake_.notify_one();
    return true;
  }

  // Nobody waits for the job any more.
  void leave(const std::shared_ptr<Job>& job) {
    job->called_off = true;
    std::lock_guard lock(mutex_);
    job->done = nullptr;
    std::erase(waiting_, job);
  }

  bool left_writes_are_over() const {
    std::lock_guard lock(mutex_);
    return std::ranges::none_of(
        busy_, [](const auto& job) { return job->called_off.load() && job->is_write(); });
  }

  void stop() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    for (const auto& job : busy_) {
      job->called_off = true;
      job->done = nullptr;
    }
    waiting_.clear();
    wake_.notify_all();
    ended_.wait(lock, [this] { return threads_ == busy_.size(); });
  }

 private:
  bool start() {
    try {
      std::thread thread([self = shared_from_this()] { self->serve(); });
      ::pthread_setname_np(thread.native_handle(), "mc-vm-copy");
      thread.detach();
    } catch (const std::system_error&) {
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
    for (;;) {
      wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) break;
      const std::shared_ptr<Job> job = std::move(waiting_.front());
      waiting_.pop_front();
      busy_.push_back(job);
      lock.unlock();
      job->peer->copy_patiently(job->slices, job->write_pass, job->called_off, job->trail);
      lock.lock();
      std::erase(busy_, job);
      if (job->done) executor_.post([done = std::move(job->done)] { done->set(); });
    }
    --threads_;
    ended_.notify_all();
  }

  os::Executor& executor_;  // used while a job is waited for
  mutable std::mutex mutex_;
  std::condition_variable wake_, ended_;
  std::deque<std::shared_ptr<Job>> waiting_;  // guarded by mutex, as all below
  std::vector<std::shared_ptr<Job>> busy_;
  std::size_t threads_ = 0;
  bool stopping_ = false;
};

PatientCopies::PatientCopies(os::Executor& executor)
    : executor_(executor), workers_(std::make_shared<Workers>(executor)) {}

PatientCopies::~PatientCopies() { workers_->stop(); }

base::Task<Result<void>> PatientCopies::run(std::shared_ptr<Job> job, TimePoint deadline,
                                            os::CancelToken* cancel) {
  os::CancelToken over;
  os::CancelToken::Watch called_off(cancel, [&over] { over.cancel(); });
  os::CancelToken::Watch closed(&closed_, [&over] { over.cancel(); });
  const auto done = std::make_shared<os::Event>(executor_);
  job->done = done;
  if (!workers_->add(job)) co_return fail(Code::kTransferFailed, "no thread for a copy");
  const bool in_time = co_await done->wait(deadline, &over);
  if (in_time) co_return Result<void>();
  workers_->leave(job);
  if (os::is_cancelled(cancel)) co_return fail(Code::kCancelled);
  co_return fail(closed_.cancelled() ? Code::kConnectionLost : Code::kDeadlineExceeded);
}

base::Task<Result<void>> PatientCopies::copy(std::shared_ptr<HostPeer> peer,
                                             std::span<Slice> slices, memory::Pass write_pass,
                                             HostPeer::Trail& trail, TimePoint deadline,
                                             os::CancelToken* cancel) {
  Cutter cutter(*peer, slices, write_pass);
  const Slice* broken = nullptr;  // a part of it is missing
  std::vector<std::byte> bytes;
  for (auto parts = cutter.next(); !parts.empty() && peer->alive(); parts = cutter.next()) {
    const auto job = std::make_shared<Job>(peer, parts, std::move(bytes));
    job->write_pass = write_pass;
    job->trail = trail;
    if (job->is_write() && !job->take_in(parts)) break;
    MC_CO_CHECK(co_await run(job, deadline, cancel));
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

bool PatientCopies::are_over() const { return workers_->left_writes_are_over(); }

}  // namespace mooncake::transfer::shm
