// What the doctor says of this machine comes from trying; what it says of Yama follows from the
// number.
#include <gtest/gtest.h>

#include <algorithm>

#include "doctor_machine.h"

namespace mooncake::doctor {
namespace {

TEST(Doctor, SaysWhatFollowsFromYama) {
  EXPECT_TRUE(ptrace_finding(std::nullopt).advice.empty());
  EXPECT_TRUE(ptrace_finding("0").advice.empty());
  EXPECT_NE(ptrace_finding("1").value.find("parent"), std::string::npos);
  EXPECT_NE(ptrace_finding("2").value.find("CAP_SYS_PTRACE"), std::string::npos);
  EXPECT_NE(ptrace_finding("3").value.find("nobody"), std::string::npos);
  for (const char* scope : {"1", "2", "3"})
    EXPECT_NE(ptrace_finding(scope).advice.find("TCP"), std::string::npos);
}

TEST(Doctor, LooksAtEverythingThatSharedMemoryNeeds) {
  const auto findings = look_at_shared_memory();
  for (const char* name : {"boot id", "memfd with seals", "2 MiB pages (MADV_COLLAPSE)",
                           "2 MiB pages for all", "reserved huge pages", "pidfd",
                           "abstract Unix sockets", "SO_PEERCRED", "Yama ptrace_scope"}) {
    const auto found = std::find_if(findings.begin(), findings.end(),
                                    [&](const Finding& finding) { return finding.name == name; });
    ASSERT_NE(found, findings.end()) << name;
    EXPECT_FALSE(found->value.empty()) << name;
  }
  for (const Finding& finding : look_at_machine())
    EXPECT_FALSE(finding.value.empty()) << finding.name;
}

}  // namespace
}  // namespace mooncake::doctor
