// What is stored, where, and what became of it. Whoever asks for everything is answered in pieces,
// between which others are served.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/text.h"
#include "mooncake/config.h"
#include "store/master/http_answers.h"
#include "store/why/explain.h"

namespace mooncake::store::master {

namespace {

using nlohmann::json;
using Lease = MasterServer::Lease;

// Entries looked at for one piece of a list of keys (so it has a MiB at most), and segments told of
// in one piece.
constexpr std::size_t kEntriesAtOnce = 256;
constexpr std::size_t kSegmentsAtOnce = 256;

std::string dump(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

Task<net::HttpResponse> ready(net::HttpResponse response) { co_return response; }

// "" when it may be asked for.
std::string key_fault(std::string_view key) {
  if (!key.empty() && key.size() <= kMaxKeyLength) return "";
  return fmt::format("a key has 1 to {} bytes, not {}", kMaxKeyLength, key.size());
}

json values_of(const Core& core, const Effect& effect) {
  json values = json::array();
  for (std::size_t i = 0; i < effect.replicas; ++i) {
    const Placement& place = effect.placements[i];
    const SegmentAddress* segment = core.segment(place.segment);
    if (segment == nullptr) continue;
    values.push_back({{"size_", effect.size},
                      {"buffer_address_", segment->base + place.offset()},
                      {"protocol_", "tcp"},
                      {"transport_endpoint_", segment->name}});
  }
  return values;
}

net::HttpResponse query_key(const Front& front, const std::string& key) {
  if (const std::string fault = key_fault(key); !fault.empty()) {
    return refusal(code_info(Code::kInvalidArgument).store, fault);
  }
  const Effect effect = front.master->find(key, Lease::kTaken);
  if (effect.code != Code::kOk) {
    return refusal(code_info(effect.code).store, code_info(effect.code).text);
  }
  return json_page(dump({{"success", true}, {"data", values_of(front.master->core(), effect)}}));
}

std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> parts;
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    if (const std::string_view part = list.substr(0, comma); !part.empty()) parts.push_back(part);
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  return parts;
}

net::HttpResponse batch_query_keys(const Front& front, const std::string& list) {
  const std::vector<std::string_view> keys = split(list);
  if (keys.empty() || keys.size() > kMaxBatch) {
    const std::string error =
        fmt::format("keys: {} are named, 1 to {} are allowed", keys.size(), kMaxBatch);
    return json_page(dump({{"success", false}, {"error", error}}), 400);
  }
  json data = json::object();
  for (const std::string_view key : keys) {
    json& entry = data[base::to_utf8(key)];
    Effect effect;
    if (key_fault(key).empty()) {
      effect = front.master->find(key, Lease::kNone);
    } else {
      effect.code = Code::kInvalidArgument;
    }
    if (effect.code == Code::kOk) {
      entry = {{"ok", true}, {"values", values_of(front.master->core(), effect)}};
    } else {
      entry = {{"ok", false}, {"error", code_info(effect.code).text}};
    }
  }
  return json_page(dump({{"success", true}, {"data", std::move(data)}}));
}

net::HttpResponse why(const Front& front, const std::string& key) {
  if (const std::string fault = key_fault(key); !fault.empty()) {
    return refusal(code_info(Code::kInvalidArgument).store, fault);
  }
  return json_page(report_json(key, front.master->why(key, kMaxWhyEvents)));
}

// Steps until it has something to say, so that a directory that has been emptied is gone through
// without holding anybody up either: each empty step is followed by a turn of the others.
Task<std::string> next_keys(std::shared_ptr<Front> front, std::shared_ptr<std::uint32_t> cursor) {
  std::string piece;
  while (piece.empty() && *cursor != kSweepEnd) {
    *cursor = front->master->core().visit_keys(*cursor, kEntriesAtOnce, [&](std::string_view key) {
      piece.append(key);
      piece += '\n';
    });
    if (piece.empty()) co_await front->master->yield();
  }
  co_return piece;
}

net::HttpResponse all_keys(const std::shared_ptr<Front>& front) {
  net::HttpResponse response = text_page("");
  const auto cursor = std::make_shared<std::uint32_t>(0);
  response.more = [front, cursor] { return next_keys(front, cursor); };
  return response;
}

net::HttpResponse all_segments(const Front& front) {
  std::vector<std::string> names;
  for (SegmentUse& use : front.master->core().segments())
    names.push_back(std::move(use.address.name));
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return text_page(names.empty() ? "" : fmt::format("{}\n", fmt::join(names, "\n")));
}

json detail_of(const MasterServer& master, const SegmentUse& use) {
  const SegmentAddress& a = use.address;
  const double share = 100 * static_cast<double>(use.allocated_bytes) / static_cast<double>(a.size);
  return {{"segment_name", a.name},
          {"segment_id", fmt::format("{}-{}", a.id.high, a.id.low)},
          {"client_id", fmt::format("0-{}", master.name_of(use.client))},
          {"base_address", fmt::format("{:#x}", a.base)},
          {"size_bytes", a.size},
          {"size_human", format_size(a.size)},
          {"te_endpoint", a.name},
          {"protocol", "tcp"},
          {"status", use.leaving ? "GRACEFULLY_UNMOUNTING" : "OK"},
          {"allocator_used_bytes", use.allocated_bytes},
          {"allocator_capacity_bytes", a.size},
          {"allocator_usage_percent", share}};
}

// The segments of one moment, and how many of them have been told of.
struct SegmentList {
  const MasterServer* master = nullptr;
  std::vector<SegmentUse> uses;
  std::size_t told = 0;
  bool ended = false;
};

Task<std::string> next_segments(std::shared_ptr<SegmentList> list) {
  std::string piece;
  const std::size_t end = std::min(list->uses.size(), list->told + kSegmentsAtOnce);
  for (; list->told < end; ++list->told) {
    if (list->told > 0) piece += ',';
    piece += dump(detail_of(*list->master, list->uses[list->told]));
  }
  if (list->told == list->uses.size() && !list->ended) {
    piece += "]}\n";
    list->ended = true;
  }
  co_return piece;
}

net::HttpResponse segments_detail(const Front& front) {
  const auto list = std::make_shared<SegmentList>();
  list->master = front.master;
  list->uses = front.master->core().segments();
  net::HttpResponse response = json_page("");
  response.body = fmt::format("{{\"total_segments\":{},\"segments\":[", list->uses.size());
  response.more = [list] { return next_segments(list); };
  return response;
}

// Of all segments of a name, which are one engine's.
struct NamedUse {
  std::size_t segments = 0;
  std::uint64_t used = 0, capacity = 0;
  bool leaving = true;
};
NamedUse use_of(const Front& front, const std::string& name) {
  NamedUse sum;
  for (const SegmentUse& use : front.master->core().segments()) {
    if (use.address.name != name) continue;
    ++sum.segments;
    sum.used += use.allocated_bytes;
    sum.capacity += use.address.size;
    sum.leaving = sum.leaving && use.leaving;
  }
  return sum;
}

net::HttpResponse query_segment(const Front& front, const std::string& name) {
  const NamedUse use = use_of(front, name);
  if (use.segments == 0) return text_page("segment not found\n", 500);
  return text_page(
      fmt::format("{}\nUsed(bytes): {}\nCapacity(bytes) : {}\n", name, use.used, use.capacity));
}

net::HttpResponse segment_status(const Front& front, const std::string& name) {
  constexpr int kOk = 1, kGracefullyUnmounting = 4;
  const NamedUse use = use_of(front, name);
  if (use.segments == 0) {
    return refusal(code_info(Code::kSegmentNotFound).store,
                   fmt::format("segment {} is not mounted", base::quote(name)));
  }
  return json_page(dump({{"success", true},
                         {"segment", name},
                         {"status", use.leaving ? kGracefullyUnmounting : kOk},
                         {"status_name", use.leaving ? "GRACEFULLY_UNMOUNTING" : "OK"},
                         {"error_code", 0},
                         {"error_message", ""}}));
}

}  // namespace

void add_query_routes(net::HttpServer& http, const std::shared_ptr<Front>& front) {
  // Routes that ask for the thing that a field of the query names.
  const auto about_keys = [&](const char* path, const char* name, auto answer) {
    http.route("GET", path, [front, name, answer](const net::HttpRequest& request) {
      if (auto refused = refuse_strangers(*front, request)) return ready(*std::move(refused));
      return ready(answer(*front, field(request, name)));
    });
  };
  const auto about_segment = [&](const char* path, auto answer) {
    http.route("GET", path, [front, answer](const net::HttpRequest& request) {
      return ready(answer(*front, field(request, "segment")));
    });
  };
  about_keys("/query_key", "key", query_key);
  about_keys("/batch_query_keys", "keys", batch_query_keys);
  about_keys("/why", "key", why);
  about_segment("/query_segment", query_segment);
  about_segment("/api/v1/segments/status", segment_status);
  http.route("GET", "/get_all_keys", [front](const net::HttpRequest& request) {
    if (auto refused = refuse_strangers(*front, request)) return ready(*std::move(refused));
    return ready(all_keys(front));
  });
  http.route("GET", "/get_all_segments",
             [front](const net::HttpRequest&) { return ready(all_segments(*front)); });
  http.route("GET", "/get_segments_detail",
             [front](const net::HttpRequest&) { return ready(segments_detail(*front)); });
}

}  // namespace mooncake::store::master
