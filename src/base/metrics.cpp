#include "base/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <string_view>
#include <variant>

#include "base/text.h"

namespace mooncake::base {

namespace {

double parse_exact(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

std::string escape_help(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\\\";
    } else if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result;
}

std::string escape_label(std::string_view text) {
  std::string result;
  for (const char c : escape_help(to_utf8(text))) {
    if (c == '"') result += '\\';
    result += c;
  }
  return result;
}

// {a="1",b="2"}, or nothing.
std::string labels_text(const Labels& labels) {
  if (labels.empty()) return {};
  std::string text = "{";
  for (const auto& [name, value] : labels) {
    if (text.size() > 1) text += ',';
    text += fmt::format("{}=\"{}\"", name, escape_label(value));
  }
  return text + '}';
}

using Read = std::function<double()>;
using ReadRows = std::function<std::vector<std::pair<Labels, double>>()>;

// One thing that was added. `first` of its name carries help and type.
struct Member {
  std::string name;
  std::string help;
  Labels labels;
  std::variant<std::unique_ptr<Counter>, std::unique_ptr<Histogram>, Read, ReadRows> source;
};

std::string_view type_word(const Member& member) {
  switch (member.source.index()) {
    case 0:
      return "counter";
    case 1:
      return "histogram";
    default:
      return "gauge";
  }
}

void expose_histogram(std::string& out, const std::string& name, const Histogram& histogram) {
  const std::vector<std::uint64_t> buckets = histogram.buckets();
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    total += buckets[i];
    const std::string bound =
        i < histogram.bounds().size() ? number(histogram.bounds()[i]) : "+Inf";
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bound, total);
  }
  out += fmt::format("{}_sum {}\n{}_count {}\n", name, number(histogram.sum()), name, total);
}

void expose_member(std::string& out, const Member& member) {
  if (const auto* counter = std::get_if<std::unique_ptr<Counter>>(&member.source)) {
    out += fmt::format("{}{} {}\n", member.name, labels_text(member.labels), (*counter)->value());
  } else if (const auto* histogram = std::get_if<std::unique_ptr<Histogram>>(&member.source)) {
    expose_histogram(out, member.name, **histogram);
  } else if (const auto* read = std::get_if<Read>(&member.source)) {
    out += fmt::format("{}{} {}\n", member.name, labels_text(member.labels), number((*read)()));
  } else if (const auto* rows = std::get_if<ReadRows>(&member.source)) {
    for (const auto& [labels, value] : (*rows)()) {
      out += fmt::format("{}{} {}\n", member.name, labels_text(labels), number(value));
    }
  }
}

}  // namespace

Histogram::Histogram(std::vector<double> upper_bounds)
    : bounds_(std::move(upper_bounds)),
      counts_(std::make_unique<std::atomic<std::uint64_t>[]>(bounds_.size() + 1)) {
  assert(std::is_sorted(bounds_.begin(), bounds_.end()));
}

std::vector<double> Histogram::latency_bounds() {
  // Eight steps of a decade, rounded, so that the exposed text stays short.
  constexpr std::array kSteps = {"1", "1.33", "1.78", "2.37", "3.16", "4.22", "5.62", "7.5"};
  std::vector<double> bounds;
  for (int exponent = -6; exponent < 2; ++exponent) {
    for (const char* step : kSteps)
      bounds.push_back(parse_exact(fmt::format("{}e{}", step, exponent)));
  }
  bounds.push_back(100);
  return bounds;
}

std::vector<double> Histogram::size_bounds() {
  std::vector<double> bounds;
  for (int power = 8; power <= 34; ++power)
    bounds.push_back(std::ldexp(1.0, power));
  return bounds;
}

void Histogram::observe(double value) {
  if (std::isnan(value)) return;  // one would make the sum NaN for ever
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  counts_[static_cast<std::size_t>(bound - bounds_.begin())].fetch_add(1,
                                                                       std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::vector<std::uint64_t> Histogram::buckets() const {
  std::vector<std::uint64_t> result(bounds_.size() + 1);
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = counts_[i].load(std::memory_order_relaxed);
  }
  return result;
}

std::uint64_t Histogram::count() const {
  std::uint64_t total = 0;
  for (const std::uint64_t n : buckets())
    total += n;
  return total;
}

double Histogram::sum() const { return sum_.load(std::memory_order_relaxed); }

double Histogram::quantile(double q) const {
  const std::vector<std::uint64_t> all = buckets();
  std::uint64_t total = 0;
  for (const std::uint64_t n : all)
    total += n;
  if (total == 0) return 0;
  const double rank = std::clamp(q, 0.0, 1.0) * static_cast<double>(total);
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    below += all[i];
    if (below > 0 && static_cast<double>(below) >= rank) return bounds_[i];
  }
  return std::numeric_limits<double>::infinity();
}

struct MetricsRegistry::State {
  mutable std::mutex mutex;
  std::vector<std::unique_ptr<Member>> members;  // guarded by mutex; what is pointed at stays

  Member* find(const std::string& name, const Labels& labels) const {
    for (const auto& member : members) {
      if (member->name == name && member->labels == labels) return member.get();
    }
    return nullptr;
  }
  Member& add(Member member) {
    members.push_back(std::make_unique<Member>(std::move(member)));
    return *members.back();
  }
};

MetricsRegistry::MetricsRegistry() : state_(std::make_unique<State>()) {}
MetricsRegistry::~MetricsRegistry() = default;

Counter& MetricsRegistry::counter(const std::string& name, const std::string& help, Labels labels) {
  const std::lock_guard lock(state_->mutex);
  Member* member = state_->find(name, labels);
  if (!member) {
    member = &state_->add({name, help, std::move(labels), std::make_unique<Counter>()});
  }
  return *std::get<std::unique_ptr<Counter>>(member->source);
}

Histogram& MetricsRegistry::histogram(const std::string& name, const std::string& help,
                                      std::vector<double> bounds) {
  const std::lock_guard lock(state_->mutex);
  Member* member = state_->find(name, {});
  if (!member) {
    member = &state_->add({name, help, {}, std::make_unique<Histogram>(std::move(bounds))});
  }
  return *std::get<std::unique_ptr<Histogram>>(member->source);
}

void MetricsRegistry::gauge(const std::string& name, const std::string& help,
                            std::function<double()> read, Labels labels) {
  const std::lock_guard lock(state_->mutex);
  assert(!state_->find(name, labels));
  state_->add({name, help, std::move(labels), std::move(read)});
}

void MetricsRegistry::gauges(const std::string& name, const std::string& help,
                             std::function<std::vector<std::pair<Labels, double>>()> read) {
  const std::lock_guard lock(state_->mutex);
  assert(!state_->find(name, {}));
  state_->add({name, help, {}, std::move(read)});
}

std::string MetricsRegistry::expose() const {
  std::vector<const Member*> members;
  {
    // Only copied under the lock: a gauge may take long, and may itself add a metric.
    const std::lock_guard lock(state_->mutex);
    for (const auto& member : state_->members)
      members.push_back(member.get());
  }
  // The format wants the members of a name together, at the place of the first.
  std::vector<std::string_view> names;
  std::map<std::string_view, std::vector<const Member*>> families;
  for (const Member* member : members) {
    auto& family = families[member->name];
    if (family.empty()) names.push_back(member->name);
    family.push_back(member);
  }
  std::string out;
  for (const std::string_view name : names) {
    const auto& family = families[name];
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escape_help(family.front()->help),
                       name, type_word(*family.front()));
    for (const Member* member : family)
      expose_member(out, *member);
  }
  return out;
}

}  // namespace mooncake::base
