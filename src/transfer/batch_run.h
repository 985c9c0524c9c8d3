// BatchRun: one call of EngineImpl::transfer(). batch.cpp has its attempts, batch_keys.cpp what is
// asked of the peer before the first.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "transfer/engine_impl.h"

namespace mooncake::transfer {

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
    Workload workload;                 // all of it
    base::Incarnation life{};          // of the peer, to which the ways lead
    std::vector<std::size_t> ranking;  // of transports, best first
    std::vector<std::vector<Piece>> parts;
    std::size_t next_part = 0;
  };
  // What is left of one request.
  struct Part {
    std::uint32_t number = 0;
    std::uint32_t attempts = 0;
    std::uint32_t failures = 0;  // of whole attempts
    base::Incarnation life{};    // for which the path holds
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
  static bool worth_repeating(Code code);
  static base::Duration pause_after(const Error& error);
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
  std::vector<Candidate> rank_ways(Group& group);
  bool has_way(Group& group, Part& part);
  Task<void> work(Group& group);
  Task<void> run_part(Group& group, std::size_t index);
  void fill(Group& group, std::size_t index, Part& part);
  Task<bool> attempt(Group& group, Part& part);
  Task<Result<void>> execute_on(Lanes::Pass pass, Transport& transport, const Peer& peer,
                                AttemptId id, Part& part);
  Task<bool> after_answer(Group& group, Part& part);
  Task<bool> after_failure(Group& group, Part& part, Transport& transport, Peer peer, AttemptId id,
                           Error error);
  Task<bool> fence(Transport& transport, const Peer& peer, AttemptId id);
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

}  // namespace mooncake::transfer
