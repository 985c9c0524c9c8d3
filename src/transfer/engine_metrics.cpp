// What an engine shows of itself. Read on its executor.
#include "transfer/engine_impl.h"

namespace mooncake::transfer {

namespace {

using Rows = std::vector<std::pair<base::Labels, double>>;

double number(std::uint64_t value) { return static_cast<double>(value); }

}  // namespace

void EngineImpl::add_metrics() {
  metrics_.gauges("mooncake_engine_bytes_total", "Bytes moved by path, both directions", [this] {
    Rows rows;
    for (const auto& [path, bytes] : bytes_by_path())
      rows.push_back({{{"path", path}}, number(bytes)});
    return rows;
  });
  metrics_.gauge("mooncake_engine_memory_limit_bytes", "The budget of this engine",
                 [this] { return number(budget_->limit()); });
  metrics_.gauges(
      "mooncake_engine_memory_bytes",
      "Bytes by use; all but live mappings of peers count for the budget", [this] {
        Rows rows;
        for (std::size_t i = 0; i < base::kMemoryUses; ++i) {
          const auto use = static_cast<base::MemoryUse>(i);
          rows.push_back({{{"use", std::string(to_string(use))}}, number(budget_->used(use))});
        }
        return rows;
      });
  const auto counter = [this](const char* name, const char* help, std::uint64_t Counters::*field) {
    metrics_.gauge(name, help, [this, field] { return number(counters().*field); });
  };
  counter("mooncake_engine_refused_ranges_total",
          "Accesses of peers that named what they may not touch", &Counters::refused_ranges);
  counter("mooncake_engine_fenced_attempts_total",
          "Attempts of peers that were under way when they were fenced",
          &Counters::fenced_attempts);
  counter("mooncake_engine_retried_attempts_total", "Attempts that were made again",
          &Counters::retried_attempts);
  counter("mooncake_engine_quarantined_bytes", "Bytes here and at peers whose fence is awaited",
          &Counters::quarantined_bytes);
  counter("mooncake_engine_helped_copies_total", "Large copies that two threads have made",
          &Counters::helped_copies);
  add_server_metrics();
}

void EngineImpl::add_server_metrics() {
  using Server = net::RpcServer::Counters;
  const auto row = [this](const char* name, const char* help, std::uint64_t Server::*field) {
    metrics_.gauge(name, help, [this, field] { return number(server_->counters().*field); });
  };
  row("mooncake_engine_connections", "Connections of peers", &Server::connections);
  row("mooncake_engine_accepted_connections_total", "Connections accepted", &Server::accepted);
  row("mooncake_engine_held_bytes", "Requests of peers, and replies that they have not read",
      &Server::held_bytes);
  row("mooncake_engine_requests_total", "Requests of peers", &Server::requests);
  row("mooncake_engine_failed_requests_total", "Of these, those that failed",
      &Server::failed_requests);
  row("mooncake_engine_expired_requests_total", "Requests shed because nobody waited any more",
      &Server::expired);
  metrics_.gauges("mooncake_engine_refused_connections_total", "Connections refused", [this] {
    const Server counters = server_->counters();
    return Rows{{{{"reason", "authentication"}}, number(counters.refused_authentication)},
                {{{"reason", "version"}}, number(counters.refused_version)},
                {{{"reason", "malformed"}}, number(counters.malformed)},
                {{{"reason", "limit"}}, number(counters.over_limit)}};
  });
  metrics_.gauges("mooncake_engine_closed_connections_total", "Connections closed from here",
                  [this] {
                    const Server counters = server_->counters();
                    return Rows{{{{"reason", "crowded_out"}}, number(counters.crowded_out)},
                                {{{"reason", "stalled"}}, number(counters.stalled)},
                                {{{"reason", "idle"}}, number(counters.idle)},
                                {{{"reason", "greedy"}}, number(counters.greedy)}};
                  });
}

}  // namespace mooncake::transfer
