// One batch: grouped by peer and direction, cut into requests, several of which are on their way at
// once. A failed attempt is repeated after the older one is fenced, so that no late byte can land
// over what a later attempt has written.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "transfer/cursor.h"
#include "transfer/engine_impl.h"

namespace mooncake::transfer {

namespace {

constexpr std::size_t kPipeline = 4;        // requests of one group on their way
constexpr std::size_t kFirstQuestion = 16;  // ranges; most batches lie in few regions
constexpr base::Duration kLongestPause = std::chrono::milliseconds(50);
constexpr base::Duration kFenceOfCancelled = std::chrono::milliseconds(250);

// The peer's regions are other ones than those we know.
bool is_stale_key(Code code) {
  return code == Code::kRegionKeyMismatch || code == Code::kAddressNotRegistered;
}

bool worth_repeating(Code code) {
  return code == Code::kConnectionLost || code == Code::kUnreachable || code == Code::kBusy ||
         code == Code::kTransferFailed;
}

// The attempt never began: nothing of it can land.
bool never_sent(Code code) { return code == Code::kUnreachable || code == Code::kBusy; }

base::Duration pause_after(const Error& error) {
  const base::Duration asked = std::chrono::milliseconds(std::max(1u, error.retry_after_ms()));
  return std::min(asked, kLongestPause);
}

std::uint64_t total_length(std::span<const Slice> slices) {
  return std::accumulate(slices.begin(), slices.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Slice& slice) { return sum + slice.length; });
}

}  // namespace

class BatchRun {
 public:
  BatchRun(EngineImpl& engine, std::uint64_t id, std::span<EngineRequest> requests,
           TimePoint deadline, std::map<std::string, std::uint64_t>* moved, os::CancelToken* cancel)
      : engine_(engine),
        id_(id),
        requests_(requests),
        deadline_(deadline),
        moved_(moved),
        cancel_(cancel) {}

  Task<void> run();

 private:
  // Entries to one peer in one direction, of one priority.
  struct Group {
    Group(Segment& segment_, Priority priority_) : segment(segment_), priority(priority_) {}
    Segment& segment;
    const Priority priority;
    std::vector<std::size_t> entries;
    std::vector<std::size_t> ranking;  // of transports, best first
    std::vector<std::vector<Piece>> parts;
    std::size_t next_part = 0;
  };
  // What is left of one request.
  struct Part {
    std::uint32_t number = 0;
    std::uint32_t attempts = 0;
    std::uint32_t failures = 0;  // of whole attempts
    std::size_t path = 0;        // in the ranking
    std::optional<std::uint32_t> last_lane;
    bool stuck = false;  // its last attempt was, on that lane
    bool keys_renewed = false;
    std::vector<Slice> slices;
    std::vector<std::size_t> entries;                  // one for each slice
    std::deque<std::vector<base::MutableBuffer>> cut;  // what slices of cut entries point to
  };

  EngineRequest& request(std::size_t entry) { return requests_[entry]; }
  void note(std::size_t entry, Code code) {
    Code& result = request(entry).slice.code;
    if (result == Code::kOk) result = code;
  }
  void note_all(const std::vector<std::size_t>& entries, Code code) {
    for (const std::size_t entry : entries)
      note(entry, code);
  }
  bool failed(std::size_t entry) { return request(entry).slice.code != Code::kOk; }
  bool called_off() const { return engine_.stopping_ || os::is_cancelled(cancel_); }
  // Nobody was reached at the segment's address in this batch, and its name leads nowhere else.
  bool is_gone(const Segment& segment) const {
    const auto found = gone_.find(&segment);
    return found != gone_.end() && found->second == segment.peer.address;
  }
  bool is_over() const { return called_off() || engine_.env_.now() >= deadline_; }
  // What becomes of entries that are given up after an attempt that ended with this code.
  Code code_at_end(Code code) const {
    if (called_off()) return Code::kCancelled;
    return is_over() ? Code::kDeadlineExceeded : code;
  }

  std::vector<std::unique_ptr<Group>> group();
  Code check(const EngineRequest& request) const;
  Task<void> run_group(Group& group);
  bool plan(Group& group);
  Task<void> work(Group& group);
  Task<void> run_part(Group& group, std::size_t index);
  void fill(Group& group, std::size_t index, Part& part);
  Task<bool> attempt(Group& group, Part& part);
  Task<Result<void>> execute_on(Lanes::Pass pass, Transport& transport, const Peer& peer,
                                AttemptId id, Part& part);
  Task<bool> after_answer(Group& group, Part& part);
  Task<bool> after_failure(Group& group, Part& part, Transport& transport, Peer peer, AttemptId id,
                           Error error);
  Task<bool> fence(Part& part, Transport& transport, const Peer& peer, AttemptId id);
  Task<bool> repeat(Group& group, Part& part, Error error);
  Task<bool> find_another_way(Segment& segment, Code code);
  // Removes the slices with this code.
  static void take_out(Part& part, Code code);
  void note_written(const Part& part);
  void settle_done(Part& part, std::string_view transport);
  void give_up(Part& part, Code code);

  Task<Result<void>> know(Group& group);
  Task<Result<void>> find_keys(Segment& segment, std::vector<std::size_t> entries);
  void find_own_keys(const std::vector<std::size_t>& entries);

  EngineImpl& engine_;
  const std::uint64_t id_;
  const std::span<EngineRequest> requests_;
  const TimePoint deadline_;
  std::map<std::string, std::uint64_t>* const moved_;
  os::CancelToken* const cancel_;
  std::uint32_t next_part_ = 0;
  std::map<const Segment*, net::Address> gone_;
  std::set<memory::RegionKey> written_;  // plain regions into which parts of the batch have gone
};

Task<void> EngineImpl::transfer(std::span<EngineRequest> requests, TimePoint deadline,
                                std::map<std::string, std::uint64_t>* moved,
                                os::CancelToken* cancel) {
  if (stopping_ || os::is_cancelled(cancel)) {
    for (EngineRequest& request : requests)
      request.slice.code = Code::kCancelled;
    co_return;
  }
  const std::uint64_t id = open_batch();
  {
    BatchRun batch(*this, id, requests, deadline, moved, cancel);
    co_await batch.run();
  }
  close_batch(id);
}

std::uint64_t EngineImpl::open_batch() {
  open_batches_.insert(next_batch_);
  return next_batch_++;
}

void EngineImpl::close_batch(std::uint64_t id) {
  open_batches_.erase(id);
  if (open_batches_.empty() && all_closed_) all_closed_->set(true);
}

Task<void> BatchRun::run() {
  const auto groups = group();
  if (groups.size() == 1) {
    co_await run_group(*groups.front());
    co_return;
  }
  base::TaskGroup tasks;
  for (const auto& each : groups)
    tasks.start(run_group(*each));
  co_await tasks.join();
}

Code BatchRun::check(const EngineRequest& request) const {
  const Slice& slice = request.slice;
  std::uint64_t local = 0;
  for (const base::MutableBuffer& buffer : slice.local)
    local += buffer.size();
  if (local != slice.length || request.priority > Priority::kUrgent) return Code::kInvalidArgument;
  if (slice.remote + slice.length < slice.remote) return Code::kAddressNotRegistered;
  if (!engine_.find_segment(request.target)) return Code::kSegmentNotFound;
  return Code::kOk;
}

// Sets aside what is wrong or empty.
std::vector<std::unique_ptr<BatchRun::Group>> BatchRun::group() {
  std::map<std::tuple<SegmentHandle, Opcode, Priority>, Group*> by_target;
  std::vector<std::unique_ptr<Group>> groups;
  for (std::size_t entry = 0; entry < requests_.size(); ++entry) {
    EngineRequest& each = request(entry);
    each.slice.code = check(each);
    if (each.slice.code != Code::kOk || each.slice.length == 0) continue;
    Group*& group = by_target[{each.target, each.slice.opcode, each.priority}];
    if (!group) {
      groups.push_back(std::make_unique<Group>(*engine_.find_segment(each.target), each.priority));
      group = groups.back().get();
    }
    group->entries.push_back(entry);
  }
  return groups;
}

Task<void> BatchRun::run_group(Group& group) {
  if (engine_.has_ended(group.segment.peer)) {
    co_await engine_.find_again(group.segment, deadline_, cancel_);
  }
  if (const auto known = co_await know(group); !known) {
    note_all(group.entries, known.error().code());
    co_return;
  }
  if (!plan(group)) {
    note_all(group.entries, Code::kNotSupported);
    co_return;
  }
  const std::size_t workers = std::min(kPipeline, group.parts.size());
  if (workers <= 1) {
    co_await work(group);
  } else {
    base::TaskGroup tasks;
    for (std::size_t i = 0; i < workers; ++i)
      tasks.start(work(group));
    co_await tasks.join();
  }
  engine_.note_direct(group.segment, group.ranking.front());
}

bool BatchRun::plan(Group& group) {
  std::vector<std::uint64_t> lengths;
  Workload workload;
  workload.opcode = request(group.entries.front()).slice.opcode;
  for (const std::size_t entry : group.entries) {
    const Slice& slice = request(entry).slice;
    lengths.push_back(failed(entry) ? 0 : slice.length);
    workload.bytes += lengths.back();
    workload.guarded |= slice.guard != 0;
  }
  workload.ranges = lengths.size();
  const auto candidates = engine_.candidates_for(group.segment.peer, workload.guarded, nullptr);
  group.ranking = rank(candidates, workload);
  if (group.ranking.empty()) return false;
  group.parts = cut(lengths, common_limits(candidates, group.ranking));
  return true;
}

Task<void> BatchRun::work(Group& group) {
  while (group.next_part < group.parts.size())
    co_await run_part(group, group.next_part++);
}

void BatchRun::fill(Group& group, std::size_t index, Part& part) {
  part.number = next_part_++;
  for (const Piece& piece : group.parts[index]) {
    const std::size_t entry = group.entries[piece.entry];
    if (failed(entry)) continue;  // one piece before this one has told
    const Slice& whole = request(entry).slice;
    Slice slice = whole;
    slice.length = piece.length;
    slice.remote = whole.remote + piece.offset;
    if (piece.length != whole.length) {
      part.cut.push_back(sub_buffers(whole.local, piece.offset, piece.length));
      slice.local = part.cut.back();
    }
    part.slices.push_back(slice);
    part.entries.push_back(entry);
  }
}

Task<void> BatchRun::run_part(Group& group, std::size_t index) {
  Part part;
  fill(group, index, part);
  while (!part.slices.empty()) {
    const bool again = co_await attempt(group, part);
    if (!again) break;
  }
}

// True when there is something left to try.
Task<bool> BatchRun::attempt(Group& group, Part& part) {
  Segment& segment = group.segment;
  if (is_gone(segment)) {
    give_up(part, code_at_end(Code::kUnreachable));
    co_return false;
  }
  if (!called_off() && !segment.peer.same_process &&
      segment.peer.incarnation == base::Incarnation{}) {
    const auto known = co_await engine_.describe(segment, {}, deadline_, cancel_);
    if (!known) co_return co_await repeat(group, part, known.error());
  }
  if (is_over()) {
    give_up(part, code_at_end(Code::kDeadlineExceeded));
    co_return false;
  }
  const bool clear =
      co_await engine_.wait_for_left_writes(segment.peer, part.slices, deadline_, cancel_);
  if (!clear) {
    give_up(part, code_at_end(Code::kDeadlineExceeded));
    co_return false;
  }
  const std::size_t way = group.ranking[part.path % group.ranking.size()];
  std::optional<Lanes::Pass> pass;
  if (Lanes* const lanes = engine_.lanes_of(segment, way)) {
    auto entered = co_await lanes->enter(total_length(part.slices), group.priority, deadline_,
                                         part.last_lane, cancel_);
    if (!entered || is_over()) {
      give_up(part, code_at_end(entered ? Code::kDeadlineExceeded : entered.error().code()));
      co_return false;
    }
    pass.emplace(*std::move(entered));
    // Meanwhile another part may have found that this life of the peer has ended.
    if (segment.peer.incarnation == base::Incarnation{}) co_return true;
  }
  Transport& transport = *engine_.transports_[way];
  const Peer peer = segment.peer;
  AttemptId id;
  id.engine = engine_.identity_.incarnation;
  id.batch = id_;
  id.slice = part.number;
  id.attempt = ++part.attempts;
  id.oldest_open_batch = engine_.oldest_open_batch();
  if (part.attempts > 1) ++engine_.retried_attempts_;
  Result<void> outcome;
  if (pass) {
    part.last_lane = pass->lane();
    outcome = co_await execute_on(*std::move(pass), transport, peer, id, part);
  } else {
    outcome = co_await transport.execute(peer, id, 0, part.slices, deadline_, cancel_);
  }
  if (group.parts.size() > 1) note_written(part);
  settle_done(part, transport.capabilities().name);
  if (part.slices.empty()) co_return false;
  if (outcome) co_return co_await after_answer(group, part);
  co_return co_await after_failure(group, part, transport, peer, id, std::move(outcome).error());
}

// An attempt that its lane holds for too long is called off.
Task<Result<void>> BatchRun::execute_on(Lanes::Pass pass, Transport& transport, const Peer& peer,
                                        AttemptId id, Part& part) {
  os::Executor& executor = engine_.env_.executor;
  os::CancelToken over;
  os::CancelToken::Watch watch(cancel_, [&over] { over.cancel(); });
  bool stuck = false;
  os::TimerId timer = os::TimerId::kNone;
  const TimePoint limit = executor.now() + pass.patience();
  if (limit < deadline_) {
    timer = executor.run_at(limit, [&over, &stuck] {
      stuck = true;
      over.cancel();
    });
  }
  auto outcome = co_await transport.execute(peer, id, pass.lane(), part.slices, deadline_, &over);
  executor.cancel(timer);
  if (outcome) {
    pass.end(Lanes::End::kDone);
  } else if (stuck && outcome.error().code() == Code::kCancelled && !called_off()) {
    pass.end(Lanes::End::kStuck);
    ++engine_.stuck_attempts_;
    part.stuck = true;
    outcome = fail(Code::kConnectionLost,
                   fmt::format("lane {} to {} stands still", pass.lane(), peer.name));
  } else if (outcome.error().code() == Code::kConnectionLost ||
             outcome.error().code() == Code::kUnreachable) {
    pass.end(Lanes::End::kFailed);
  }
  co_return outcome;
}

void BatchRun::take_out(Part& part, Code code) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < part.slices.size(); ++i) {
    if (part.slices[i].code == code) continue;
    part.slices[kept] = part.slices[i];
    part.entries[kept] = part.entries[i];
    ++kept;
  }
  part.slices.resize(kept);
  part.entries.resize(kept);
}

void BatchRun::settle_done(Part& part, std::string_view transport) {
  for (const Slice& slice : part.slices) {
    if (slice.code != Code::kOk) continue;
    const std::string way(slice.way.empty() ? transport : slice.way);
    engine_.add_moved(way, slice.length);
    if (moved_) (*moved_)[way] += slice.length;
  }
  take_out(part, Code::kOk);
}

void BatchRun::note_written(const Part& part) {
  for (const Slice& slice : part.slices) {
    const bool done = slice.code == Code::kOk || was_taken_back(slice);
    if (done && is_plain_write(slice)) written_.insert(slice.key);
  }
}

void BatchRun::give_up(Part& part, Code code) {
  note_all(part.entries, code);
  part.slices.clear();
  part.entries.clear();
}

// The peer has answered for each range. Those whose key was looked up here get a second look, not
// where the batch has written: what was taken back since may be another's by now.
Task<bool> BatchRun::after_answer(Group& group, Part& part) {
  const bool renew = !std::exchange(part.keys_renewed, true);
  for (std::size_t i = 0; i < part.slices.size(); ++i) {
    Slice& slice = part.slices[i];
    const bool known = request(part.entries[i]).key_given || written_.contains(slice.key);
    if (renew && !known && is_stale_key(slice.code)) continue;
    if (was_taken_back(slice)) slice.code = Code::kAddressNotRegistered;
    note(part.entries[i], std::exchange(slice.code, Code::kOk));
  }
  take_out(part, Code::kOk);
  if (part.slices.empty()) co_return false;

  group.segment.keys.clear();
  const auto found = co_await find_keys(group.segment, part.entries);
  if (!found) {
    give_up(part, found.error().code());
    co_return false;
  }
  for (std::size_t i = 0; i < part.slices.size(); ++i) {
    part.slices[i].key = request(part.entries[i]).slice.key;
    // What is not registered any more has its code by now, and is taken out with what has been
    // moved.
    part.slices[i].code = failed(part.entries[i]) ? Code::kOk : Code::kAddressNotRegistered;
  }
  take_out(part, Code::kOk);
  co_return !part.slices.empty();
}

Task<bool> BatchRun::after_failure(Group& group, Part& part, Transport& transport, Peer peer,
                                   AttemptId id, Error error) {
  const Code code = error.code();
  const bool may_land = part.slices.front().opcode == Opcode::kWrite && !never_sent(code);
  // A read is fenced, too, when its lane stood still: the answer says that the peer did not.
  if ((may_land || part.stuck) && !engine_.stopping_) {
    const bool fenced = co_await fence(part, transport, peer, id);
    if (!fenced) {
      if (may_land) engine_.quarantine(transport, peer, id, total_length(part.slices));
      give_up(part, code_at_end(code));
      co_return false;
    }
  }
  if (std::exchange(part.stuck, false)) co_return true;  // on another lane
  ++part.path;
  co_return co_await repeat(group, part, std::move(error));
}

// False when it can't be told whether bytes of the attempt may still land. Who cancels wants to
// know that, too, but not to wait for long.
Task<bool> BatchRun::fence(Part& part, Transport& transport, const Peer& peer, AttemptId id) {
  os::Executor& executor = engine_.env_.executor;
  os::CancelToken late;
  os::TimerId timer = os::TimerId::kNone;
  os::CancelToken::Watch watch(cancel_, [&executor, &late, &timer] {
    timer = executor.run_at(executor.now() + kFenceOfCancelled, [&late] { late.cancel(); });
  });
  bool fenced = false;
  while (!late.cancelled() && !engine_.stopping_ && engine_.env_.now() < deadline_) {
    const auto answer = co_await transport.fence(peer, id, deadline_, &late);
    fenced = answer.has_value();
    if (fenced) break;
    if (!worth_repeating(answer.error().code()) || ++part.failures >= engine_.max_attempts_) break;
  }
  executor.cancel(timer);
  co_return fenced;
}

// Whether what is left may be tried again; gives it up if not.
Task<bool> BatchRun::repeat(Group& group, Part& part, Error error) {
  const Code code = error.code();
  if (code == Code::kBusy && engine_.env_.now() + pause_after(error) < deadline_) {
    co_await engine_.env_.executor.sleep_for(pause_after(error));
    co_return true;
  }
  // What one way can't do is not held against those that have not been tried.
  if (code == Code::kTransferFailed && part.path < group.ranking.size()) co_return true;
  if (!worth_repeating(code) || ++part.failures >= engine_.max_attempts_) {
    give_up(part, code);
    co_return false;
  }
  if (code == Code::kTransferFailed) co_return true;
  const bool leads_on = co_await find_another_way(group.segment, code);
  if (!leads_on) give_up(part, code);
  co_return leads_on;
}

// Where nobody was reached, and the name leads nowhere else, another attempt of this call would
// only wait its turn, be it of another part: the next call finds a peer that has come back.
Task<bool> BatchRun::find_another_way(Segment& segment, Code code) {
  const net::Address asked = segment.peer.address;
  co_await engine_.find_again(segment, deadline_, cancel_);
  if (code != Code::kUnreachable || segment.peer.address != asked) co_return true;
  gone_[&segment] = asked;
  co_return false;
}

// Who the peer is, and the keys of the batch's ranges.
Task<Result<void>> BatchRun::know(Group& group) {
  Segment& segment = group.segment;
  std::vector<std::size_t> without_key;
  for (const std::size_t entry : group.entries) {
    if (!request(entry).key_given) without_key.push_back(entry);
  }
  for (std::uint32_t failures = 0;;) {
    if (is_gone(segment)) co_return fail(code_at_end(Code::kUnreachable));
    Result<void> known;
    if (!segment.peer.same_process && segment.peer.incarnation == base::Incarnation{} &&
        without_key.empty()) {
      const auto described = co_await engine_.describe(segment, {}, deadline_, cancel_);
      if (!described) known = fail(described.error());
    }
    if (known) known = co_await find_keys(segment, without_key);
    if (!known && called_off()) co_return fail(Code::kCancelled);
    if (known || !worth_repeating(known.error().code())) co_return known;
    if (known.error().code() == Code::kBusy) {
      const base::Duration pause = pause_after(known.error());
      if (engine_.env_.now() + pause >= deadline_) co_return known;
      co_await engine_.env_.executor.sleep_for(pause);
    } else {
      if (++failures >= engine_.max_attempts_) co_return known;
      const bool leads_on = co_await find_another_way(segment, known.error().code());
      if (!leads_on) co_return known;
    }
  }
}

void BatchRun::find_own_keys(const std::vector<std::size_t>& entries) {
  for (const std::size_t entry : entries) {
    Slice& slice = request(entry).slice;
    const auto region = engine_.registry_.find(slice.remote, slice.length);
    if (!region || region->extents) {
      note(entry, Code::kAddressNotRegistered);
    } else {
      slice.key = region->key;
    }
  }
}

// Looks up, and asks for, the keys of these entries. Those that no region covers get their code.
Task<Result<void>> BatchRun::find_keys(Segment& segment, std::vector<std::size_t> entries) {
  if (segment.peer.same_process) {
    find_own_keys(entries);
    co_return Result<void>();
  }
  std::size_t limit = kFirstQuestion;
  for (;;) {
    std::erase_if(entries, [&](std::size_t entry) {
      Slice& slice = request(entry).slice;
      const auto key = segment.keys.find(slice.remote, slice.length);
      if (key) slice.key = *key;
      return key.has_value() || failed(entry);
    });
    if (entries.empty()) co_return Result<void>();
    std::vector<AskedRange> asked;
    for (std::size_t i = 0; i < std::min(limit, entries.size()); ++i) {
      const Slice& slice = request(entries[i]).slice;
      asked.push_back({slice.remote, slice.length});
    }
    const auto regions = co_await engine_.describe(segment, asked, deadline_, cancel_);
    if (!regions) co_return fail(regions.error());
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const DescribedRegion& region = (*regions)[i];
      const bool covers = region.base <= asked[i].address && asked[i].length <= region.length &&
                          asked[i].address - region.base <= region.length - asked[i].length;
      Slice& slice = request(entries[i]).slice;
      if (!covers) {
        note(entries[i], Code::kAddressNotRegistered);
        continue;
      }
      slice.key = region.key;
      segment.keys.add(region.base, region.length, region.key);
    }
    entries.erase(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(asked.size()));
    limit = kMaxDescribed;
  }
}

}  // namespace mooncake::transfer
