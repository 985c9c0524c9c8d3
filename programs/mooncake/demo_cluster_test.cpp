// Proves: processes are watched and ended: their lines, exit statuses and last words come back, a
// program that is not there is an error at once, and none outlives its cluster. With /bin/sh as
// program.
#include "demo_cluster.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>

namespace mooncake::demo {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

Time soon() { return steady_clock::now() + seconds(20); }

ProgramSpec shell(const std::string& script, bool controlled = false) {
  return {
      .name = "shell", .path = "/bin/sh", .arguments = {"-c", script}, .controlled = controlled};
}

// Waits until a process has ended; the lines that it wrote until then.
std::vector<std::string> wait_for_end(Cluster& cluster) {
  std::vector<std::string> lines;
  for (;;) {
    const auto events = cluster.wait(soon());
    EXPECT_TRUE(events);
    if (!events || events->empty()) return lines;
    for (const auto& [child, line] : events->lines)
      lines.push_back(line);
    if (!events->ended.empty()) return lines;
  }
}

TEST(Cluster, LinesStatusAndLastWords) {
  auto cluster = Cluster::create();
  ASSERT_TRUE(cluster);
  const auto child = (*cluster)->spawn(shell("echo one; echo two; echo oops >&2; exit 7"));
  ASSERT_TRUE(child) << child.error().message();
  EXPECT_EQ(wait_for_end(**cluster), (std::vector<std::string>{"one", "two"}));
  EXPECT_FALSE((*cluster)->alive(*child));
  EXPECT_FALSE((*cluster)->ended_well(*child));
  const std::string obituary = (*cluster)->obituary(*child);
  EXPECT_EQ(obituary.find("shell ended with exit status 7\n"), 0u) << obituary;
  EXPECT_NE(obituary.find("  shell | oops"), std::string::npos) << obituary;
}

TEST(Cluster, AKilledProcessIsNamedWithItsSignal) {
  auto cluster = Cluster::create();
  ASSERT_TRUE(cluster);
  const auto child = (*cluster)->spawn(shell("kill -9 $$"));
  ASSERT_TRUE(child);
  wait_for_end(**cluster);
  EXPECT_EQ((*cluster)->obituary(*child), "shell was killed by signal 9 (Killed)");
}

TEST(Cluster, SigtermAndAGoodEnd) {
  auto cluster = Cluster::create();
  ASSERT_TRUE(cluster);
  const auto child =
      (*cluster)->spawn(shell("trap 'exit 0' TERM; echo ready; while :; do read x; done"));
  ASSERT_TRUE(child);
  const auto events = (*cluster)->wait(soon());
  ASSERT_TRUE(events);
  (*cluster)->terminate(*child);
  wait_for_end(**cluster);
  EXPECT_TRUE((*cluster)->ended_well(*child)) << (*cluster)->obituary(*child);
}

TEST(Cluster, AMissingProgramIsAnErrorAtOnce) {
  auto cluster = Cluster::create();
  ASSERT_TRUE(cluster);
  const auto child = (*cluster)->spawn({.name = "ghost", .path = "/nonexistent/program"});
  ASSERT_FALSE(child);
  EXPECT_NE(child.error().detail().find("ghost: can't start /nonexistent/program: No such file"),
            std::string::npos)
      << child.error().detail();
  EXPECT_EQ((*cluster)->size(), 0u);
}

TEST(Cluster, MessagesGoBothWays) {
  auto cluster = Cluster::create();
  ASSERT_TRUE(cluster);
  const auto child = (*cluster)->spawn(shell("cat <&3 >&3", true));
  ASSERT_TRUE(child);
  (*cluster)->send(*child, Found{1, 2});
  const auto events = (*cluster)->wait(soon());
  ASSERT_TRUE(events);
  ASSERT_EQ(events->messages.size(), 1u);
  EXPECT_TRUE(events->messages.front().second == Message(Found{1, 2}));
}

TEST(Cluster, AWaitEndsAtItsTime) {
  auto cluster = Cluster::create();
  ASSERT_TRUE(cluster);
  const auto events = (*cluster)->wait(steady_clock::now());
  ASSERT_TRUE(events);
  EXPECT_TRUE(events->empty());
}

TEST(Cluster, ASignalIsAnEvent) {
  auto cluster = Cluster::create();
  ASSERT_TRUE(cluster);
  ASSERT_EQ(::kill(::getpid(), SIGINT), 0);
  const auto events = (*cluster)->wait(soon());
  ASSERT_TRUE(events);
  EXPECT_EQ(events->signal, SIGINT);
}

TEST(Cluster, NothingOutlivesIt) {
  auto cluster = Cluster::create();
  ASSERT_TRUE(cluster);
  // Deaf to SIGTERM, stopped, and with a child in its process group.
  const auto deaf = (*cluster)->spawn(shell("trap '' TERM INT; echo; cat <&3", true));
  const auto stopped = (*cluster)->spawn(shell("kill -STOP $$"));
  const auto parent = (*cluster)->spawn(shell("cat <&3 & echo; wait", true));
  ASSERT_TRUE(deaf && stopped && parent);
  for (int lines = 0; lines < 2;) {
    const auto events = (*cluster)->wait(soon());
    ASSERT_TRUE(events && !events->empty());
    lines += static_cast<int>(events->lines.size());
  }
  const pid_t group = (*cluster)->pid(*parent);
  const pid_t pids[] = {(*cluster)->pid(*deaf), (*cluster)->pid(*stopped), group};
  cluster->reset();
  for (pid_t pid : pids) {
    EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), -1) << pid << " is still a child";
    EXPECT_EQ(errno, ECHILD);
  }
}

TEST(Cluster, FreePortsAreFree) {
  const auto port = free_port();
  ASSERT_TRUE(port);
  EXPECT_GT(*port, 0);
}

}  // namespace
}  // namespace mooncake::demo
