// Membership, and the calls that only ask the Master.
#include "store/client/client.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "store/client/client_impl.h"

namespace mooncake::store {

namespace {

constexpr base::Duration kRetireTime = std::chrono::seconds(2);

}  // namespace

ClientImpl::Counters::Counters(base::MetricsRegistry& registry)
    : put_bytes(registry.counter("mooncake_transfer_write_bytes", "Bytes of objects put")),
      get_bytes(registry.counter("mooncake_transfer_read_bytes", "Bytes of objects got")),
      hits(registry.counter("mooncake_client_get_hits_total", "Objects asked for and read")),
      misses(
          registry.counter("mooncake_client_get_misses_total", "Objects asked for and not read")),
      unanswered(registry.counter("mooncake_client_unanswered_keys_total",
                                  "Keys that were misses because the Master could not be asked")),
      stored(registry.counter("mooncake_client_put_stored_total", "Objects put")),
      put_failures(
          registry.counter("mooncake_client_put_failures_total", "Objects that could not be put")),
      stale_reads(registry.counter("mooncake_client_stale_reads_total",
                                   "Reads whose extent held another version by then")),
      mounts(registry.counter("mooncake_client_mounts_total", "Mounts at the Master")),
      put_seconds(registry.histogram("mooncake_transfer_put_latency", "Seconds of a put call",
                                     base::Histogram::latency_bounds())),
      get_seconds(registry.histogram("mooncake_transfer_get_latency", "Seconds of a get call",
                                     base::Histogram::latency_bounds())) {}

ClientImpl::ClientImpl(os::Env env, transfer::Engine& engine, ClientOptions options)
    : env_(env),
      engine_(engine),
      options_(std::move(options)),
      id_(options_.id != ClientId{} ? options_.id : static_cast<ClientId>(env.random.next() | 1)),
      master_(env, options_.master_name, options_.connect_to_master, options_.identity,
              engine.shares_memory()),
      counters_(metrics_) {}

Task<Result<std::unique_ptr<Client>>> Client::start(os::Env env, transfer::Engine& engine,
                                                    ClientOptions options, TimePoint deadline) {
  const auto on_created = options.on_created;
  auto client = std::make_unique<ClientImpl>(env, engine, std::move(options));
  if (on_created) on_created(*client);
  Result<void> opened = co_await client->open(deadline);
  if (!opened) {
    co_await client->stop(env.now());
    co_return fail(std::move(opened).error());
  }
  co_return std::unique_ptr<Client>(std::move(client));
}

Task<Result<void>> ClientImpl::open(TimePoint deadline) {
  if (options_.segment_size > 0) {
    auto segment = SegmentHolder::create(env_, engine_, options_.segment_size, options_.host,
                                         options_.preparer, options_.budget);
    if (!segment) co_return fail(std::move(segment).error());
    segment_ = std::move(*segment);
  }
  Result<void> mounted = co_await mount(deadline);
  if (!mounted) co_return mounted;
  tasks_.start(keep_mounted());
  co_return Result<void>();
}

Task<Result<void>> ClientImpl::mount(TimePoint deadline) {
  std::vector<OwnSegment> segments;
  if (segment_ && leaves_at_) co_await retire_segment();  // what was there is lost anyway
  if (segment_) {
    Result<void> renewed = co_await segment_->renew(deadline);
    if (!renewed) co_return renewed;
    segments.push_back(segment_->description());
  }
  net::Bytes body =
      encode_mount(id_, ++membership_sequence_, master_.newest_epoch(), engine_.name(), segments);
  Result<net::Bytes> reply = co_await master_.call(net::Method::kMount, std::move(body), deadline);
  if (!reply) co_return fail(std::move(reply).error().with_context("mount"));
  Result<MountOutcome> outcome = decode_mount(*reply, segments.size());
  if (!outcome) co_return fail(std::move(outcome).error());
  for (Code code : outcome->codes) {
    if (code == Code::kOk) continue;
    std::string what = fmt::format("mount {}", engine_.name());
    if (code == Code::kSegmentExists) {
      what +=
          ": the Master knows an engine of this name that it can't tell dead; it is forgotten "
          "when it has been silent for client_ttl, or when this one answers under the name";
    }
    co_return fail(code, std::move(what));
  }
  if (outcome->heartbeat > base::Duration::zero()) heartbeat_interval_ = outcome->heartbeat;
  mounted_ = true;
  counters_.mounts.add();
  co_return Result<void>();
}

Task<Code> ClientImpl::heartbeat() {
  std::vector<OwnSegment> segments;
  base::Version newest;
  if (segment_) {
    segments.push_back(segment_->description());
    if (segment_->extents()) newest = segment_->extents()->newest();
  }
  const net::Bytes body = encode_heartbeat(id_, ++membership_sequence_, newest, segments);
  const TimePoint deadline =
      env_.now() + std::max<base::Duration>(heartbeat_interval_, std::chrono::milliseconds(100));
  Result<net::Bytes> reply = co_await master_.call_once(net::Method::kHeartbeat, body, deadline);
  if (!reply && reply.error().code() == Code::kStaleEpoch) {
    // The refusal has taught us the new epoch; to wait for the next beat could be too late.
    reply = co_await master_.call_once(net::Method::kHeartbeat, body, deadline);
  }
  co_return reply ? Code::kOk : reply.error().code();
}

Task<void> ClientImpl::keep_mounted() {
  bool reported = false;
  while (!stopping_) {
    const bool preparing =
        segment_ && segment_->description().prepared < segment_->description().address.size;
    const base::Duration interval = !mounted_   ? options_.remount_interval
                                    : preparing ? heartbeat_interval_ / 20
                                                : heartbeat_interval_;
    co_await pause(interval);
    if (stopping_) break;
    if (leaves_at_ && env_.now() >= *leaves_at_) co_await retire_segment();
    const Code code = mounted_ ? co_await heartbeat() : Code::kClientNotFound;
    if (stopping_) break;
    if (code == Code::kOk) {
      heard_ = true;
      reported = false;
      co_await renew_leases_of_pins();
      continue;
    }
    if (code == Code::kCancelled) continue;
    heard_ = code == Code::kClientNotFound;
    if (!heard_) {
      if (!reported) {
        base::log_warning("Master {}: {}; trying again", options_.master_name,
                          code_info(code).text);
      }
      reported = true;
      continue;
    }
    mounted_ = false;
    Result<void> mounted = co_await mount(env_.now() + std::chrono::seconds(2));
    if (mounted) {
      base::log_warning("{}: mounted again at Master {}; what it held before is lost",
                        engine_.name(), options_.master_name);
    }
  }
}

Task<Result<void>> ClientImpl::unmount_segment(base::Duration grace, TimePoint deadline) {
  const CallUnderWay call(*this);
  if (stopping_) co_return fail(Code::kNotReady, "the client is closed");
  if (!segment_) co_return fail(Code::kSegmentNotFound, "no segment is mounted");
  if (!mounted_) co_return fail(Code::kClientNotFound, "the segment is being mounted again");
  const OwnSegment own = segment_->description();
  net::Bytes body = encode_unmount(id_, ++membership_sequence_, {&own, 1}, grace);
  Result<net::Bytes> reply =
      co_await master_.call(net::Method::kUnmount, std::move(body), deadline);
  if (!reply) co_return fail(std::move(reply).error().with_context("unmount"));
  Result<std::vector<Code>> codes = decode_unmount(*reply, 1);
  if (!codes) co_return fail(std::move(codes).error());
  if (codes->front() != Code::kOk) co_return fail(codes->front(), "unmount");
  if (!segment_) co_return Result<void>();
  if (!mounted_ || segment_->description().address.incarnation != own.address.incarnation) {
    co_return fail(Code::kClientNotFound, "the segment has been mounted again meanwhile");
  }
  // Not before the Master's own end of the grace, which began earlier. keep_mounted() does it, as
  // nobody else may mount or retire.
  const TimePoint at = env_.now() + grace;
  leaves_at_ = leaves_at_ ? std::min(*leaves_at_, at) : at;
  if (grace <= base::Duration::zero() && pausing_ != nullptr) pausing_->set(true);
  co_return Result<void>();
}

Task<void> ClientImpl::retire_segment() {
  const std::unique_ptr<SegmentHolder> segment = std::move(segment_);
  leaves_at_.reset();
  if (segment) co_await segment->retire(env_.now() + kRetireTime);
}

Task<void> ClientImpl::pause(base::Duration duration) {
  os::Completion<bool> over(env_.executor);
  pausing_ = &over;
  const os::TimerId timer =
      env_.executor.run_at(env_.now() + duration, [&over] { over.set(true); });
  co_await over;
  pausing_ = nullptr;
  env_.executor.cancel(timer);
}

Task<void> ClientImpl::stop(TimePoint deadline) {
  if (!stopping_) {
    stopping_ = true;
    if (pausing_ != nullptr) pausing_->set(true);
    if (mounted_) {
      const net::Bytes body = encode_unmount(id_, ++membership_sequence_, {}, {});
      Result<net::Bytes> reply = co_await master_.call_once(net::Method::kUnmount, body, deadline);
      if (!reply) {
        base::log_warning("{}: not unmounted: {}", engine_.name(), reply.error().message());
      }
      mounted_ = false;
    }
  }
  co_await master_.stop();
  co_await tasks_.join();
  if (segment_) {
    co_await segment_->retire(std::max(deadline, env_.now() + std::chrono::milliseconds(100)));
    segment_.reset();
  }
}

Result<void> ClientImpl::accept(std::span<const std::string_view> keys,
                                std::vector<Code>& codes) const {
  codes.assign(keys.size(), Code::kOk);
  if (stopping_) return fail(Code::kNotReady, "the client is closed");
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].empty() || keys[i].size() > kMaxKeyLength) codes[i] = Code::kInvalidArgument;
  }
  return {};
}

Task<std::vector<Code>> ClientImpl::exist(std::span<const std::string_view> keys,
                                          TimePoint deadline) {
  const CallUnderWay call(*this);
  std::vector<Code> codes;
  std::vector<std::pair<std::size_t, std::size_t>> messages;
  if (Result<void> open = accept(keys, codes); !open) {
    co_return std::vector<Code>(keys.size(), open.error().code());
  }
  for_each_message(
      keys.size(), [&](std::size_t i) { return keys[i]; },
      [&](std::size_t first, std::size_t size) { messages.emplace_back(first, size); });
  for (const auto& [first, size] : messages) {
    net::Bytes body = encode_keys(id_, keys.subspan(first, size));
    Result<net::Bytes> reply =
        co_await master_.call(net::Method::kExist, std::move(body), deadline);
    Result<std::vector<Code>> found =
        reply ? decode_codes(*reply, size) : Result<std::vector<Code>>(fail(reply.error()));
    if (!found) counters_.unanswered.add(size);
    for (std::size_t i = 0; i < size; ++i) {
      if (codes[first + i] != Code::kOk) continue;
      codes[first + i] = found ? (*found)[i] : found.error().code();
    }
  }
  co_return codes;
}

Task<std::vector<Code>> ClientImpl::remove(std::span<const std::string_view> keys, bool force,
                                           TimePoint deadline) {
  const CallUnderWay call(*this);
  std::vector<Code> codes;
  std::vector<std::pair<std::size_t, std::size_t>> messages;
  if (Result<void> open = accept(keys, codes); !open) {
    co_return std::vector<Code>(keys.size(), open.error().code());
  }
  for_each_message(
      keys.size(), [&](std::size_t i) { return keys[i]; },
      [&](std::size_t first, std::size_t size) { messages.emplace_back(first, size); });
  for (const auto& [first, size] : messages) {
    CommandNumbers::Open numbers(numbers_, size);
    net::Bytes body = encode_remove(id_, numbers.numbers(), keys.subspan(first, size), force);
    Result<net::Bytes> reply =
        co_await master_.call(net::Method::kRemove, std::move(body), deadline);
    Result<std::vector<Code>> removed =
        reply ? decode_codes(*reply, size) : Result<std::vector<Code>>(fail(reply.error()));
    for (std::size_t i = 0; i < size; ++i) {
      if (codes[first + i] != Code::kOk) continue;
      codes[first + i] = removed ? (*removed)[i] : removed.error().code();
    }
  }
  co_return codes;
}

Task<Result<std::uint64_t>> ClientImpl::remove_matching(std::string pattern, bool force,
                                                        base::Duration step_timeout) {
  const CallUnderWay call(*this);
  std::uint64_t removed = 0;
  std::uint32_t cursor = 0;
  while (cursor != kSweepEnd) {
    Result<SweepStep> step = fail(Code::kNotReady, "the client is closed");
    if (!stopping_) {
      CommandNumbers::Open numbers(numbers_, 1);
      net::Bytes body = encode_sweep(id_, numbers.numbers(), pattern, force, cursor);
      Result<net::Bytes> reply =
          co_await master_.call(net::Method::kSweep, std::move(body), env_.now() + step_timeout);
      step = reply ? decode_sweep(*reply) : Result<SweepStep>(fail(std::move(reply).error()));
    }
    if (step && step->code != Code::kOk) step = fail(step->code);
    if (step && step->cursor <= cursor) step = fail(Code::kProtocolError, "Master's cursor stands");
    if (!step) {
      co_return fail(std::move(step).error().with_context(
          fmt::format("{} objects had been removed before", removed)));
    }
    removed += step->removed;
    cursor = step->cursor;
  }
  co_return removed;
}

Task<Result<std::vector<KeyReport>>> ClientImpl::why(std::span<const std::string_view> keys,
                                                     std::size_t most_events, TimePoint deadline) {
  const CallUnderWay call(*this);
  std::vector<Code> codes;
  if (Result<void> open = accept(keys, codes); !open) co_return fail(std::move(open).error());
  std::vector<KeyReport> reports;
  for (std::size_t first = 0; first < keys.size(); first += kMaxWhyKeys) {
    const auto some = keys.subspan(first, std::min(kMaxWhyKeys, keys.size() - first));
    Result<net::Bytes> reply =
        co_await master_.call(net::Method::kWhy, encode_why(some, most_events), deadline);
    if (!reply) co_return fail(std::move(reply).error());
    Result<std::vector<KeyReport>> told = decode_why(*reply, some, most_events);
    if (!told) co_return fail(std::move(told).error());
    std::move(told->begin(), told->end(), std::back_inserter(reports));
  }
  co_return reports;
}

SegmentHandle ClientImpl::target(const SegmentAddress& segment) {
  if (segment.owner == engine_.identity().incarnation && segment.name == engine_.name()) {
    return SegmentHandle::kLocal;
  }
  Result<net::Address> address = net::parse_address(segment.name, 0);
  return engine_.open_address(segment.name, address ? *address : net::Address());
}

}  // namespace mooncake::store
