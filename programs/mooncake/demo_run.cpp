#include "demo_run.h"

#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "base/random.h"
#include "common/say.h"
#include "workload/trace_stats.h"

namespace mooncake::demo {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// A request of which nothing is heard for so long means that something hangs.
constexpr seconds kWatchdog{30};
constexpr seconds kMemoryInterval{1};
constexpr milliseconds kLastWords{200};

}  // namespace

DemoRun::DemoRun(const DemoOptions& options, const MemoryPlan& plan,
                 std::span<const workload::Request> requests)
    : options_(options),
      plan_(plan),
      requests_(requests),
      admission_(requests),
      bar_(stderr, !options.json) {}

DemoRun::~DemoRun() = default;

Result<Report> DemoRun::run() {
  MC_TRY(cluster_, Cluster::create());
  Result<Report> report = run_cluster();
  bar_.clear();
  cluster_.reset();
  return report;
}

Result<Report> DemoRun::run_cluster() {
  MC_CHECK(start_master());
  MC_CHECK(start_nodes());
  MC_CHECK(greet_nodes());
  std::string processes;
  for (std::size_t i = 0; i < cluster_->size(); ++i) {
    if (!cluster_->alive(i)) continue;  // a Master whose port was taken
    processes += fmt::format(" {}={}", cluster_->name(i), cluster_->pid(i));
  }
  program::say(stderr, "mooncake demo: started{}\n", processes);
  MC_CHECK(replay());
  measure_memory();
  bar_.clear();
  MC_CHECK(read_master_metrics());
  MC_CHECK(stop_nodes());
  MC_CHECK(stop_master());
  MC_CHECK(finish_report());
  return report_;
}

Result<Cluster::Events> DemoRun::next_events(Time until, bool ends_expected) {
  MC_TRY(Cluster::Events events, cluster_->wait(until));
  if (events.signal != 0) {
    signal_ = events.signal;
    return fail(Code::kCancelled,
                fmt::format("stopped by signal {} ({})", events.signal, strsignal(events.signal)));
  }
  std::string ends = obituaries(events, ends_expected);
  if (ends.empty()) return events;
  // Others may fail for one that was killed before its own end is told.
  const Time limit = steady_clock::now() + kLastWords;
  while (steady_clock::now() < limit) {
    auto more = cluster_->wait(limit);
    if (!more || more->signal != 0) break;
    if (const std::string words = obituaries(*more, ends_expected); !words.empty())
      ends += "\n" + words;
  }
  return fail(Code::kUnreachable, ends);
}

// Of those that have ended and should not have.
std::string DemoRun::obituaries(const Cluster::Events& events, bool ends_expected) const {
  std::string words;
  for (std::size_t child : events.ended) {
    if (ends_expected && cluster_->ended_well(child)) continue;
    words += (words.empty() ? "" : "\n") + cluster_->obituary(child);
  }
  return words;
}

Result<void> DemoRun::replay() {
  replay_begin_ = steady_clock::now();
  progress_.requests = requests_.size();
  for (const auto& request : requests_)
    progress_.blocks += request.hash_ids.size();
  while (finished_ < requests_.size()) {
    const Time now = steady_clock::now();
    MC_CHECK(check_watchdog(now));
    admit(now);
    grant_slots(now);
    show_progress(now);
    if (now >= next_memory_) {
      measure_memory();
      next_memory_ = now + kMemoryInterval;
    }
    const Time until = std::min({watchdog_time(), bar_.next_update(), next_memory_});
    MC_TRY(const Cluster::Events events, next_events(until));
    for (const auto& [child, message] : events.messages) {
      MC_CHECK(on_message(child, message, steady_clock::now()));
    }
  }
  const std::chrono::duration<double> passed = steady_clock::now() - replay_begin_;
  report_.seconds = passed.count();
  return {};
}

Time DemoRun::watchdog_time() const {
  Time first = Time::max();
  for (const auto& [request, flight] : in_flight_) {
    first = std::min(first, flight.last_news + kWatchdog);
  }
  return first;
}

Result<void> DemoRun::check_watchdog(Time now) const {
  for (const auto& [request, flight] : in_flight_) {
    if (now < flight.last_news + kWatchdog) continue;
    return fail(Code::kDeadlineExceeded, fmt::format("request {}: no news for {} s; it was at {}",
                                                     request, kWatchdog.count(), flight.where));
  }
  return {};
}

void DemoRun::show_progress(Time now) {
  if (now < bar_.next_update()) return;
  const std::chrono::duration<double> passed = now - replay_begin_;
  progress_.seconds = passed.count();
  progress_.requests_done = finished_;
  progress_.hit_ratio = report_.hit_ratio();
  progress_.bytes_moved =
      report_.store_get.bytes() + report_.store_put.bytes() + report_.handoff.bytes();
  bar_.update(progress_, now);
}

void DemoRun::measure_memory() {
  std::uint64_t sum = memory_of(::getpid());
  for (std::size_t i = 0; i < cluster_->size(); ++i) {
    if (cluster_->alive(i)) sum += memory_of(cluster_->pid(i));
  }
  report_.memory_peak = std::max(report_.memory_peak, sum);
}

void DemoRun::admit(Time now) {
  for (std::size_t i = 0; i < prefill_.size(); ++i) {
    if (!prefill_[i].idle) continue;
    const auto next = admission_.next();
    if (!next) return;
    const std::size_t request = *next;
    admission_.start(request);
    prefill_[i].idle = false;
    InFlight& flight = in_flight_[request];
    flight.prefill = i;
    flight.last_news = now;
    flight.where = cluster_->name(prefill_[i].child) + ", looking for its prefix";
    Work work;
    work.request = request;
    work.ids = requests_[request].hash_ids;
    if (options_.inject_corruption && request == requests_.size() / 2) {
      base::Random random(options_.seed);
      work.corruption = Corruption{work.ids.size() / 2, random.below(options_.block_bytes)};
    }
    cluster_->send(prefill_[i].child, work);
  }
}

void DemoRun::grant_slots(Time now) {
  while (!want_slot_.empty()) {
    const auto freest = std::max_element(decode_.begin(), decode_.end(),
                                         [](const DecodeNode& a, const DecodeNode& b) {
                                           return a.free_slots.size() < b.free_slots.size();
                                         });
    if (freest->free_slots.empty()) return;
    const std::size_t request = want_slot_.front();
    want_slot_.pop_front();
    const std::uint64_t slot = freest->free_slots.back();
    freest->free_slots.pop_back();
    const auto decode = static_cast<std::size_t>(freest - decode_.begin());
    granted_[request] = {decode, slot};
    in_flight_[request].last_news = now;
    cluster_->send(prefill_[in_flight_[request].prefill].child, Slot{request, decode, slot});
  }
}

Result<void> DemoRun::on_message(std::size_t child, const Message& message, Time now) {
  if (const auto* found = std::get_if<Found>(&message)) return on_found(*found, now);
  if (const auto* stored = std::get_if<Stored>(&message)) return on_stored(*stored, now);
  if (const auto* handed = std::get_if<Handed>(&message)) return on_handed(*handed, now);
  if (const auto* verified = std::get_if<Verified>(&message)) {
    return on_verified(child, *verified, now);
  }
  return fail(unexpected(child, message));
}

Error DemoRun::unexpected(std::size_t child, const Message& message) const {
  return Error(Code::kProtocolError,
               fmt::format("did not expect {} from {}", encode(message).substr(0, 200),
                           cluster_->name(child)));
}

Result<DemoRun::InFlight*> DemoRun::find(std::uint64_t request, Time now) {
  const auto entry = in_flight_.find(request);
  if (entry == in_flight_.end()) {
    return fail(Code::kProtocolError, fmt::format("request {} is not under way", request));
  }
  entry->second.last_news = now;
  return &entry->second;
}

Result<void> DemoRun::on_found(const Found& found, Time now) {
  MC_TRY(InFlight* const flight, find(found.request, now));
  const bool first = !flight->looked;
  flight->looked = true;
  flight->hits = found.hits;
  flight->where = cluster_->name(prefill_[flight->prefill].child) + ", reading and writing blocks";
  admission_.found(found.request, found.hits);
  if (first) want_slot_.push_back(found.request);
  return {};
}

Result<void> DemoRun::on_stored(const Stored& stored, Time now) {
  MC_TRY(InFlight* const flight, find(stored.request, now));
  flight->where = cluster_->name(prefill_[flight->prefill].child) + ", handing over blocks";
  admission_.stored(stored.request, stored.up_to);
  for (const auto& [code, blocks] : stored.not_stored) {
    report_.not_stored += blocks;
    report_.not_stored_by_code[code] += blocks;
  }
  report_.store_get.add(stored.get);
  report_.store_put.add(stored.put);
  report_.verified_by_prefill += stored.check.bytes;
  take_check(stored.check);
  return {};
}

Result<void> DemoRun::on_handed(const Handed& handed, Time now) {
  MC_TRY(InFlight* const flight, find(handed.request, now));
  const auto granted = granted_.find(handed.request);
  const auto& ids = requests_[handed.request].hash_ids;
  if (granted == granted_.end() || handed.first + handed.count > ids.size()) {
    return fail(unexpected(prefill_[flight->prefill].child, handed));
  }
  const Granted place = granted->second;
  granted_.erase(granted);
  report_.handoff.add(handed.call);
  for (const auto& [path, reason] : handed.reasons)
    report_.paths[path].reason = reason;
  const auto window = std::span(ids).subspan(handed.first, handed.count);
  const std::size_t child = decode_[place.decode].child;
  cluster_->send(child, Verify{handed.request, place.slot, handed.first,
                               std::vector<std::uint64_t>(window.begin(), window.end())});
  ++flight->verifying;
  flight->where = cluster_->name(child) + ", verifying";
  if (handed.last) {
    flight->all_handed = true;
    prefill_[flight->prefill].idle = true;
  } else {
    want_slot_.push_back(handed.request);
  }
  return {};
}

Result<void> DemoRun::on_verified(std::size_t child, const Verified& verified, Time now) {
  MC_TRY(InFlight* const flight, find(verified.request, now));
  for (DecodeNode& decode : decode_) {
    if (decode.child == child) decode.free_slots.push_back(verified.slot);
  }
  report_.verified_by_decode += verified.check.bytes;
  progress_.blocks_done += verified.check.bytes / options_.block_bytes;
  take_check(verified.check);
  --flight->verifying;
  if (flight->all_handed && flight->verifying == 0) finish(verified.request);
  return {};
}

void DemoRun::finish(std::size_t request) {
  const workload::Request& done = requests_[request];
  const std::size_t hits = in_flight_[request].hits;
  in_flight_.erase(request);
  ++finished_;
  report_.blocks += done.hash_ids.size();
  report_.hits += hits;
  report_.misses += done.hash_ids.size() - hits;
  for (std::size_t i = 0; i < hits; ++i) {
    report_.tokens_saved += workload::block_tokens(done.input_length, i);
  }
}

void DemoRun::take_check(const Check& check) {
  report_.wrong_blocks += check.wrong_blocks;
  for (const WrongBlock& wrong : check.wrong) {
    if (report_.wrong.size() < kMaxWrongNamed) report_.wrong.push_back(wrong);
  }
}

Result<void> DemoRun::finish_report() {
  const workload::TraceStats stats = workload::trace_stats(requests_);
  report_.trace = options_.trace;
  report_.seed = options_.seed;
  report_.requests = requests_.size();
  report_.block_bytes = options_.block_bytes;
  report_.segment_bytes = options_.segment_bytes;
  report_.replicas = options_.replicas;
  report_.unlimited_hit_ratio = stats.hit_ratio();
  report_.input_tokens = stats.input_tokens;
  report_.segments_total = plan_.segments_total;
  report_.buffers_total = plan_.buffers_total;
  // What was counted one by one must be what the trace holds.
  if (report_.blocks != stats.blocks || report_.hits + report_.misses != report_.blocks ||
      report_.not_stored > report_.misses) {
    return fail(Code::kInternal,
                fmt::format("the counts don't agree: {} hits, {} misses and {} not stored of {}",
                            report_.hits, report_.misses, report_.not_stored, stats.blocks));
  }
  return {};
}

}  // namespace mooncake::demo
