// CorePool: a Master's core with one client, eight segments and as many objects as they have room
// for; no memory lies behind the segments. What the benches of the core share.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "measure.h"
#include "store/master/core.h"

namespace mooncake::bench {

namespace master = store::master;

// Seconds: on the wall, and of this thread on a core, which is what a busy machine leaves alone.
struct Cost {
  double wall = 0;
  double cpu = 0;

  static Cost now() {
    timespec cpu{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    const std::chrono::duration<double> wall = Clock::now().time_since_epoch();
    return {wall.count(), static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) / 1e9};
  }
  Cost& operator+=(const Cost& other) {
    wall += other.wall;
    cpu += other.cpu;
    return *this;
  }
};

// Objects are numbered, one extent unit each, and their keys have this length. Time is the
// caller's. A failed command ends the process.
class CorePool {
 public:
  static constexpr std::uint64_t kSegments = 8;
  static constexpr store::ClientId kClient{1};
  static constexpr std::size_t kBatch = 512;

  CorePool(const master::CoreOptions& options, std::uint64_t objects, std::size_t key_length)
      : core(options), key_length_(key_length), keys_(kBatch * key_length, '.') {
    std::vector<master::MountedSegment> segments(std::min(kSegments, objects));
    for (std::uint64_t i = 0; i < segments.size(); ++i) {
      store::SegmentAddress& address = segments[i].address;
      address.name = address.host = "host" + std::to_string(i);
      address.id = base::Uuid{i + 1, 1};
      address.incarnation = incarnation_;
      address.owner = base::Incarnation{i + 1};
      address.size = (objects + i) / segments.size() * memory::kExtentUnit;
      segments[i].prepared = address.size;
    }
    master::Command command;
    command.kind = master::CommandKind::kMount;
    command.client = kClient;
    command.sequence = 1;
    command.segments = segments;
    apply(command, segments.size());
  }

  // Grants and publishes objects that are not there, kBatch at most; what both cost in the core.
  Cost put(std::span<const std::uint64_t> numbers) {
    fill(numbers);
    const std::uint64_t open = next_;
    Cost cost = numbered(master::CommandKind::kGrant, open);
    const std::vector<base::SegmentIncarnation> arrived(store::kMaxReplicas, incarnation_);
    check_all("grant");
    for (std::size_t i = 0; i < items_.size(); ++i) {
      items_[i].version = effects_[i].version;
      items_[i].incarnations = std::span(arrived).first(effects_[i].replicas);
    }
    cost += numbered(master::CommandKind::kPublish, open);
    check_all("publish");
    return cost;
  }
  Cost put_range(std::uint64_t first, std::uint64_t count) {
    numbers_.resize(count);
    for (std::uint64_t i = 0; i < count; ++i)
      numbers_[i] = first + i;
    return put(numbers_);
  }

  // kExist or kLocate. answers() says how it went.
  Cost ask(master::CommandKind kind, std::span<const std::uint64_t> numbers) {
    fill(numbers);
    master::Command command;
    command.kind = kind;
    command.items = items_;
    return apply(command, items_.size());
  }
  // Of the last command.
  std::span<const master::Effect> answers() const { return std::span(effects_).first(asked_); }

  double bytes_per_object() const {
    const master::Core::Memory memory = core.memory();
    return static_cast<double>(memory.objects + memory.keys) /
               static_cast<double>(core.totals().objects) -
           static_cast<double>(key_length_);
  }

  master::Core core;
  base::TimePoint now{std::chrono::seconds(1)};

 private:
  // Texts lie side by side, as in a message that has just come.
  void fill(std::span<const std::uint64_t> numbers) {
    items_.resize(numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      char* const text = keys_.data() + i * key_length_;
      std::memcpy(text + key_length_ - sizeof numbers[i], &numbers[i], sizeof numbers[i]);
      items_[i] = {};
      items_[i].key = {text, key_length_};
      items_[i].size = memory::kExtentUnit;
    }
  }
  void check_all(const std::string& what) const {
    for (const master::Effect& effect : answers()) {
      if (effect.code != Code::kOk) die(what + ": " + std::string(code_info(effect.code).name));
    }
  }
  Cost numbered(master::CommandKind kind, std::uint64_t oldest_open) {
    master::Command command;
    command.kind = kind;
    command.client = kClient;
    command.sequence = next_;
    command.oldest_open = oldest_open;
    command.items = items_;
    next_ += items_.size();
    return apply(command, items_.size());
  }
  Cost apply(const master::Command& command, std::size_t answers) {
    effects_.resize(std::max(answers, effects_.size()));
    asked_ = answers;
    master::Effects effects;
    effects.items = effects_;
    const Cost before = Cost::now();
    core.apply(command, now, effects);
    const Cost after = Cost::now();
    if (effects.code != Code::kOk) die("command: " + std::string(code_info(effects.code).name));
    return {after.wall - before.wall, after.cpu - before.cpu};
  }

  static constexpr base::SegmentIncarnation incarnation_{7};
  const std::size_t key_length_;
  std::vector<char> keys_;
  std::vector<std::uint64_t> numbers_;
  std::vector<master::CommandItem> items_;
  std::vector<master::Effect> effects_;
  std::size_t asked_ = 0;
  std::uint64_t next_ = 1;
};

}  // namespace mooncake::bench
