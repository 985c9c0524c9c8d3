#include "gate_model.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace mooncake::models {
namespace {

// One process writes into the range, which is registered twice.
GateScenario one_writer() {
  GateScenario scenario;
  scenario.roles = {Role::kWrite, Role::kNone};
  scenario.calls = {2, 0};
  scenario.registrations = 2;
  scenario.may_close = true;
  scenario.faults = 2;
  return scenario;
}

// One process reads an extent that its owner rewrites once and registers twice.
GateScenario one_reader() {
  GateScenario scenario = one_writer();
  scenario.roles = {Role::kRead, Role::kNone};
  scenario.rewrites = 1;
  return scenario;
}

GateScenario two_copiers(Role first, Role second) {
  GateScenario scenario;
  scenario.roles = {first, second};
  scenario.calls = {1, 1};
  scenario.registrations = 2;
  scenario.faults = 1;
  return scenario;
}

void expect_proven(const char* name, const GateScenario& scenario) {
  const Report report = explore(GateModel(scenario));
  std::printf("gate, %s: %s\n", name, report.summary().c_str());
  EXPECT_TRUE(report.proven()) << report.summary() << "\n" << report.trace_text();
}

void expect_found(const char* name, GateScenario scenario, GateMutant mutant,
                  const char* violation) {
  scenario.mutant = mutant;
  const Report report = explore(GateModel(scenario));
  std::printf("gate without a safeguard, %s: %s\n%s", name, report.summary().c_str(),
              report.trace_text().c_str());
  EXPECT_EQ(report.violation, violation);
}

constexpr const char* kLateStore = "no store lands in memory that was given back";
constexpr const char* kWrongBytes = "a read that succeeds returns the promised version only";
constexpr const char* kTooEarly = "no byte moves after the copier's call returned";
constexpr const char* kNeedless = "only a slot of the generation that ends makes unregister busy";
constexpr const char* kInside = "nobody is inside the gate when its memory is given back";
constexpr const char* kProgress = "progress";

// Proves that a single writer's bytes stay out of memory that was given back, and that every call
// returns, by visiting every interleaving with up to two stops or deaths of either process, with
// unregister, registering again, and close.
TEST(GateModel, OneWriter) { expect_proven("one writer", one_writer()); }

// Proves the same for a reader, and that a read that succeeds has the bytes it was promised, while
// the owner rewrites the extent with non-temporal stores.
TEST(GateModel, OneReaderOfARewrittenExtent) { expect_proven("one reader", one_reader()); }

// Proves that two writers do not hide each other from unregister: each stops, dies or runs on.
TEST(GateModel, TwoWriters) {
  GateScenario scenario = two_copiers(Role::kWrite, Role::kWrite);
  scenario.faults = 2;
  expect_proven("two writers", scenario);
}

// Proves the same where one of two writers calls twice and the owner may close, so that old slots
// meet a new registration.
TEST(GateModel, TwoWritersAndClose) {
  GateScenario scenario = two_copiers(Role::kWrite, Role::kWrite);
  scenario.calls = {2, 1};
  scenario.may_close = true;
  expect_proven("two writers and close", scenario);
}

// Proves that a writer and a reader of one range are both kept out once it is given back.
TEST(GateModel, WriterAndReader) {
  GateScenario scenario = two_copiers(Role::kWrite, Role::kRead);
  scenario.may_close = true;
  expect_proven("writer and reader", scenario);
}

// Proves that two readers of an extent that is rewritten get one version each or none.
TEST(GateModel, TwoReadersOfARewrittenExtent) {
  GateScenario scenario = two_copiers(Role::kRead, Role::kRead);
  scenario.registrations = 1;
  scenario.rewrites = 1;
  expect_proven("two readers", scenario);
}

// Each test below takes one safeguard away and proves that the checker sees it, so that the proofs
// above mean something. The trace in the log shows what the safeguard is for.
TEST(GateMutants, NoFenceAfterPublishing) {
  expect_found("no copier fence", one_writer(), GateMutant::kNoCopierFence, kInside);
}

TEST(GateMutants, NoFenceAfterRaisingTheGeneration) {
  expect_found("no owner fence", one_writer(), GateMutant::kNoOwnerFence, kInside);
}

TEST(GateMutants, NoRecheck) {
  expect_found("no re-check", one_writer(), GateMutant::kNoRecheck, kInside);
}

TEST(GateMutants, RecheckSkipsTheClosingFlag) {
  expect_found("re-check skips closing", one_writer(), GateMutant::kRecheckSkipsClosing, kInside);
}

TEST(GateMutants, NoSfenceBeforeTheSlotIsCleared) {
  expect_found("no sfence, writer", one_writer(), GateMutant::kNoSfenceBeforeClear, kTooEarly);
  expect_found("no sfence, reader", one_reader(), GateMutant::kNoSfenceBeforeClear, kTooEarly);
}

TEST(GateMutants, SlotClearedBeforeTheCopyEnds) {
  expect_found("early clear", one_writer(), GateMutant::kClearBeforeCopyEnds, kInside);
}

TEST(GateMutants, GenerationNotReadAgain) {
  expect_found("no re-read", one_reader(), GateMutant::kNoGenerationReread, kWrongBytes);
}

TEST(GateMutants, CopierTakesTheCurrentGeneration) {
  expect_found("current generation", one_writer(), GateMutant::kTakesCurrentGeneration, kInside);
}

TEST(GateMutants, CallReturnsAtItsDeadlineWhileTheCopyGoesOn) {
  expect_found("returns at once", one_writer(), GateMutant::kReturnsAtDeadline, kTooEarly);
}

TEST(GateMutants, UnregisterDoesNotWait) {
  expect_found("no wait", one_writer(), GateMutant::kUnregisterDoesNotWait, kInside);
}

TEST(GateMutants, UnregisterHasNoDeadline) {
  expect_found("no deadline", one_writer(), GateMutant::kUnregisterHasNoDeadline, kProgress);
}

TEST(GateMutants, DeadlineIsSuccess) {
  expect_found("deadline is success", one_writer(), GateMutant::kDeadlineIsSuccess, kInside);
}

TEST(GateMutants, QuarantineReusedAtOnce) {
  expect_found("no quarantine", one_writer(), GateMutant::kQuarantineReusedAtOnce, kInside);
}

TEST(GateMutants, PeerExitNotNoticed) {
  expect_found("exit not noticed", one_writer(), GateMutant::kPeerExitNotNoticed, kProgress);
}

TEST(GateMutants, AnySlotBlocks) {
  expect_found("any slot blocks", one_writer(), GateMutant::kAnySlotBlocks, kNeedless);
}

TEST(GateMutants, DataOvertakesTheOddWord) {
  expect_found("no sfence after odd", one_reader(), GateMutant::kNoSfenceAfterOdd, kWrongBytes);
}

TEST(GateMutants, EvenWordOvertakesTheData) {
  expect_found("no sfence before even", one_reader(), GateMutant::kNoSfenceBeforeEven, kWrongBytes);
}

// "Nobody is inside" fires before a byte is lost. This proves that the bytes are really lost, by
// judging a selection of the mutants above by bytes alone.
TEST(GateMutants, BytesAreReallyLost) {
  GateScenario scenario = one_writer();
  scenario.bytes_only = true;
  const GateMutant mutants[] = {
      GateMutant::kNoCopierFence,
      GateMutant::kNoOwnerFence,
      GateMutant::kNoRecheck,
      GateMutant::kRecheckSkipsClosing,
      GateMutant::kClearBeforeCopyEnds,
      GateMutant::kTakesCurrentGeneration,
      GateMutant::kUnregisterDoesNotWait,
      GateMutant::kDeadlineIsSuccess,
      GateMutant::kQuarantineReusedAtOnce,
  };
  for (GateMutant mutant : mutants) {
    expect_found("bytes only", scenario, mutant, kLateStore);
  }
}

}  // namespace
}  // namespace mooncake::models
