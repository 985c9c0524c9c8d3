// Who the peers of a batch are, and the keys of its ranges.
#include <algorithm>

#include "transfer/batch_run.h"

namespace mooncake::transfer {

namespace {

constexpr std::size_t kFirstQuestion = 16;  // ranges; most batches lie in few regions

}  // namespace

// Who the peer is, and the keys of the batch's ranges.
Task<Result<void>> BatchRun::know(Group& group) {
  Segment& segment = group.segment;
  std::vector<std::size_t> without_key;
  for (const std::size_t entry : group.entries) {
    if (!request(entry).key_given) without_key.push_back(entry);
  }
  for (std::uint32_t failures = 0;;) {
    if (is_gone(segment)) co_return fail(code_at_end(Code::kUnreachable));
    Result<void> known;
    if (!segment.peer.same_process && segment.peer.incarnation == base::Incarnation{} &&
        without_key.empty()) {
      const auto described = co_await engine_.describe(segment, {}, deadline_, cancel_);
      if (!described) known = fail(described.error());
    }
    if (known) known = co_await find_keys(segment, without_key);
    if (!known && called_off()) co_return fail(Code::kCancelled);
    if (known || !worth_repeating(known.error().code())) co_return known;
    if (known.error().code() == Code::kBusy) {
      const base::Duration pause = pause_after(known.error());
      if (engine_.env_.now() + pause >= deadline_) co_return known;
      co_await engine_.env_.executor.sleep_for(pause);
    } else {
      if (++failures >= engine_.max_attempts_) co_return known;
      const bool leads_on = co_await find_another_way(segment, known.error().code());
      if (!leads_on) co_return known;
    }
  }
}

void BatchRun::find_own_keys(const std::vector<std::size_t>& entries) {
  for (const std::size_t entry : entries) {
    Slice& slice = request(entry).slice;
    const auto region = engine_.registry_.find(slice.remote, slice.length);
    if (!region || region->extents) {
      note(entry, Code::kAddressNotRegistered);
    } else {
      slice.key = region->key;
    }
  }
}

// Looks up, and asks for, the keys of these entries. Those that no region covers get their code.
Task<Result<void>> BatchRun::find_keys(Segment& segment, std::vector<std::size_t> entries) {
  if (segment.peer.same_process) {
    find_own_keys(entries);
    co_return Result<void>();
  }
  std::size_t limit = kFirstQuestion;
  for (;;) {
    std::erase_if(entries, [&](std::size_t entry) {
      Slice& slice = request(entry).slice;
      const auto key = segment.keys.find(slice.remote, slice.length);
      if (key) slice.key = *key;
      return key.has_value() || failed(entry);
    });
    if (entries.empty()) co_return Result<void>();
    std::vector<AskedRange> asked;
    for (std::size_t i = 0; i < std::min(limit, entries.size()); ++i) {
      const Slice& slice = request(entries[i]).slice;
      asked.push_back({slice.remote, slice.length});
    }
    const auto regions = co_await engine_.describe(segment, asked, deadline_, cancel_);
    if (!regions) co_return fail(regions.error());
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const DescribedRegion& region = (*regions)[i];
      const bool covers = region.base <= asked[i].address && asked[i].length <= region.length &&
                          asked[i].address - region.base <= region.length - asked[i].length;
      Slice& slice = request(entries[i]).slice;
      if (!covers) {
        note(entries[i], Code::kAddressNotRegistered);
        continue;
      }
      slice.key = region.key;
      segment.keys.add(region.base, region.length, region.key);
    }
    entries.erase(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(asked.size()));
    limit = kMaxDescribed;
  }
}

}  // namespace mooncake::transfer
