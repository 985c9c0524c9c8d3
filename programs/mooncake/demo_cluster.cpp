#include "demo_cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace mooncake::demo {

namespace {

constexpr std::size_t kTailBytes = 4096;
constexpr std::size_t kMaxOutputLine = 65536;

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

auto system_error(std::string_view what) {
  return fail(Code::kSystemCall, fmt::format("{}: {}", what, strerror(errno)));
}

Result<void> open_pipe(Fd& read_end, Fd& write_end) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe");
  read_end.reset(ends[0]);
  write_end.reset(ends[1]);
  return {};
}

// Descriptors of a process to be; the child's ends, -1 = none.
struct ChildEnds {
  int out = -1;
  int err = -1;
  int control = -1;
  int failure = -1;  // takes errno when the program can't be started
};

// Between fork and exec: nothing but system calls.
[[noreturn]] void become(const char* path, char* const* argv, const ChildEnds& ends, pid_t parent) {
  sigset_t none;
  sigemptyset(&none);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const bool ready = ::setpgid(0, 0) == 0 && ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
                     ::sigprocmask(SIG_SETMASK, &none, nullptr) == 0 && null >= 0 &&
                     ::dup2(null, STDIN_FILENO) >= 0 && ::dup2(ends.out, STDOUT_FILENO) >= 0 &&
                     ::dup2(ends.err, STDERR_FILENO) >= 0 &&
                     (ends.control < 0 || ::dup2(ends.control, kControlFd) >= 0);
  // The parent may have died before the kernel was told what that means.
  if (::getppid() != parent) ::_exit(1);
  ::signal(SIGPIPE, SIG_DFL);
  // What this process has inherited itself is none of the child's business.
  const int first_closed = ends.control < 0 ? STDERR_FILENO + 1 : kControlFd + 1;
  ::close_range(static_cast<unsigned>(first_closed), ~0u, CLOSE_RANGE_CLOEXEC);
  if (ready) ::execv(path, argv);
  const int error = errno;
  [[maybe_unused]] const ssize_t n = ::write(ends.failure, &error, sizeof(error));
  ::_exit(127);
}

// The ends of pipes must not lie where the child wants its own descriptors.
Result<void> move_up(Fd& fd) {
  if (fd.get() > kControlFd) return {};
  const int moved = ::fcntl(fd.get(), F_DUPFD_CLOEXEC, kControlFd + 1);
  if (moved < 0) return system_error("fcntl");
  fd.reset(moved);
  return {};
}

void append_tail(std::string& tail, std::string_view text) {
  tail.append(text);
  if (tail.size() > kTailBytes) tail.erase(0, tail.size() - kTailBytes);
}

}  // namespace

struct Cluster::Polled {
  enum class Kind { kSignal, kOut, kErr, kControl } kind;
  std::size_t child = 0;
  int fd = -1;
  short events = POLLIN;
};

Result<std::unique_ptr<Cluster>> Cluster::create() {
  std::unique_ptr<Cluster> cluster(new Cluster);
  sigset_t mask;
  sigemptyset(&mask);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD})
    sigaddset(&mask, signal);
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &mask, &cluster->old_mask_); error != 0) {
    errno = error;
    return system_error("pthread_sigmask");
  }
  cluster->signal_fd_ = ::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  if (cluster->signal_fd_ < 0) return system_error("signalfd");
  return cluster;
}

Cluster::~Cluster() {
  kill_all();
  // What came late must not end a process that has already decided how to end.
  Events rest;
  if (signal_fd_ >= 0) {
    read_signals(rest);
    ::close(signal_fd_);
  }
  ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

Result<std::size_t> Cluster::spawn(const ProgramSpec& spec) {
  Fd out, err, failure, our_control;
  Fd child_out, child_err, child_failure, child_control;
  MC_CHECK(open_pipe(out, child_out));
  MC_CHECK(open_pipe(err, child_err));
  MC_CHECK(open_pipe(failure, child_failure));
  if (spec.controlled) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return system_error("socketpair");
    }
    our_control.reset(ends[0]);
    child_control.reset(ends[1]);
    MC_CHECK(move_up(child_control));
  }
  for (Fd* fd : {&child_out, &child_err, &child_failure}) {
    MC_CHECK(move_up(*fd));
  }

  std::vector<std::string> words = {spec.path};
  words.insert(words.end(), spec.arguments.begin(), spec.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  const ChildEnds ends = {child_out.get(), child_err.get(), child_control.get(),
                          child_failure.get()};
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("fork");
  if (pid == 0) become(spec.path.c_str(), argv.data(), ends, parent);
  ::setpgid(pid, pid);  // also here, so that it is done before anybody kills the group
  child_failure.reset();

  int error = 0;
  ssize_t n;
  do {
    n = ::read(failure.get(), &error, sizeof(error));
  } while (n < 0 && errno == EINTR);
  if (n != 0) {
    ::waitpid(pid, nullptr, 0);
    return fail(Code::kSystemCall,
                fmt::format("{}: can't start {}: {}", spec.name, spec.path, strerror(error)));
  }
  for (Fd* fd : {&out, &err})
    ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
  Child child;
  child.name = spec.name;
  child.pid = pid;
  child.stdout_fd = out.release();
  child.stderr_fd = err.release();
  child.controlled = spec.controlled;
  if (spec.controlled) child.control = ControlChannel(our_control.release());
  children_.push_back(std::move(child));
  return children_.size() - 1;
}

std::vector<Cluster::Polled> Cluster::poll_entries() const {
  std::vector<Polled> entries = {{.kind = Polled::Kind::kSignal, .fd = signal_fd_}};
  for (std::size_t i = 0; i < children_.size(); ++i) {
    const Child& child = children_[i];
    if (child.stdout_fd >= 0) entries.push_back({Polled::Kind::kOut, i, child.stdout_fd});
    if (child.stderr_fd >= 0) entries.push_back({Polled::Kind::kErr, i, child.stderr_fd});
    if (child.control.fd() >= 0) {
      const int wanted = POLLIN | (child.control.has_unsent() ? POLLOUT : 0);
      entries.push_back(
          {Polled::Kind::kControl, i, child.control.fd(), static_cast<short>(wanted)});
    }
  }
  return entries;
}

Result<Cluster::Events> Cluster::wait(Time until) {
  Events events;
  while (events.empty()) {
    const std::vector<Polled> entries = poll_entries();
    std::vector<pollfd> polled;
    for (const Polled& entry : entries)
      polled.push_back({entry.fd, entry.events, 0});
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    const auto timeout = std::clamp<std::int64_t>(left.count(), 0, 60'000);
    const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(timeout));
    if (ready < 0 && errno != EINTR) return system_error("poll");
    if (ready == 0 && std::chrono::steady_clock::now() >= until) break;

    // The children first: the last words of one that has ended lie in its pipes.
    for (std::size_t i = entries.size(); ready > 0 && i-- > 1;) {
      if (polled[i].revents != 0) {
        MC_CHECK(serve(entries[i], events));
      }
    }
    if (ready > 0 && polled[0].revents != 0) read_signals(events);
  }
  return events;
}

Result<void> Cluster::serve(const Polled& entry, Events& events) {
  Child& child = children_[entry.child];
  switch (entry.kind) {
    case Polled::Kind::kSignal:
      break;
    case Polled::Kind::kOut:
      read_output(entry.child, child.stdout_fd, true, events);
      break;
    case Polled::Kind::kErr:
      read_output(entry.child, child.stderr_fd, false, events);
      break;
    case Polled::Kind::kControl:
      child.control.flush();
      return read_control(entry.child, events);
  }
  return {};
}

void Cluster::read_signals(Events& events) {
  signalfd_siginfo info;
  while (::read(signal_fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    if (info.ssi_signo != SIGCHLD) events.signal = static_cast<int>(info.ssi_signo);
  }
  // Whatever came: one SIGCHLD may stand for several.
  reap(events);
}

void Cluster::read_output(std::size_t index, int& fd, bool lines, Events& events) {
  Child& child = children_[index];
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) {
      ::close(fd);
      fd = -1;
      return;
    }
    const std::string_view text(buffer.data(), static_cast<std::size_t>(n));
    append_tail(child.tail, text);
    if (!lines) continue;
    for (char c : text) {
      if (c == '\n') {
        events.lines.emplace_back(index, std::exchange(child.line, {}));
      } else if (child.line.size() < kMaxOutputLine) {
        child.line += c;
      }
    }
  }
}

Result<void> Cluster::read_control(std::size_t index, Events& events) {
  Child& child = children_[index];
  auto messages = child.control.receive();
  if (messages) {
    for (Message& message : *messages)
      events.messages.emplace_back(index, std::move(message));
    return {};
  }
  // The end of the stream is told by the end of the process, which follows.
  child.control = ControlChannel();
  if (messages.error().code() == Code::kConnectionLost) return {};
  return fail(std::move(messages).error().with_context(child.name));
}

void Cluster::reap(Events& events) {
  const std::size_t first = events.ended.size();
  for (std::size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    int status = 0;
    if (child.status || ::waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
    child.status = status;
    if (child.control.fd() >= 0) static_cast<void>(read_control(i, events));
    if (child.stdout_fd >= 0) read_output(i, child.stdout_fd, true, events);
    if (child.stderr_fd >= 0) read_output(i, child.stderr_fd, false, events);
    close_all(child);
    events.ended.push_back(i);
  }
  // A killed process is the cause; others then fail because it is gone.
  std::stable_partition(events.ended.begin() + static_cast<std::ptrdiff_t>(first),
                        events.ended.end(),
                        [this](std::size_t i) { return WIFSIGNALED(*children_[i].status); });
}

void Cluster::close_all(Child& child) {
  for (int* fd : {&child.stdout_fd, &child.stderr_fd}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
  child.control = ControlChannel();
}

void Cluster::send(std::size_t child, const Message& message) {
  if (children_[child].control.fd() >= 0) children_[child].control.send(message);
}

void Cluster::terminate(std::size_t child) {
  if (alive(child)) ::kill(children_[child].pid, SIGTERM);
}

void Cluster::kill_all() {
  for (Child& child : children_) {
    if (!child.status) ::kill(-child.pid, SIGKILL);
  }
  for (Child& child : children_) {
    int status = 0;
    while (!child.status) {
      const pid_t got = ::waitpid(child.pid, &status, 0);
      if (got == child.pid || (got < 0 && errno != EINTR)) child.status = status;
    }
    close_all(child);
  }
}

bool Cluster::all_ended() const {
  return std::all_of(children_.begin(), children_.end(),
                     [](const Child& child) { return child.status.has_value(); });
}

bool Cluster::ended_well(std::size_t child) const {
  const std::optional<int>& status = children_[child].status;
  return status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
}

std::string Cluster::last_words(std::size_t child) const {
  std::string_view tail = children_[child].tail;
  while (tail.ends_with('\n'))
    tail.remove_suffix(1);
  if (tail.empty()) return {};
  std::string text;
  for (std::size_t begin = 0; begin <= tail.size();) {
    const std::size_t end = std::min(tail.find('\n', begin), tail.size());
    text += fmt::format("\n  {} | {}", children_[child].name, tail.substr(begin, end - begin));
    begin = end + 1;
  }
  return text;
}

std::string Cluster::obituary(std::size_t child) const {
  const Child& one = children_[child];
  std::string text;
  if (!one.status) {
    text = fmt::format("{} is alive", one.name);
  } else if (WIFSIGNALED(*one.status)) {
    const int signal = WTERMSIG(*one.status);
    text = fmt::format("{} was killed by signal {} ({})", one.name, signal, strsignal(signal));
  } else {
    text = fmt::format("{} ended with exit status {}", one.name, WEXITSTATUS(*one.status));
  }
  return text + last_words(child);
}

Result<std::uint16_t> free_port() {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return system_error("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd.get(), raw, size) != 0 || ::getsockname(fd.get(), raw, &size) != 0) {
    return system_error("bind to 127.0.0.1");
  }
  return ntohs(address.sin_port);
}

}  // namespace mooncake::demo
