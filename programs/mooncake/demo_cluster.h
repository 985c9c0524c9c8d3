// Cluster: the demo's processes, started, watched and ended. Nothing outlives it: each process is
// in a group of its own that is killed and reaped, dies with this one, and ends with its control
// stream.
#pragma once

#include <mooncake/result.h>
#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "demo_control.h"

namespace mooncake::demo {

using Time = std::chrono::steady_clock::time_point;

struct ProgramSpec {
  std::string name;  // in messages: "prefill-0"
  std::string path;
  std::vector<std::string> arguments;  // behind argv[0]
  bool controlled = false;             // has a control channel under kControlFd
};

// All calls from the thread that made it, which must not have been replaced by another when
// processes are to live: they die with that thread.
class Cluster {
 public:
  // Takes over SIGINT, SIGTERM, SIGHUP and SIGCHLD of this process until it is destroyed.
  static Result<std::unique_ptr<Cluster>> create();
  ~Cluster();  // kill_all()
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Its number, from 0. The error names the program and what the system said.
  Result<std::size_t> spawn(const ProgramSpec& spec);

  struct Events {
    std::vector<std::pair<std::size_t, Message>> messages;
    std::vector<std::pair<std::size_t, std::string>> lines;  // of standard output
    std::vector<std::size_t> ended;  // reaped since the last call, killed ones first
    int signal = 0;                  // that wants this process to end
    bool empty() const { return messages.empty() && lines.empty() && ended.empty() && !signal; }
  };
  // Returns when something has happened, at the latest at `until`. A broken control stream of a
  // living process is kProtocolError.
  Result<Events> wait(Time until);

  void send(std::size_t child, const Message& message);
  // SIGTERM, a request to end.
  void terminate(std::size_t child);
  void kill_all();

  std::size_t size() const { return children_.size(); }
  const std::string& name(std::size_t child) const { return children_[child].name; }
  pid_t pid(std::size_t child) const { return children_[child].pid; }
  bool alive(std::size_t child) const { return !children_[child].status.has_value(); }
  bool all_ended() const;
  // What an ended process left: true for exit status 0.
  bool ended_well(std::size_t child) const;
  // "prefill-0 was killed by signal 9 (Killed)" and, on lines of their own, its last words.
  std::string obituary(std::size_t child) const;
  std::string last_words(std::size_t child) const;

 private:
  struct Child {
    std::string name;
    pid_t pid = -1;
    int stdout_fd = -1;
    int stderr_fd = -1;
    ControlChannel control;
    bool controlled = false;
    std::string line;           // begin of a line of standard output
    std::string tail;           // the end of what it wrote to stderr and stdout
    std::optional<int> status;  // as from waitpid(), once reaped
  };
  struct Polled;  // what one entry of poll() stands for

  Cluster() = default;
  std::vector<Polled> poll_entries() const;
  Result<void> serve(const Polled& entry, Events& events);
  void read_signals(Events& events);
  void read_output(std::size_t index, int& fd, bool lines, Events& events);
  Result<void> read_control(std::size_t index, Events& events);
  void reap(Events& events);
  void close_all(Child& child);

  std::vector<Child> children_;
  int signal_fd_ = -1;
  sigset_t old_mask_{};
};

// A TCP port of 127.0.0.1 that nobody listens on at this moment.
Result<std::uint16_t> free_port();

}  // namespace mooncake::demo
