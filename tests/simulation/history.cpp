#include "history.h"

#include <fmt/format.h>

#include <algorithm>

namespace mooncake::simulation {

namespace {

double seconds(base::TimePoint at) {
  return std::chrono::duration<double>(at.time_since_epoch()).count();
}

constexpr std::size_t kMostViolations = 20;

}  // namespace

void History::violation(std::string text) {
  if (violations_.size() < kMostViolations) violations_.push_back(std::move(text));
}

ValueId History::put_started(const std::string& key, TimePoint at) {
  const auto id = static_cast<ValueId>(next_value_++);
  puts_[id] = Put{key, at};
  keys_[key].puts.push_back(id);
  return id;
}

void History::put_sized(ValueId id, std::uint64_t size) { puts_.at(id).size = size; }

void History::put_ended(ValueId id, Code code, TimePoint at) {
  Put& put = puts_.at(id);
  put.ended = at;
  put.code = code;
  if (code != Code::kOk) return;
  ++stored;
  const Key& key = keys_.at(put.key);
  const bool published = std::any_of(key.lives.begin(), key.lives.end(),
                                     [&](const Life& life) { return may_be(put, life); });
  if (!published) {
    violation(
        fmt::format("put of {} acknowledged at {:.6f}s, but nothing was published since {:.6f}s",
                    put.key, seconds(at), seconds(put.begun)));
  }
}

bool History::may_be(const Put& put, const Life& life) {
  return life.size == put.size && life.from >= put.begun &&
         (!put.ended || put.code != Code::kOk || life.from <= *put.ended);
}

bool History::absent_at_some_time(const Key& key, TimePoint begun, TimePoint ended) const {
  // Present throughout means: one life covers all of it, or several, each replaced by the next.
  TimePoint since = TimePoint::max();
  for (const Life& life : key.lives) {
    since = std::min(since, life.from);
    if (since < begun && (!life.to || *life.to > ended)) return false;
    if (!life.replaced) since = TimePoint::max();
  }
  return true;
}

bool History::present_at_some_time(const Key& key, TimePoint begun, TimePoint ended) const {
  return std::any_of(key.lives.begin(), key.lives.end(), [&](const Life& life) {
    return life.from <= ended && (!life.to || *life.to >= begun);
  });
}

void History::got(const std::string& name, TimePoint begun, TimePoint ended, Code code,
                  std::span<const std::byte> bytes) {
  const Key& key = keys_[name];
  if (code != Code::kOk) {
    ++misses;
    const bool owner_gone = std::any_of(
        unnoticed_deaths_.begin(), unnoticed_deaths_.end(),
        [&](const auto& death) { return death.first <= ended && death.second >= begun; });
    if (code == Code::kObjectNotFound && !owner_gone && !absent_at_some_time(key, begun, ended)) {
      violation(fmt::format("get of {} ({:.6f}s to {:.6f}s) missed an object that was there", name,
                            seconds(begun), seconds(ended)));
    }
    return;
  }
  ++hits;
  const std::optional<ValueId> id = read_value(bytes, name);
  if (!id || puts_.find(*id) == puts_.end() || puts_.at(*id).key != name) {
    violation(
        fmt::format("get of {} ended at {:.6f}s with bytes that nobody put", name, seconds(ended)));
    return;
  }
  const Put& put = puts_.at(*id);
  const bool lived = std::any_of(key.lives.begin(), key.lives.end(), [&](const Life& life) {
    return may_be(put, life) && life.from <= ended && (!life.to || *life.to >= begun);
  });
  if (!lived) {
    violation(fmt::format("get of {} ({:.6f}s to {:.6f}s) gave value {}, which was not there then",
                          name, seconds(begun), seconds(ended), static_cast<std::uint64_t>(*id)));
  }
}

void History::existed(const std::string& name, TimePoint begun, TimePoint ended, Code code) {
  const Key& key = keys_[name];
  if (code == Code::kOk && !present_at_some_time(key, begun, ended)) {
    violation(
        fmt::format("exist of {} at {:.6f}s said yes to what was not there", name, seconds(ended)));
  }
  if (code == Code::kObjectNotFound && !absent_at_some_time(key, begun, ended)) {
    violation(
        fmt::format("exist of {} at {:.6f}s said no to what was there", name, seconds(ended)));
  }
}

void History::removed(const std::string& name, TimePoint begun, TimePoint ended, Code code) {
  if (code != Code::kOk) return;
  ++removals;
  const Key& key = keys_[name];
  const bool decided = std::any_of(key.removals.begin(), key.removals.end(),
                                   [&](TimePoint at) { return at >= begun && at <= ended; });
  if (!decided) {
    violation(
        fmt::format("remove of {} acknowledged at {:.6f}s, but never done", name, seconds(ended)));
  }
}

void History::swept(const std::vector<std::string>& keys, TimePoint begun, TimePoint ended,
                    std::uint64_t removed, bool force) {
  std::uint64_t decided = 0;
  for (const std::string& name : keys) {
    const Key& key = keys_[name];
    decided += static_cast<std::uint64_t>(
        std::count_if(key.removals.begin(), key.removals.end(),
                      [&](TimePoint at) { return at >= begun && at <= ended; }));
    const bool stayed = std::any_of(key.lives.begin(), key.lives.end(), [&](const Life& life) {
      return life.from < begun && (!life.to || *life.to > ended);
    });
    if (force && stayed) {
      violation(fmt::format("{} was there before and after all was removed ({:.6f}s to {:.6f}s)",
                            name, seconds(begun), seconds(ended)));
    }
  }
  if (removed > decided) {
    violation(fmt::format("a sweep that ended at {:.6f}s counts {} objects, but only {} went",
                          seconds(ended), removed, decided));
  }
}

void History::decided(const store::master::Decision& decision, TimePoint at) {
  using Kind = store::master::Decision::Kind;
  Key& key = keys_[decision.key];
  const bool alive = !key.lives.empty() && !key.lives.back().to;
  switch (decision.kind) {
    case Kind::kPublished:
      if (alive)
        violation(fmt::format("{} was published twice, at {:.6f}s", decision.key, seconds(at)));
      key.lives.push_back(Life{at, decision.size});
      return;
    case Kind::kRemoved:
      key.removals.push_back(at);
      break;
    case Kind::kEvicted:
      ++evictions;
      break;
    case Kind::kReplaced:
      ++replacements;
      break;
    case Kind::kLost:
      ++losses;
      if (!alive) return;  // an open write
      check_loss(decision.key, key.lives.back(), at);
      break;
    case Kind::kGrantExpired:
    case Kind::kRevoked:
      return;  // never published
  }
  if (!alive) {
    violation(
        fmt::format("{} was taken away at {:.6f}s, but was not there", decision.key, seconds(at)));
    return;
  }
  key.lives.back().to = at;
  key.lives.back().replaced = decision.kind == Kind::kReplaced;
}

void History::located(const std::string& name, std::uint64_t size, std::vector<std::string> owners,
                      TimePoint begun, TimePoint at) {
  // Only where it is sure which of them was meant.
  Key& key = keys_[name];
  if (key.lives.empty()) return;
  Life& life = key.lives.back();
  if (life.to || life.from >= begun || life.size != size || at < begun) return;
  life.owners = std::move(owners);
  ++places;
}

void History::owner_troubled(const std::string& name, TimePoint until) {
  troubled_[name] = std::max(troubled_[name], until);
}

void History::all_troubled(TimePoint until) { all_troubled_ = std::max(all_troubled_, until); }

void History::check_loss(const std::string& name, const Life& life, TimePoint at) {
  if (at <= all_troubled_) return;
  for (const std::string& owner : life.owners) {
    const auto trouble = troubled_.find(owner);
    if (trouble != troubled_.end() && at <= trouble->second) continue;
    violation(fmt::format("{} was lost at {:.6f}s although {} had it, and lived", name, seconds(at),
                          owner));
  }
}

void History::owner_died(TimePoint at, TimePoint noticed_by) {
  unnoticed_deaths_.emplace_back(at, noticed_by);
}

void History::master_died(TimePoint at) {
  for (auto& [name, key] : keys_) {
    if (!key.lives.empty() && !key.lives.back().to) key.lives.back().to = at;
  }
}

std::vector<std::string> History::present() const {
  std::vector<std::string> names;
  for (const auto& [name, key] : keys_) {
    if (!key.lives.empty() && !key.lives.back().to) names.push_back(name);
  }
  return names;
}

void History::check_all_ended() {
  for (const auto& [id, put] : puts_) {
    if (put.ended) continue;
    violation(fmt::format("put of {} begun at {:.6f}s never ended", put.key, seconds(put.begun)));
  }
}

}  // namespace mooncake::simulation
