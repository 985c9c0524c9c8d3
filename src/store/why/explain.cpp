#include "store/why/explain.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace mooncake {

namespace {

// One row for each kind: its word, and how it goes on behind "'k' ".
struct KindWords {
  std::string_view word;
  std::string_view sentence;
};
constexpr KindWords kKinds[] = {
    {"unknown", "changed in a way that only a newer program knows"},
    {"published", "was published"},
    {"evicted_for_room", "was evicted to make room for another object"},
    {"evicted_ahead", "was evicted because the pool was above its high watermark"},
    {"removed", "was removed by its key"},
    {"removed_by_pattern", "was removed with all keys that match a pattern"},
    {"removed_with_all", "was removed when everything was"},
    {"replaced", "was replaced by an upsert"},
    {"write_timed_out", "was being written, but not finished in time"},
    {"write_abandoned", "was being written, but its writer gave up without a word"},
    {"writer_left", "was being written by a client that has left or fallen silent"},
    {"write_revoked", "was being written, but its data did not arrive and the writer gave up"},
    {"write_overtaken", "was being written, but another write of the key was published first"},
    {"segment_unmounted", "was lost with its segment, which the owner took back"},
    {"segment_mounted_anew", "was lost when the owner of its segment mounted it again, empty"},
    {"owner_left", "was lost with its segment when the owner closed"},
    {"owner_silent", "was lost with its segment when the owner fell silent"},
    {"owner_replaced", "was lost with its segment when another process took the owner's name"},
    {"owner_distrusted", "was lost with its segment, whose owner claimed what it never had"},
};
static_assert(std::size(kKinds) == kLastKeyEventKind + 1);

const KindWords& words_of(KeyEventKind kind) {
  const auto number = static_cast<std::size_t>(kind);
  return kKinds[number < std::size(kKinds) ? number : 0];
}

MissReason reason_of(KeyEventKind kind) {
  using enum KeyEventKind;
  if (kind == kEvictedForRoom || kind == kEvictedAhead) return MissReason::kEvicted;
  if (kind >= kRemoved && kind <= kRemovedWithAll) return MissReason::kRemoved;
  if (kind >= kWriteTimedOut && kind <= kWriteOvertaken) return MissReason::kNotPublished;
  if (kind >= kSegmentUnmounted && kind <= kOwnerDistrusted) return MissReason::kLost;
  return MissReason::kUnexplained;
}

// The event that says why the key is not there: the newest end of something published, which a
// later write that came to nothing does not explain away; else the newest end of a write.
const KeyEvent* decisive_event(const KeyReport& report) {
  const auto ended = std::find_if(
      report.events.begin(), report.events.end(),
      [](const KeyEvent& event) { return reason_of(event.kind) != MissReason::kNotPublished; });
  if (ended != report.events.end()) return &*ended;
  return report.events.empty() ? nullptr : &report.events.front();
}

std::string said_by(std::string_view who) {
  return who.empty() ? std::string() : fmt::format(" by {}", who);
}

std::string what_was_there(const KeyEvent& event) {
  return fmt::format("{} bytes{}{}", event.size, event.soft_pinned ? ", soft-pinned" : "",
                     event.segment.empty() ? "" : fmt::format(", in {}", event.segment));
}

std::string nothing_known(std::string_view key, const KeyReport& report) {
  if (report.has_forgotten) {
    return fmt::format(
        "{} is not here, and none of the last {} events, which reach back {}, is about it: it was "
        "never stored, or went before that.",
        key, report.remembered_events, store::format_age(report.remembered_for));
  }
  return fmt::format("{} has never been stored since this Master started {} ago.", key,
                     store::format_age(report.master_uptime));
}

std::string published(std::string_view key, const KeyReport& report) {
  return fmt::format(
      "{} is here: {} bytes, {} replica{}{}{}{}{}.", key, report.size, report.segments.size(),
      report.segments.size() == 1 ? "" : "s",
      report.segments.empty() ? "" : fmt::format(" in {}", fmt::join(report.segments, ", ")),
      report.hard_pinned   ? ", hard-pinned"
      : report.soft_pinned ? ", soft-pinned"
                           : "",
      report.lease_left.count() > 0
          ? fmt::format(", leased for {} more", store::format_age(report.lease_left))
          : "",
      report.open_writes > 0 ? ", and about to be replaced" : "");
}

nlohmann::json event_json(const KeyEvent& event) {
  return {
      {"event", to_string(event.kind)},  {"ms_ago", event.ago.count()}, {"size", event.size},
      {"version", event.version},        {"segment", event.segment},    {"writer", event.writer},
      {"soft_pinned", event.soft_pinned}};
}

}  // namespace

std::string_view to_string(KeyEventKind kind) { return words_of(kind).word; }

std::string_view to_string(KeyState state) {
  switch (state) {
    case KeyState::kWriting:
      return "writing";
    case KeyState::kPublished:
      return "published";
    default:
      return "absent";
  }
}

std::string_view to_string(MissReason reason) {
  switch (reason) {
    case MissReason::kNone:
      return "none";
    case MissReason::kNeverStored:
      return "never_stored";
    case MissReason::kForgotten:
      return "forgotten";
    case MissReason::kBeingWritten:
      return "being_written";
    case MissReason::kNotPublished:
      return "not_published";
    case MissReason::kEvicted:
      return "evicted";
    case MissReason::kRemoved:
      return "removed";
    case MissReason::kLost:
      return "lost";
    case MissReason::kMasterUnreachable:
      return "master_unreachable";
    default:
      return "unexplained";
  }
}

namespace store {

std::string format_age(std::chrono::milliseconds age) {
  const double seconds = static_cast<double>(age.count()) / 1000;
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 172800) return fmt::format("{:.0f} h", seconds / 3600);
  return fmt::format("{:.0f} days", seconds / 86400);
}

void explain(std::string_view key, KeyReport& report) {
  const std::string name = base::quote(key);
  const KeyEvent* decisive = decisive_event(report);
  if (report.state == KeyState::kPublished) {
    report.reason = MissReason::kNone;
    report.summary = published(name, report);
  } else if (report.state == KeyState::kWriting) {
    report.reason = MissReason::kBeingWritten;
    report.summary = fmt::format(
        "{} is being written{}, since {} ago: it can be read once that is "
        "published.",
        name, said_by(report.writer), format_age(report.writing_for));
  } else if (decisive == nullptr) {
    report.reason = report.has_forgotten ? MissReason::kForgotten : MissReason::kNeverStored;
    report.summary = nothing_known(name, report);
  } else {
    report.reason = reason_of(decisive->kind);
    report.summary = fmt::format("{} {}, {} ago ({}).", name, words_of(decisive->kind).sentence,
                                 format_age(decisive->ago), what_was_there(*decisive));
  }
}

std::string timeline(const KeyReport& report) {
  std::string text;
  for (const KeyEvent& event : report.events) {
    const auto seconds = report.master_time - event.ago.count() / 1000;
    text += fmt::format("  {:%Y-%m-%d %H:%M:%S} UTC  {:>9} ago  {:<20}  {}{}\n",
                        fmt::gmtime(static_cast<std::time_t>(seconds)), format_age(event.ago),
                        to_string(event.kind), what_was_there(event),
                        event.writer.empty() ? "" : fmt::format(", written by {}", event.writer));
  }
  if (report.more_events) text += "  older events of this key are left out\n";
  text += report.has_forgotten
              ? fmt::format("  the Master remembers {} events, which reach back {}\n",
                            report.remembered_events, format_age(report.remembered_for))
              : fmt::format("  the Master remembers everything since it started, {} ago\n",
                            format_age(report.master_uptime));
  return text;
}

std::string report_json(std::string_view key, const KeyReport& report) {
  nlohmann::json events = nlohmann::json::array();
  for (const KeyEvent& event : report.events)
    events.push_back(event_json(event));
  nlohmann::json document = {
      {"key", key},
      {"state", to_string(report.state)},
      {"reason", to_string(report.reason)},
      {"summary", report.summary},
      {"size", report.size},
      {"version", report.version},
      {"segments", report.segments},
      {"soft_pinned", report.soft_pinned},
      {"hard_pinned", report.hard_pinned},
      {"lease_left_ms", report.lease_left.count()},
      {"open_writes", report.open_writes},
      {"writer", report.writer},
      {"writing_for_ms", report.writing_for.count()},
      {"events", std::move(events)},
      {"more_events", report.more_events},
      {"remembered_events", report.remembered_events},
      {"remembered_for_ms", report.remembered_for.count()},
      {"has_forgotten", report.has_forgotten},
      {"master_uptime_ms", report.master_uptime.count()},
      {"master_time", report.master_time},
  };
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace store
}  // namespace mooncake
