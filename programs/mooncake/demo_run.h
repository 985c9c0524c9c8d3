// DemoRun: the parent's part of a demo. Starts the processes, admits requests, grants slots of
// decode nodes, collects what the nodes report, and sees to it that everything ends.
#pragma once

#include <mooncake/result.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "demo_admission.h"
#include "demo_cluster.h"
#include "demo_control.h"
#include "demo_memory.h"
#include "demo_options.h"
#include "demo_report.h"
#include "progress_bar.h"
#include "workload/trace.h"

namespace mooncake::demo {

class DemoRun {
 public:
  // `requests` must outlive this.
  DemoRun(const DemoOptions& options, const MemoryPlan& plan,
          std::span<const workload::Request> requests);
  ~DemoRun();

  // Runs the trace to its end, whatever bytes are wrong. An error is a failure of the cluster, and
  // names the process; kCancelled when signal() asked to stop. All processes have ended on return.
  Result<Report> run();
  int signal() const { return signal_; }

 private:
  // A request between its start and its last verified block.
  struct InFlight {
    std::size_t prefill = 0;  // index among prefill nodes
    std::size_t hits = 0;
    std::size_t verifying = 0;  // windows that lie at decode nodes
    bool looked = false;        // has said what it found
    bool all_handed = false;
    std::string where;  // for the watchdog: who has it, doing what
    Time last_news{};
  };
  struct DecodeNode {
    std::size_t child = 0;
    DecodePeer peer;
    std::vector<std::uint64_t> free_slots;
  };
  struct PrefillSlot {
    std::size_t child = 0;
    bool idle = true;
  };
  struct Granted {
    std::size_t decode = 0;
    std::uint64_t slot = 0;
  };

  Result<Report> run_cluster();
  Result<void> start_master();
  Result<bool> try_master(const std::string& path);  // false: its port was taken meanwhile
  Result<void> start_nodes();
  Result<void> start_node(const std::string& role, std::uint64_t number, std::uint64_t slots);
  Result<void> greet_nodes();
  Result<void> replay();
  Result<void> read_master_metrics();
  Result<void> stop_nodes();
  Result<void> stop_master();

  // Waits for events; an end that was not asked for and a signal are errors.
  Result<Cluster::Events> next_events(Time until, bool ends_expected = false);
  std::string obituaries(const Cluster::Events& events, bool ends_expected) const;
  Result<void> check_watchdog(Time now) const;
  Time watchdog_time() const;
  void measure_memory();
  void show_progress(Time now);

  void admit(Time now);
  void grant_slots(Time now);
  Result<void> on_message(std::size_t child, const Message& message, Time now);
  Result<void> on_found(const Found& found, Time now);
  Result<void> on_stored(const Stored& stored, Time now);
  Result<void> on_handed(const Handed& handed, Time now);
  Result<void> on_verified(std::size_t child, const Verified& verified, Time now);
  // The request a message is about; kProtocolError when it isn't under way.
  Result<InFlight*> find(std::uint64_t request, Time now);
  void finish(std::size_t request);
  void take_check(const Check& check);
  Error unexpected(std::size_t child, const Message& message) const;
  Result<void> finish_report();

  const DemoOptions options_;
  const MemoryPlan plan_;
  const std::span<const workload::Request> requests_;
  Admission admission_;
  std::unique_ptr<Cluster> cluster_;
  ProgressBar bar_;
  Progress progress_;
  Report report_;
  int signal_ = 0;

  std::size_t master_ = 0;  // child
  std::string master_rpc_;
  std::string master_http_;
  std::vector<std::size_t> nodes_;  // children
  std::vector<PrefillSlot> prefill_;
  std::vector<DecodeNode> decode_;
  std::map<std::size_t, InFlight> in_flight_;
  std::deque<std::size_t> want_slot_;       // requests, in the order of asking
  std::map<std::size_t, Granted> granted_;  // request -> where its next window goes
  std::size_t finished_ = 0;
  Time replay_begin_{};
  Time next_memory_{};
};

}  // namespace mooncake::demo
