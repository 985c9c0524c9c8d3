// A small explicit-state model checker.
//
// A model is a type with
//   using State = ...;                                 trivially copyable, no padding bytes
//   State initial() const;
//   void steps(const State&, Steps<State>&) const;     all steps that are enabled in a state
//   const char* broken(const State&) const;            name of a broken invariant, or nullptr
//   bool settled(const State&) const;                  nothing is owed to anybody any more
//   std::string describe(const State&) const;          one line for a trace
//
// explore() visits every reachable state breadth first, so the trace of a broken invariant is a
// shortest one. After that it proves progress: on every path of fair steps a settled state comes,
// whatever faults happened before. Faults are never needed and never awaited: a process that was
// stopped may stay stopped for ever. This covers deadlock (a state without fair steps has to be
// settled) and livelock (no cycle of fair steps avoids the settled states), and it is stronger than
// "a settled state can still be reached", so no further fairness has to be assumed.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <type_traits>
#include <vector>

namespace mooncake::models {

// The name of a step. Each '%' in `text` is replaced by the next number, so that the millions of
// steps that no trace shows cost no string.
struct Label {
  const char* text = "";
  int first = 0;
  int second = 0;

  std::string str() const {
    std::string out;
    const int numbers[] = {first, second};
    int used = 0;
    for (const char* at = text; *at != '\0'; ++at) {
      if (*at == '%' && used < 2) {
        out += std::to_string(numbers[used++]);
      } else {
        out += *at;
      }
    }
    return out;
  }
};

template <class State>
struct Step {
  Label label;
  bool fair;  // false: a fault or another act of the environment that may never happen
  State next;
};

// The steps that leave one state. Reused between states to keep its capacity.
template <class State>
class Steps {
 public:
  void fair(Label label, const State& next) { all_.push_back({label, true, next}); }
  void fault(Label label, const State& next) { all_.push_back({label, false, next}); }
  void clear() { all_.clear(); }
  const std::vector<Step<State>>& all() const { return all_; }

 private:
  std::vector<Step<State>> all_;
};

struct Report {
  uint64_t states = 0;
  uint64_t transitions = 0;
  uint32_t depth = 0;  // steps from the initial state to the farthest one
  double seconds = 0;
  bool complete = false;  // every reachable state was visited
  std::string violation;  // empty: all invariants and progress hold
  std::vector<std::string> trace;

  bool proven() const { return complete && violation.empty(); }

  std::string summary() const {
    char line[160];
    std::snprintf(line, sizeof line, "%llu states, %llu transitions, depth %u, %.2f s",
                  static_cast<unsigned long long>(states),
                  static_cast<unsigned long long>(transitions), depth, seconds);
    std::string out = line;
    if (!violation.empty()) out += ", violated: " + violation;
    if (violation.empty() && !complete) out += ", stopped at the state limit";
    return out;
  }

  std::string trace_text() const {
    std::string out;
    for (const std::string& line : trace)
      out += "  " + line + "\n";
    return out;
  }
};

template <class Model>
class Explorer {
 public:
  using State = typename Model::State;
  static_assert(std::is_trivially_copyable_v<State>);
  static_assert(std::has_unique_object_representations_v<State>, "states are compared as bytes");

  explicit Explorer(const Model& model, uint32_t max_states = 6'000'000)
      : model_(model), max_states_(max_states), table_(1u << 16, kNone) {}

  Report run() {
    const auto start = std::chrono::steady_clock::now();
    visit_all();
    if (report_.complete) check_progress();
    report_.states = states_.size();
    report_.depth = nodes_.empty() ? 0 : nodes_.back().depth;
    report_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return report_;
  }

 private:
  static constexpr uint32_t kNone = 0xffffffff;

  struct Node {
    uint32_t parent;
    uint32_t depth;
  };

  static uint64_t hash(const State& state) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(&state);
    uint64_t sum = 0x9e3779b97f4a7c15u;
    for (size_t at = 0; at < sizeof(State); at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + at, sizeof(State) - at < 8 ? sizeof(State) - at : 8);
      sum = (sum ^ word) * 0xff51afd7ed558ccdu;
      sum ^= sum >> 32;
    }
    return sum;
  }

  static bool same(const State& left, const State& right) {
    return std::memcmp(&left, &right, sizeof(State)) == 0;
  }

  // The index of `state`, which is added when it is new.
  uint32_t intern(const State& state, uint32_t parent) {
    uint64_t at = hash(state) & (table_.size() - 1);
    while (table_[at] != kNone) {
      if (same(states_[table_[at]], state)) return table_[at];
      at = (at + 1) & (table_.size() - 1);
    }
    const uint32_t index = static_cast<uint32_t>(states_.size());
    table_[at] = index;
    states_.push_back(state);
    nodes_.push_back({parent, parent == kNone ? 0 : nodes_[parent].depth + 1});
    if (states_.size() * 2 > table_.size()) grow();
    return index;
  }

  void grow() {
    table_.assign(table_.size() * 2, kNone);
    for (uint32_t index = 0; index < states_.size(); ++index) {
      uint64_t at = hash(states_[index]) & (table_.size() - 1);
      while (table_[at] != kNone)
        at = (at + 1) & (table_.size() - 1);
      table_[at] = index;
    }
  }

  // Breadth first: states_ is also the queue, since states are appended in the order of depth.
  void visit_all() {
    intern(model_.initial(), kNone);
    for (uint32_t index = 0; index < states_.size(); ++index) {
      if (const char* broken = model_.broken(states_[index])) {
        report_.violation = broken;
        report_.trace = path_to(index);
        return;
      }
      if (states_.size() > max_states_) return;
      first_edge_.push_back(edges_.size());
      const State state = states_[index];
      steps_.clear();
      model_.steps(state, steps_);
      for (const Step<State>& step : steps_.all()) {
        ++report_.transitions;
        const uint32_t next = intern(step.next, index);
        if (step.fair && next != index) edges_.push_back(next);
      }
    }
    first_edge_.push_back(edges_.size());
    report_.complete = true;
  }

  // Marks, from the settled states backwards, every state whose fair steps all lead to marked ones.
  // What stays unmarked can avoid a settled state for ever.
  void check_progress() {
    const uint32_t count = static_cast<uint32_t>(states_.size());
    std::vector<uint64_t> first(count + 1, 0);
    for (uint32_t target : edges_)
      ++first[target + 1];
    for (uint32_t index = 0; index < count; ++index)
      first[index + 1] += first[index];
    std::vector<uint32_t> sources(edges_.size());
    std::vector<uint64_t> fill(first.begin(), first.end() - 1);
    for (uint32_t index = 0; index < count; ++index) {
      for (uint64_t edge = first_edge_[index]; edge < first_edge_[index + 1]; ++edge) {
        sources[fill[edges_[edge]]++] = index;
      }
    }
    std::vector<uint32_t> unsure(count);
    std::vector<bool> marked(count, false);
    std::vector<uint32_t> queue;
    for (uint32_t index = 0; index < count; ++index) {
      unsure[index] = static_cast<uint32_t>(first_edge_[index + 1] - first_edge_[index]);
      if (model_.settled(states_[index])) {
        marked[index] = true;
        queue.push_back(index);
      }
    }
    while (!queue.empty()) {
      const uint32_t target = queue.back();
      queue.pop_back();
      for (uint64_t edge = first[target]; edge < first[target + 1]; ++edge) {
        const uint32_t source = sources[edge];
        if (marked[source] || --unsure[source] > 0) continue;
        marked[source] = true;
        queue.push_back(source);
      }
    }
    for (uint32_t index = 0; index < count; ++index) {
      if (!marked[index]) return report_no_progress(index, marked);
    }
  }

  // Extends the trace through unmarked states until it is stuck or has closed a cycle.
  void report_no_progress(uint32_t index, const std::vector<bool>& marked) {
    report_.violation = "progress";
    report_.trace = path_to(index);
    std::vector<uint32_t> walked{index};
    while (true) {
      uint32_t next = kNone;
      for (uint64_t edge = first_edge_[index]; edge < first_edge_[index + 1]; ++edge) {
        if (!marked[edges_[edge]]) next = edges_[edge];
      }
      if (next == kNone) {
        report_.trace.push_back("... no fair step is left, and something is still owed");
        return;
      }
      report_.trace.push_back(line_for(index, next, report_.trace.size()));
      for (uint32_t seen : walked) {
        if (seen != next) continue;
        report_.trace.push_back("... and so on: this state was there before");
        return;
      }
      walked.push_back(next);
      index = next;
    }
  }

  std::vector<std::string> path_to(uint32_t index) {
    std::vector<uint32_t> path;
    for (uint32_t at = index; at != kNone; at = nodes_[at].parent)
      path.push_back(at);
    std::vector<std::string> lines{line(0, "start", path.back())};
    for (size_t at = path.size() - 1; at > 0; --at) {
      lines.push_back(line_for(path[at], path[at - 1], path.size() - at));
    }
    return lines;
  }

  // Names are not stored: the steps of the source are made again to find the one that was taken.
  std::string line_for(uint32_t from, uint32_t to, size_t number) {
    std::string name = "?";
    bool fair = true;
    steps_.clear();
    model_.steps(states_[from], steps_);
    for (const Step<State>& step : steps_.all()) {
      if (!same(step.next, states_[to])) continue;
      name = step.label.str();
      fair = step.fair;
      break;
    }
    return line(number, fair ? name : "FAULT " + name, to);
  }

  std::string line(size_t number, const std::string& name, uint32_t state) const {
    char head[120];
    std::snprintf(head, sizeof head, "%3zu %-48s | ", number, name.c_str());
    return head + model_.describe(states_[state]);
  }

  const Model& model_;
  uint32_t max_states_;
  std::vector<uint32_t> table_;
  std::deque<State> states_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> edges_;       // targets of fair steps, in the order of their sources
  std::vector<uint64_t> first_edge_;  // where the steps of a state begin in edges_
  Steps<State> steps_;
  Report report_;
};

template <class Model>
Report explore(const Model& model, uint32_t max_states = 6'000'000) {
  return Explorer<Model>(model, max_states).run();
}

}  // namespace mooncake::models
