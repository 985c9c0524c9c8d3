// Proves: requests start in trace order, never while one of their blocks is being written or the
// one before has not looked; and then any order of events finds exactly what a cache without limits
// would hit. By cases, and by a property over random traces and random interleavings of two nodes.
#include "demo_admission.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>

#include "workload/trace_stats.h"

namespace mooncake::demo {
namespace {

using workload::Request;

Request request_of(std::vector<std::uint64_t> ids) {
  Request request;
  request.input_length = ids.size() * workload::kBlockTokens;
  request.hash_ids = std::move(ids);
  return request;
}

TEST(Admission, WaitsForTheLookupOfTheOneBefore) {
  const std::vector<Request> trace = {request_of({0}), request_of({1}), request_of({2})};
  Admission admission(trace);
  ASSERT_EQ(admission.next(), 0u);
  EXPECT_EQ(admission.next(), 0u);
  admission.start(0);
  EXPECT_EQ(admission.next(), std::nullopt);
  admission.found(0, 0);
  ASSERT_EQ(admission.next(), 1u);
  admission.start(1);
  admission.found(1, 0);
  ASSERT_EQ(admission.next(), 2u);
  admission.start(2);
  EXPECT_TRUE(admission.all_started());
  admission.found(2, 0);
  EXPECT_EQ(admission.next(), std::nullopt);
}

TEST(Admission, WaitsForBlocksThatAreBeingWritten) {
  const std::vector<Request> trace = {request_of({0, 1, 2, 3}), request_of({0, 1, 2, 3, 4})};
  Admission admission(trace);
  admission.start(0);
  admission.found(0, 2);
  EXPECT_EQ(admission.next(), std::nullopt);
  admission.stored(0, 3);
  EXPECT_EQ(admission.next(), std::nullopt);
  admission.stored(0, 4);
  EXPECT_EQ(admission.next(), 1u);
}

TEST(Admission, DoesNotWaitForBlocksThatHit) {
  const std::vector<Request> trace = {request_of({0, 1, 2}), request_of({0, 1, 3})};
  Admission admission(trace);
  admission.start(0);
  admission.found(0, 2);
  EXPECT_EQ(admission.next(), 1u);
}

TEST(Admission, AReadThatFailedIsWaitedForToo) {
  const std::vector<Request> trace = {request_of({0, 1, 2}), request_of({0, 5})};
  Admission admission(trace);
  admission.start(0);
  admission.found(0, 2);
  ASSERT_EQ(admission.next(), 1u);
  admission.found(0, 0);
  EXPECT_EQ(admission.next(), std::nullopt);
  admission.stored(0, 1);
  EXPECT_EQ(admission.next(), 1u);
}

TEST(Admission, AReadThatFailsInALaterWindow) {
  const std::vector<Request> trace = {request_of({0, 1, 2, 3}), request_of({0, 1}),
                                      request_of({0, 1, 2})};
  Admission admission(trace);
  admission.start(0);
  admission.found(0, 4);
  admission.stored(0, 2);
  admission.found(0, 2);
  // 0 and 1 were read, 2 and 3 are written anew.
  ASSERT_EQ(admission.next(), 1u);
  admission.start(1);
  admission.found(1, 2);
  EXPECT_EQ(admission.next(), std::nullopt);
  admission.stored(0, 4);
  EXPECT_EQ(admission.next(), 2u);
}

// A node of the model: what it has said, and what it has still to do.
struct Busy {
  std::size_t request = 0;
  bool looked = false;
  std::size_t hits = 0;
  std::size_t stored = 0;
};

RC_GTEST_PROP(Admission, AnyInterleavingHitsWhatUnlimitedCapacityHits, ()) {
  std::vector<Request> trace;
  const auto count = *rc::gen::inRange<std::size_t>(1, 30);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::uint64_t> ids;
    const auto blocks = *rc::gen::inRange<std::size_t>(1, 8);
    for (std::size_t b = 0; b < blocks; ++b) {
      ids.push_back(b * 3 + *rc::gen::inRange<std::uint64_t>(0, 3));
    }
    trace.push_back(request_of(std::move(ids)));
  }
  Admission admission(trace);
  std::set<std::uint64_t> store;
  std::vector<Busy> busy;
  std::size_t hits = 0;
  std::size_t started = 0;
  while (started < trace.size() || !busy.empty()) {
    const auto next = admission.next();
    const bool start = next && busy.size() < 2 && (busy.empty() || *rc::gen::arbitrary<bool>());
    if (start) {
      RC_ASSERT(*next == started);
      admission.start(started);
      busy.push_back({started++});
      continue;
    }
    RC_ASSERT(!busy.empty());
    const auto which = *rc::gen::inRange<std::size_t>(0, busy.size());
    Busy& node = busy[which];
    const auto& ids = trace[node.request].hash_ids;
    if (!node.looked) {
      node.looked = true;
      while (node.hits < ids.size() && store.contains(ids[node.hits]))
        ++node.hits;
      hits += node.hits;
      admission.found(node.request, node.hits);
    } else if (node.stored < ids.size()) {
      const auto step = *rc::gen::inRange<std::size_t>(1, ids.size() - node.stored + 1);
      node.stored += step;
      store.insert(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(node.stored));
      admission.stored(node.request, node.stored);
    } else {
      busy.erase(busy.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  RC_ASSERT(hits == workload::trace_stats(trace).hit_blocks);
}

}  // namespace
}  // namespace mooncake::demo
