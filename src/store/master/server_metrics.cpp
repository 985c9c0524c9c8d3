#include "store/master/server_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "mooncake/config.h"

namespace mooncake::store::master {

namespace {

using Rows = std::vector<std::pair<base::Labels, double>>;

double number(std::uint64_t value) { return static_cast<double>(value); }

// One row for each name: several segments of one engine share theirs.
template <typename Value>
Rows rows_by_segment(const Core& core, Value value) {
  std::map<std::string, std::uint64_t> sums;
  for (const SegmentUse& use : core.segments())
    sums[use.address.name] += value(use);
  Rows rows;
  for (const auto& [name, sum] : sums)
    rows.push_back({{{"segment", name}}, number(sum)});
  return rows;
}

}  // namespace

std::string metrics_summary(const Core& core) {
  const Totals& totals = core.totals();
  const double share = totals.capacity_bytes == 0
                           ? 0
                           : 100 * number(totals.allocated_bytes) / number(totals.capacity_bytes);
  return fmt::format(
      "Memory: {} of {} ({:.1f}%) | Keys: {} (soft-pinned: {}, hard-pinned: {}) | Writes: {} | "
      "Clients: {} | Segments: {} | Evicted: {} keys, {} | Lost: {} keys",
      format_size(totals.allocated_bytes), format_size(totals.capacity_bytes), share,
      totals.objects, totals.soft_pinned_objects, totals.hard_pinned_objects, totals.open_grants,
      totals.clients, totals.segments, totals.evicted_objects, format_size(totals.evicted_bytes),
      totals.lost_objects);
}

ServerMetrics::ServerMetrics(const Core& core, const net::RpcServer& rpc)
    : asked_(registry_.counter("total_get_nums_", "Keys asked for by readers")),
      found_(registry_.counter("valid_get_nums_", "Keys asked for by readers, and found")),
      value_bytes_(registry_.histogram("master_value_size_bytes", "Bytes of objects granted room",
                                       base::Histogram::size_bounds())) {
  add_method(CommandKind::kGrant, "put_start");
  add_method(CommandKind::kPublish, "put_end");
  add_method(CommandKind::kRevoke, "put_revoke");
  add_method(CommandKind::kLocate, "get_replica_list");
  add_method(CommandKind::kExist, "exist_key");
  add_method(CommandKind::kRemove, "remove");
  add_method(CommandKind::kSweep, "remove_all");
  by_regex_.requests = &registry_.counter("master_remove_by_regex_requests_total", "Such calls");
  by_regex_.failures =
      &registry_.counter("master_remove_by_regex_failures_total", "Of these, those that failed");
  add_method(CommandKind::kMount, "mount_segment");
  add_method(CommandKind::kUnmount, "unmount_segment");
  add_method(CommandKind::kHeartbeat, "ping");
  add_data_types();
  add_gauges(core);
  add_refusals(rpc);
}

void ServerMetrics::add_method(CommandKind kind, const std::string& name) {
  Method& method = methods_[static_cast<std::size_t>(kind)];
  const std::string single = "master_" + name;
  method.requests = &registry_.counter(single + "_requests_total", "Messages with one item");
  method.failures = &registry_.counter(single + "_failures_total", "Of these, those that failed");
  const bool batches = kind == CommandKind::kGrant || kind == CommandKind::kPublish ||
                       kind == CommandKind::kRevoke || kind == CommandKind::kLocate ||
                       kind == CommandKind::kExist || kind == CommandKind::kRemove;
  if (!batches) return;
  const std::string batch = "master_batch_" + name;
  method.batch_requests = &registry_.counter(batch + "_requests_total", "Messages with many items");
  method.batch_failures =
      &registry_.counter(batch + "_failures_total", "Of these, those in which every item failed");
  method.batch_partial_successes = &registry_.counter(batch + "_partial_successes_total",
                                                      "Of these, those in which some items failed");
  method.batch_items = &registry_.counter(batch + "_items_total", "Items of such messages");
  method.batch_failed_items =
      &registry_.counter(batch + "_failed_items_total", "Of these, those that failed");
}

void ServerMetrics::add_data_types() {
  constexpr const char* kNames[] = {"unknown",  "kvcache",    "tensor",   "weight",
                                    "sample",   "activation", "gradient", "optimizer_state",
                                    "metadata", "general"};
  static_assert(std::size(kNames) == std::tuple_size_v<decltype(granted_)>);
  for (std::size_t type = 0; type < granted_.size(); ++type) {
    granted_[type] = &registry_.counter("master_granted_keys_total", "Objects granted room",
                                        {{"data_type", kNames[type]}});
  }
}

void ServerMetrics::add_gauges(const Core& core) {
  const Core* c = &core;
  const auto total = [this, c](const char* name, const char* help, std::uint64_t Totals::*field) {
    registry_.gauge(name, help, [c, field] { return number(c->totals().*field); });
  };
  total("master_key_count", "Objects", &Totals::objects);
  total("master_soft_pin_key_count", "Of these, those with a soft pin",
        &Totals::soft_pinned_objects);
  total("master_hard_pin_key_count", "Of these, those with a hard pin",
        &Totals::hard_pinned_objects);
  total("master_allocated_bytes", "Bytes given to objects and open writes",
        &Totals::allocated_bytes);
  total("master_total_capacity_bytes", "Bytes of mounted segments", &Totals::capacity_bytes);
  total("master_prepared_bytes", "Of these, those that may be given out", &Totals::prepared_bytes);
  total("master_active_clients", "Clients", &Totals::clients);
  total("master_open_grants", "Writes under way", &Totals::open_grants);
  total("master_evicted_key_count", "Objects evicted since start", &Totals::evicted_objects);
  total("master_evicted_size_bytes", "Bytes evicted since start", &Totals::evicted_bytes);
  total("master_attempted_evictions_total", "Rounds of eviction", &Totals::eviction_attempts);
  total("master_put_start_alloc_failures_total", "Grants that found no room",
        &Totals::grant_shortages);
  total("master_put_start_partial_allocations_total", "Grants with fewer replicas than asked",
        &Totals::partial_grants);
  total("master_put_start_discard_cnt", "Writes given up for their age", &Totals::expired_grants);
  total("master_expired_clients_total", "Clients that fell silent", &Totals::expired_clients);
  total("master_disowned_clients_total", "Clients whose engine was replaced by a namesake",
        &Totals::disowned_clients);
  total("master_forged_versions_total", "Clients sent to mount again for versions never granted",
        &Totals::forged_versions);
  total("master_lost_objects_total", "Objects whose last replica went with its owner",
        &Totals::lost_objects);
  registry_.gauge("master_epoch", "Epoch of this Master",
                  [c] { return number(static_cast<std::uint32_t>(c->epoch())); });
  registry_.gauges("segment_allocated_bytes", "Bytes given out of a segment", [c] {
    return rows_by_segment(*c, [](const SegmentUse& use) { return use.allocated_bytes; });
  });
  registry_.gauges("segment_total_capacity_bytes", "Bytes of a segment", [c] {
    return rows_by_segment(*c, [](const SegmentUse& use) { return use.address.size; });
  });
}

void ServerMetrics::add_refusals(const net::RpcServer& rpc) {
  const net::RpcServer* server = &rpc;
  registry_.gauge("master_connections", "Connections",
                  [server] { return number(server->counters().connections); });
  registry_.gauges("master_refused_connections_total", "Connections refused since start", [server] {
    const net::RpcServer::Counters counters = server->counters();
    return Rows{{{{"reason", "authentication"}}, number(counters.refused_authentication)},
                {{{"reason", "version"}}, number(counters.refused_version)},
                {{{"reason", "malformed"}}, number(counters.malformed)},
                {{{"reason", "limit"}}, number(counters.over_limit)}};
  });
  registry_.gauge("master_expired_requests_total", "Requests shed because nobody waited any more",
                  [server] { return number(server->counters().expired); });
}

void ServerMetrics::answered(const Command& command, const Effects& effects, bool failed) {
  // The steps of one call count once.
  if (command.kind == CommandKind::kSweep && command.cursor != 0) return;
  const bool by_regex = command.kind == CommandKind::kSweep && command.matches != nullptr;
  Method& method = by_regex ? by_regex_ : methods_[static_cast<std::size_t>(command.kind)];
  const std::size_t items = command.items.size();
  const auto bad = [](const Effect& effect) { return effect.code != Code::kOk; };
  const auto failures =
      static_cast<std::size_t>(std::count_if(effects.items.begin(), effects.items.end(), bad));
  if (command.kind == CommandKind::kLocate) {
    asked_.add(items);
    found_.add(items - std::min(items, failures));
  }
  if (command.kind == CommandKind::kGrant) {
    for (const Effect& effect : effects.items) {
      if (effect.code != Code::kOk) continue;
      value_bytes_.observe(number(effect.size));
      granted_[static_cast<std::size_t>(command.data_type)]->add();
    }
  }
  if (items <= 1 || method.batch_requests == nullptr) {
    method.requests->add();
    if (failed || failures > 0) method.failures->add();
    return;
  }
  method.batch_requests->add();
  method.batch_items->add(items);
  method.batch_failed_items->add(failed ? items : failures);
  if (failed || failures == items) {
    method.batch_failures->add();
  } else if (failures > 0) {
    method.batch_partial_successes->add();
  }
}

}  // namespace mooncake::store::master
