// History: what clients asked and heard, beside what the Master decided, and whether the two agree.
//
// The Master's decisions are the truth: an object of a key is there from its kPublished decision to
// the next decision that takes it away (or the Master's death). Every outcome is held against that.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "mooncake/result.h"
#include "store/master/core.h"
#include "values.h"

namespace mooncake::simulation {

class History {
 public:
  using TimePoint = base::TimePoint;

  // Outcomes.
  ValueId put_started(const std::string& key, TimePoint at);
  // Once the value is made, before it is sent.
  void put_sized(ValueId id, std::uint64_t size);
  void put_ended(ValueId id, Code code, TimePoint at);
  // A client was told at `at` that the key's object of this size lies with these owners.
  void located(const std::string& key, std::uint64_t size, std::vector<std::string> owners,
               TimePoint begun, TimePoint at);
  void got(const std::string& key, TimePoint begun, TimePoint ended, Code code,
           std::span<const std::byte> bytes);
  void existed(const std::string& key, TimePoint begun, TimePoint ended, Code code);
  void removed(const std::string& key, TimePoint begun, TimePoint ended, Code code);

  // `removed` objects of these keys are said to have gone.
  void swept(const std::vector<std::string>& keys, TimePoint begun, TimePoint ended,
             std::uint64_t removed, bool force);

  // Truth.
  void decided(const store::master::Decision& decision, TimePoint at);
  void master_died(TimePoint at);

  // Until then the Master may take the owner for dead, and what it holds may go. Without a name:
  // any of them.
  void owner_troubled(const std::string& name, TimePoint until);
  void all_troubled(TimePoint until);

  // An owner was killed: until the Master has noticed, what it held is a miss although it is
  // listed.
  void owner_died(TimePoint at, TimePoint noticed_by);

  // Keys that must be readable now.
  std::vector<std::string> present() const;
  // Called at the end: every call has had its one outcome.
  void check_all_ended();

  const std::vector<std::string>& violations() const { return violations_; }
  std::uint64_t hits = 0, misses = 0, stored = 0, removals = 0, evictions = 0, losses = 0,
                replacements = 0, places = 0;

 private:
  // One object's time in the directory.
  struct Life {
    TimePoint from;
    std::uint64_t size = 0;
    std::optional<TimePoint> to{};
    bool replaced = false;              // by the next
    std::vector<std::string> owners{};  // where known
  };
  struct Put {
    std::string key;
    TimePoint begun;
    std::uint64_t size = 0;
    std::optional<TimePoint> ended{};
    Code code = Code::kOk;
  };
  struct Key {
    std::vector<Life> lives;
    std::vector<ValueId> puts;
    std::vector<TimePoint> removals;  // kRemoved decisions
  };

  void violation(std::string text);
  void check_loss(const std::string& name, const Life& life, TimePoint at);
  bool absent_at_some_time(const Key& key, TimePoint begun, TimePoint ended) const;
  bool present_at_some_time(const Key& key, TimePoint begun, TimePoint ended) const;
  // Whether a put may have opened this life.
  static bool may_be(const Put& put, const Life& life);

  std::map<std::string, Key> keys_;
  std::map<ValueId, Put> puts_;
  std::vector<std::pair<TimePoint, TimePoint>> unnoticed_deaths_;
  std::map<std::string, TimePoint> troubled_;  // owner -> until
  TimePoint all_troubled_{};
  std::uint64_t next_value_ = 1;
  std::vector<std::string> violations_;
};

}  // namespace mooncake::simulation
