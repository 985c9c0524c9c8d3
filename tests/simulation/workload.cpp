#include "workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <list>

#include "actor.h"

namespace mooncake::simulation {

namespace {

using base::Task;
using base::TimePoint;
using std::chrono::milliseconds;

// Drawn from the seed, since defaults hide bugs.
ClusterOptions draw_cluster(std::uint64_t seed) {
  base::Random random(seed ^ 0xC1057E8);
  ClusterOptions options;
  options.seed = seed;
  // Room for all, for some, or for few of the objects.
  const std::uint64_t sizes[] = {4u << 20, 1u << 20, 384u << 10};
  options.segment_size = sizes[random.below(3)];
  options.core.lease_ttl = milliseconds(20 + random.below(300));
  options.core.client_ttl = milliseconds(800 + random.below(1500));
  options.core.grant_ttl = milliseconds(500 + random.below(1500));
  options.core.eviction_high_watermark = random.chance(0.5) ? 1.0 : 0.7 + 0.3 * random.unit();
  options.core.eviction_policy =
      store::master::kEvictionKinds[seed % std::size(store::master::kEvictionKinds)];
  return options;
}

class Run {
 public:
  explicit Run(const WorkloadOptions& options)
      : options_(options), cluster_(draw_cluster(options.seed)), random_(options.seed ^ 0xFA17) {
    shared_.cluster = &cluster_;
    shared_.keys = options.keys;
    shared_.operations_left = options.operations;
  }

  Outcome run() {
    cluster_.start_master();
    for (std::size_t i = 0; i < cluster_.options().clients; ++i)
      start_client(i);
    std::size_t faults_left = std::max<std::size_t>(1, options_.faults);
    while (shared_.operations_left > 0) {
      cluster_.world().run_for(milliseconds(20 + random_.below(150)));
      check("in between");
      if (faults_left > 0 && random_.chance(0.3)) {
        strike();
        --faults_left;
      }
      revive();
      if (!shared_.violations.empty() || !cluster_.history().violations().empty()) break;
    }
    while (faults_left-- > 0 && faults_.empty())
      strike();
    settle();
    read_everything();
    check("at the end");
    release_everything();
    finish();
    return outcome();
  }

 private:
  void start_client(std::size_t index) {
    cluster_.start_client(index);
    Life* life = cluster_.client(index);
    if (life == nullptr) return;
    for (std::size_t i = 0; i < options_.actors; ++i) {
      actors_.emplace_back(shared_, *life, random_.next());
      Actor* actor = &actors_.back();
      life->host.post([this, actor] { tasks_.start(actor->run()); });
    }
  }

  void note(std::string text) {
    const double at = std::chrono::duration<double>(cluster_.now().time_since_epoch()).count();
    faults_.push_back(fmt::format("{:.3f}s {}", at, text));
  }

  void later(milliseconds delay, std::function<void()> work) {
    cluster_.world().run_at(cluster_.now() + delay, std::move(work));
  }

  void freeze(os::SimHost& host, Life* life, std::uint64_t for_ms, const std::string& who) {
    note(fmt::format("{} stopped for {} ms", who, for_ms));
    trouble(who, for_ms);
    if (life != nullptr) ++life->freezes;
    host.freeze();
    os::SimHost* stopped = &host;
    later(milliseconds(for_ms), [stopped, life] {
      if (life == nullptr || !life->dead) stopped->thaw();
    });
  }

  // For so long, and until the Master has made up its mind. A Master in trouble is everybody's.
  void trouble(const std::string& who, std::uint64_t for_ms) {
    const TimePoint until = cluster_.now() + milliseconds(for_ms) +
                            cluster_.options().core.client_ttl + std::chrono::seconds(5);
    if (who == "master") {
      cluster_.history().all_troubled(until);
    } else {
      cluster_.history().owner_troubled(who, until);
    }
  }

  void strike() {
    const std::size_t victim = random_.below(cluster_.options().clients);
    const std::string name = fmt::format("client{}", victim);
    Life* life = cluster_.client(victim);
    switch (random_.below(7)) {
      case 0:
        if (life != nullptr) freeze(life->host, life, 5 + random_.below(300), name);
        break;
      case 1:
        if (life != nullptr) freeze(life->host, life, 2000 + random_.below(4000), name);
        break;
      case 2:
        note(name + " killed");
        cluster_.kill_client(victim);
        break;
      case 3:
        if (cluster_.master_up()) {
          freeze(cluster_.master_host(), cluster_.master_life(), 10 + random_.below(1500),
                 "master");
        }
        break;
      case 4:
        note("master killed");
        trouble("master", 0);
        leave_master();
        cluster_.kill_master();
        break;
      case 5:
        storm();
        break;
      default:
        note(fmt::format("{} and master parted", name));
        cluster_.network().partition(name, "master");
        trouble(name, 3200);
        later(milliseconds(200 + random_.below(3000)), [this] { cluster_.network().heal(); });
    }
  }

  void storm() {
    note("the wire loses, cuts, repeats and stalls");
    trouble("master", 1800);
    net::SimFaults& faults = cluster_.network().faults;
    faults.lose = 0.02 * random_.unit();
    faults.cut = 0.02 * random_.unit();
    faults.duplicate = 0.05 * random_.unit();
    faults.stall = 0.02 * random_.unit();
    later(milliseconds(300 + random_.below(1500)),
          [this] { cluster_.network().faults = net::SimFaults(); });
  }

  // Brings back what was killed, after a while.
  void revive() {
    cluster_.bury();
    if (!cluster_.master_up() && random_.chance(0.5)) {
      note("master restarted");
      trouble("master", 0);
      cluster_.start_master();
    }
    for (std::size_t i = 0; i < cluster_.options().clients; ++i) {
      if (cluster_.client(i) == nullptr && cluster_.master_up() && random_.chance(0.3)) {
        note(fmt::format("client{} restarted", i));
        start_client(i);
      }
    }
  }

  // Peace: faults end, all live, and all time-outs have passed.
  void settle() {
    shared_.quiet = true;
    cluster_.network().heal();
    cluster_.network().faults = net::SimFaults();
    cluster_.bury();
    cluster_.start_master();
    cluster_.master_host().thaw();
    for (std::size_t i = 0; i < cluster_.options().clients; ++i) {
      if (cluster_.client(i) != nullptr) cluster_.client(i)->host.thaw();
    }
    // Clients that are silent have expired by then.
    cluster_.world().run_for(cluster_.options().core.client_ttl * 2);
    for (std::size_t i = 0; i < cluster_.options().clients; ++i)
      cluster_.start_client(i);
    cluster_.world().run_for(std::chrono::seconds(8));
    if (tasks_.running() > 0) {
      shared_.violations.push_back(fmt::format("{} callers never came back", tasks_.running()));
    }
    for (std::size_t i = 0; i < cluster_.options().clients; ++i) {
      if (cluster_.client(i) == nullptr || !cluster_.client(i)->client->mounted()) {
        shared_.violations.push_back(fmt::format("at peace, client{} is not mounted", i));
      }
    }
    // Soft pins end by themselves, and so do writes that nobody goes on with.
    expect_none("open writes", cluster_.core().totals().open_grants);
    expect_none("soft pins", cluster_.core().totals().soft_pinned_objects);
  }

  void expect_none(const char* what, std::uint64_t count) {
    if (count == 0) return;
    shared_.violations.push_back(fmt::format("at peace, there are {} {}", count, what));
  }

  // Once the last lease has ended, a removal that respects leases removes all; nothing is held
  // then.
  void release_everything() {
    cluster_.world().run_for(cluster_.options().core.lease_ttl + milliseconds(1));
    Life* life = cluster_.client(0);
    if (life == nullptr) return;
    const auto removed =
        cluster_.world().run(life->client->remove_matching("", false, std::chrono::seconds(5)));
    if (!removed) {
      shared_.violations.push_back("at peace, a sweep failed: " + removed.error().message());
    }
    const store::master::Totals& totals = cluster_.core().totals();
    expect_none("objects left by a sweep", totals.objects);
    expect_none("hard pins without objects", totals.hard_pinned_objects);
    expect_none("bytes without objects", totals.allocated_bytes);
    check("after all was removed");
    leave_master();
  }

  // What this life of the Master has counted.
  void leave_master() {
    if (cluster_.master_up()) disowned_ += cluster_.core().totals().disowned_clients;
  }

  void read_everything() {
    const std::vector<std::string> keys = cluster_.history().present();
    for (const std::string& key : keys) {
      Life* life = cluster_.client(random_.below(cluster_.options().clients));
      if (life == nullptr) continue;
      Actor reader(shared_, *life, random_.next());
      Actor* actor = &reader;
      cluster_.world().run(done(actor->read(key)));
    }
  }
  static Task<bool> done(Task<void> task) {
    co_await task;
    co_return true;
  }

  void check(const char* when) {
    if (!cluster_.master_up()) return;
    const store::master::Totals& totals = cluster_.core().totals();
    soft_pinned_ = std::max(soft_pinned_, totals.soft_pinned_objects);
    hard_pinned_ = std::max(hard_pinned_, totals.hard_pinned_objects);
    Result<void> sums = cluster_.core().verify();
    if (!sums) {
      shared_.violations.push_back(fmt::format("{}: {}", when, sums.error().message()));
    }
  }

  void finish() {
    cluster_.stop();
    cluster_.world().run_for(std::chrono::seconds(1));
    cluster_.history().check_all_ended();
  }

  Outcome outcome() {
    Outcome out;
    const History& history = cluster_.history();
    out.violations = shared_.violations;
    out.violations.insert(out.violations.end(), history.violations().begin(),
                          history.violations().end());
    out.faults = faults_;
    out.operations = shared_.operations_done;
    out.hits = history.hits;
    out.misses = history.misses;
    out.stored = history.stored;
    out.removals = history.removals;
    out.evictions = history.evictions;
    out.losses = history.losses;
    out.replacements = history.replacements;
    out.places = history.places;
    out.soft_pinned = soft_pinned_;
    out.hard_pinned = hard_pinned_;
    out.disowned = disowned_;
    out.simulated_seconds =
        std::chrono::duration<double>(cluster_.now().time_since_epoch()).count();
    out.wire = cluster_.network().counters();
    return out;
  }

  WorkloadOptions options_;
  Cluster cluster_;
  base::Random random_;
  Shared shared_;
  std::list<Actor> actors_;
  base::TaskGroup tasks_;
  std::vector<std::string> faults_;
  std::uint64_t soft_pinned_ = 0, hard_pinned_ = 0, disowned_ = 0;
};

}  // namespace

Outcome run_seed(const WorkloadOptions& options) { return Run(options).run(); }

}  // namespace mooncake::simulation
