#include "object_model.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace mooncake::models {
namespace {

constexpr Op put(uint8_t client, uint8_t key) { return {client, OpKind::kPut, key}; }
constexpr Op upsert(uint8_t client, uint8_t key) { return {client, OpKind::kUpsert, key}; }
constexpr Op get(uint8_t client, uint8_t key) { return {client, OpKind::kGet, key}; }
constexpr Op remove(uint8_t client, uint8_t key) { return {client, OpKind::kRemove, key}; }

constexpr uint16_t kAll = 255;
constexpr uint8_t kA = 0;
constexpr uint8_t kB = 1;

ObjectScenario scenario(std::vector<Op> ops, uint16_t faults, uint8_t budget) {
  ObjectScenario out;
  out.ops = std::move(ops);
  out.faults = faults;
  out.fault_budget = budget;
  return out;
}

ObjectScenario with_extents(ObjectScenario out, std::vector<uint8_t> owner_of) {
  out.owner_of = std::move(owner_of);
  return out;
}

ObjectScenario warm(ObjectScenario out, Restart restart = Restart::kOutbox) {
  out.restart = restart;
  return out;
}

// A put and an upsert by one client, a get and a remove by another.
ObjectScenario four_calls(uint16_t faults, uint8_t budget) {
  return scenario({put(0, kA), upsert(0, kA), get(1, kA), remove(1, kA)}, faults, budget);
}

// An object is evicted, put again elsewhere, and may be lost there.
ObjectScenario evicted_and_put_again() {
  return scenario({put(0, kA), put(0, kA), get(0, kA)}, kEvict | kOwnerRestart | kMasterRestart, 3);
}

// That may be open at once, and be published in either order.
ObjectScenario two_upserts() {
  return scenario({upsert(0, kA), upsert(1, kA), get(1, kA)}, kMasterRestart, 1);
}

void expect_proven(const char* name, const ObjectScenario& scenario) {
  const Report report = explore(ObjectModel(scenario));
  std::printf("objects, %s: %s\n", name, report.summary().c_str());
  EXPECT_TRUE(report.proven()) << report.summary() << "\n" << report.trace_text();
}

void expect_found(const char* name, ObjectScenario scenario, ObjectMutant mutant,
                  const char* violation) {
  scenario.mutant = mutant;
  const Report report = explore(ObjectModel(scenario));
  std::printf("objects without a safeguard, %s: %s\n%s", name, report.summary().c_str(),
              report.trace_text().c_str());
  EXPECT_EQ(report.violation, violation);
}

constexpr const char* kMixed = "a get returns the bytes of one version";
constexpr const char* kOtherKey = "a get returns its own key's bytes";
constexpr const char* kUnpublished = "a get returns bytes that were published";
constexpr const char* kStale =
    "a get that begins after a remove or upsert was answered returns nothing older";
constexpr const char* kMissing = "an object that was put and not taken away is found";
constexpr const char* kTwice = "each remove has one effect";
constexpr const char* kExactlyOnce = "each extent is free, granted or published exactly once";
constexpr const char* kWhole = "what is published lies whole at its owner";
constexpr const char* kFailedShows = "a put that failed is not published";
constexpr const char* kSecondShows = "a put that came second is not published";

// Each test of ObjectModel visits every interleaving of its calls with every choice of faults up to
// its budget, and proves all invariants of object_model.cpp and that every call ends.

// Proves the main path against any two faults: a reader beside a put and an upsert.
TEST(ObjectModel, PutUpsertGet) {
  expect_proven("put, upsert, get", scenario({put(0, kA), upsert(0, kA), get(1, kA)}, kAll, 2));
}

// Proves that remove fits in: it may fall before, between and after a put and an upsert.
TEST(ObjectModel, PutUpsertGetRemove) {
  expect_proven("put, upsert, get, remove", four_calls(kAll, 1));
  expect_proven("put, upsert, get, remove, late requests",
                four_calls(kEarlyTimeout | kEarlyRevoke, 2));
}

// Proves that memory may be granted again at once, by one extent that two keys use in turn: late
// writes are refused, and readers that were sent there find out.
TEST(ObjectModel, OneExtentForTwoKeys) {
  expect_proven("one extent, two keys",
                with_extents(scenario({put(0, kA), put(0, kB), get(1, kA), get(1, kB)},
                                      kEvict | kEarlyTimeout | kEarlyRevoke, 3),
                             {0}));
}

// Proves that a removed key's extent serves another key without a trace of the first.
TEST(ObjectModel, RemoveMakesRoomForAnotherKey) {
  expect_proven("remove makes room", scenario({put(0, kA), put(0, kB), remove(1, kA), get(1, kB)},
                                              kEvict | kEarlyTimeout | kEarlyRevoke, 3));
}

// Proves that of two puts of one key the first publish wins and the other gets its extent back.
TEST(ObjectModel, TwoPutsOfOneKey) {
  expect_proven("two puts", scenario({put(0, kA), put(1, kA), get(1, kA)}, kAll, 1));
}

// Proves that of two upserts the later publish wins and no reader goes back to the other.
TEST(ObjectModel, TwoUpsertsOfOneKey) {
  const std::vector<Op> calls{upsert(0, kA), upsert(1, kA), get(1, kA)};
  expect_proven("two upserts", with_extents(scenario(calls, kAll, 1), {0, 0, 1}));
  const std::vector<Op> readers{upsert(0, kA), upsert(1, kA), get(2, kA), get(2, kA)};
  expect_proven("two upserts, two gets", with_extents(scenario(readers, kAll, 0), {0, 0, 1}));
}

// Proves that an engine's name goes to another one only when the engine is dead: what it held stays
// while it answers, and a newcomer is let in in the end.
TEST(ObjectModel, Namesakes) {
  expect_proven("namesakes",
                scenario({put(0, kA), get(1, kA)},
                         kImpostor | kOwnerRestart | kMasterRestart | kRepeat | kLoss, 2));
  expect_proven("namesakes, warm",
                warm(scenario({put(0, kA), get(0, kA)}, kImpostor | kOwnerRestart | kRepeat, 2)));
}

// Proves that a remove that was answered is over: copies of it that arrive after a restart of the
// Master take nothing away.
TEST(ObjectModel, LateRemove) {
  expect_proven("late remove", scenario({remove(1, kA), put(0, kA), get(0, kA)},
                                        kRepeat | kEarlyTimeout | kMasterRestart, 2));
}

// The same for a Master that adopts what the owners hold.
TEST(ObjectModel, WarmRestart) {
  expect_proven("warm, put, upsert, get",
                warm(scenario({put(0, kA), upsert(0, kA), get(1, kA)}, kAll, 1)));
  expect_proven("warm, two faults", warm(scenario({put(0, kA), get(0, kA)}, kAll, 2)));
  expect_proven(
      "warm, remove",
      warm(scenario({put(0, kA), upsert(0, kA), remove(1, kA), get(1, kA)}, kMasterRestart, 1)));
}

// Proves that a warm restart decides races as they were decided before it.
TEST(ObjectModel, WarmRestartAfterRaces) {
  expect_proven("warm, two puts",
                warm(scenario({put(0, kA), put(1, kA), get(1, kA)}, kMasterRestart, 1)));
  expect_proven("warm, evicted and put again", warm(evicted_and_put_again()));
  expect_proven(
      "warm, two upserts and a remove",
      with_extents(warm(scenario({upsert(0, kA), upsert(1, kA), remove(1, kA), get(1, kA)},
                                 kMasterRestart, 1)),
                   {0, 0, 1}));
}

// Proves that of two upserts the one that was published last is there after a restart, also when
// the other has the higher version: whatever the Master knew by journal, marks or frees.
TEST(ObjectModel, WarmRestartAfterUpsertsPublishedInReverse) {
  expect_proven("warm, two upserts", warm(two_upserts()));
}

// Each test below takes one safeguard away and proves that the checker sees it, so that the proofs
// above mean something. The trace in the log shows what the safeguard is for.
TEST(ObjectMutants, OwnerAcceptsOldGrants) {
  expect_found("old grants", four_calls(kAll, 2), ObjectMutant::kOwnerAcceptsOldGrants, kWhole);
}

TEST(ObjectMutants, OwnerChecksTheFirstChunkOnly) {
  expect_found("first chunk only", four_calls(kEarlyTimeout | kEarlyRevoke, 2),
               ObjectMutant::kOwnerChecksFirstChunkOnly, kWhole);
}

TEST(ObjectMutants, RepeatedWriteRewrites) {
  expect_found("repeated write", scenario({put(0, kA), get(1, kA)}, kEarlyTimeout, 1),
               ObjectMutant::kRepeatedWriteRewrites, kWhole);
}

TEST(ObjectMutants, NoCheckAfterTheCopy) {
  expect_found("no check after", four_calls(kEarlyTimeout | kEarlyRevoke | kEvict, 2),
               ObjectMutant::kNoCheckAfterCopy, kMixed);
}

TEST(ObjectMutants, ReadsNameNoGeneration) {
  expect_found("no generation", four_calls(kAll, 1), ObjectMutant::kNoCheckOfGeneration,
               kUnpublished);
  expect_found("any complete version",
               with_extents(scenario({put(0, kA), put(0, kB), get(1, kA)}, kEvict, 1), {0}),
               ObjectMutant::kReadsAnyGeneration, kOtherKey);
}

TEST(ObjectMutants, RemountKeepsTheIncarnation) {
  expect_found("kept incarnation", four_calls(kOwnerRestart, 1),
               ObjectMutant::kRemountKeepsIncarnation, kWhole);
}

TEST(ObjectMutants, NewcomerBelieved) {
  expect_found("late mount", scenario({put(0, kA), get(1, kA)}, kOwnerRestart, 2),
               ObjectMutant::kNewcomerBelieved, kMissing);
  expect_found("impostor", scenario({put(0, kA), get(1, kA)}, kImpostor, 1),
               ObjectMutant::kNewcomerBelieved, kMissing);
}

TEST(ObjectMutants, DisownsWhoeverIsThere) {
  expect_found("disowned by name", scenario({put(0, kA), get(1, kA)}, kOwnerRestart | kRepeat, 2),
               ObjectMutant::kDisownsWhoeverIsThere, kMissing);
}

TEST(ObjectMutants, PublishNotCheckedAgainstTheGrant) {
  expect_found("unchecked publish", four_calls(kEarlyRevoke, 1), ObjectMutant::kPublishUnchecked,
               kExactlyOnce);
}

TEST(ObjectMutants, PublishedBeforeTheOwnerAnswered) {
  expect_found("early publish", four_calls(kAll, 0), ObjectMutant::kPublishBeforeData, kWhole);
}

TEST(ObjectMutants, UpsertInPlace) {
  expect_found("upsert in place", four_calls(kAll, 0), ObjectMutant::kUpsertInPlace, kExactlyOnce);
}

TEST(ObjectMutants, SupersededVersionNotFreed) {
  expect_found("leak", four_calls(kAll, 0), ObjectMutant::kSupersededNotFreed, kExactlyOnce);
}

TEST(ObjectMutants, EpochNotRaised) {
  const uint16_t faults = kRepeat | kMasterRestart;
  expect_found("same epoch", scenario({remove(1, kA), put(0, kA), get(0, kA)}, faults, 2),
               ObjectMutant::kEpochNotRaised, kMissing);
}

TEST(ObjectMutants, MasterAcceptsRequestsOfItsFormerLife) {
  const uint16_t faults = kRepeat | kMasterRestart;
  expect_found("old requests", scenario({remove(1, kA), put(0, kA), get(0, kA)}, faults, 2),
               ObjectMutant::kMasterAcceptsOldEpochs, kMissing);
}

TEST(ObjectMutants, RemoveAnsweredBeforeItIsApplied) {
  expect_found("remove answered first", scenario({put(0, kA), remove(0, kA), get(0, kA)}, kAll, 0),
               ObjectMutant::kRemoveAnsweredFirst, kStale);
}

TEST(ObjectMutants, RepeatedRemoveIsANewOne) {
  expect_found("remove twice", scenario({put(0, kA), put(0, kA), remove(1, kA)}, kEarlyTimeout, 1),
               ObjectMutant::kRemoveAppliesTwice, kTwice);
}

TEST(ObjectMutants, RepeatedPublishIsANewOne) {
  expect_found("publish twice", four_calls(kEarlyTimeout, 1), ObjectMutant::kPublishAppliesTwice,
               kExactlyOnce);
}

TEST(ObjectMutants, RepliesMatchTheirCallOnly) {
  const std::vector<Op> calls{put(0, kA), upsert(0, kA), upsert(0, kA), get(1, kA)};
  expect_found("late reply taken", scenario(calls, kEarlyTimeout, 1),
               ObjectMutant::kRepliesMatchCallOnly, kMissing);
}

TEST(ObjectMutants, GetNeverAsksAgain) {
  const std::vector<Op> calls{put(0, kA), upsert(0, kA), upsert(0, kA), get(1, kA)};
  expect_found("asks once", scenario(calls, kAll, 0), ObjectMutant::kGetNeverAsksAgain, kMissing);
}

TEST(WarmMutants, PublishNotJournaled) {
  expect_found("publish not journaled", warm(scenario({put(0, kA), get(0, kA)}, kMasterRestart, 1)),
               ObjectMutant::kPublishNotJournaled, kMissing);
}

// Proves that versions say nothing about which of two upserts is the newer one: the trace shows the
// higher one published first, and back after the restart.
TEST(WarmMutants, HighestVersionAdopted) {
  expect_found("highest version adopted", warm(two_upserts()), ObjectMutant::kHighestVersionAdopted,
               kStale);
}

TEST(WarmMutants, EvictionNotJournaled) {
  expect_found("eviction not journaled", warm(evicted_and_put_again()),
               ObjectMutant::kEvictionNotJournaled, kStale);
}

// Proves that a Master may not guess from unmarked records what was published, by three histories:
// a put that lost a race, one that was refused, and an evicted version come back to life.
TEST(WarmMutants, GuessingFromUnmarkedRecords) {
  expect_found("guess, two puts",
               warm(scenario({put(0, kA), put(1, kA)}, kMasterRestart, 1), Restart::kGuess),
               ObjectMutant::kNone, kSecondShows);
  expect_found("guess, refused put",
               warm(scenario({upsert(0, kA)}, kMasterRestart | kEarlyRevoke, 2), Restart::kGuess),
               ObjectMutant::kNone, kFailedShows);
  expect_found("guess, evicted and put again",
               warm(scenario({put(0, kA), put(0, kA), get(1, kA)}, kMasterRestart | kEvict, 2),
                    Restart::kGuess),
               ObjectMutant::kNone, kStale);
}

}  // namespace
}  // namespace mooncake::models
