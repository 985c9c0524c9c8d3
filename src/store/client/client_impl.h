// ClientImpl: the parts of Client that its source files share.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/client/client.h"
#include "store/client/master_link.h"
#include "store/client/own_segment.h"

namespace mooncake::store {

// Items of one message to the Master; also bounded by the bytes of their keys.
inline constexpr std::size_t kItemsPerMessage = 1024;
inline constexpr std::size_t kKeyBytesPerMessage = 4u << 20;
static_assert(kItemsPerMessage <= kMaxBatch);

class ClientImpl final : public Client {
 public:
  ClientImpl(os::Env env, transfer::Engine& engine, ClientOptions options);

  Task<Result<void>> open(TimePoint deadline);
  Task<void> stop(TimePoint deadline) override;

  Task<PutOutcome> put(std::span<const PutItem> items, PutOptions options,
                       TimePoint deadline) override;
  Task<std::vector<GetOutcome>> get(std::span<const GetItem> items, TimePoint deadline) override;
  Task<std::vector<GetOutcome>> get(std::span<const std::string_view> keys, Allocate allocate,
                                    TimePoint deadline) override;
  Task<Result<transfer::PinnedBytes>> pin(std::string_view key, TimePoint deadline) override;
  Task<std::vector<Code>> exist(std::span<const std::string_view> keys,
                                TimePoint deadline) override;
  Task<std::vector<Located>> locate_all(std::span<const std::string_view> keys,
                                        TimePoint deadline) override;
  Task<std::vector<Code>> remove(std::span<const std::string_view> keys, bool force,
                                 TimePoint deadline) override;
  Task<Result<std::uint64_t>> remove_matching(std::string pattern, bool force,
                                              base::Duration step_timeout) override;

  Task<Result<std::vector<KeyReport>>> why(std::span<const std::string_view> keys,
                                           std::size_t most_events, TimePoint deadline) override;

  Task<Result<void>> unmount_segment(base::Duration grace, TimePoint deadline) override;

  void interrupt() override { master_.interrupt(); }
  bool mounted() const override { return mounted_; }
  bool healthy() const override { return mounted_ && heard_; }
  base::MetricsRegistry& metrics() override { return metrics_; }
  const memory::ExtentTable* extents() const override {
    return segment_ ? segment_->extents() : nullptr;
  }

 private:
  struct PutCall;
  struct PutState;
  struct GetState;
  // Where the bytes of one object go; empty when there is no room.
  using RoomFor =
      std::function<std::vector<base::MutableBuffer>(std::size_t index, std::uint64_t size)>;

  // Membership (client.cpp).
  Task<Result<void>> mount(TimePoint deadline);
  Task<void> keep_mounted();
  Task<void> retire_segment();
  Task<Code> heartbeat();
  Task<void> pause(base::Duration duration);  // until stop() at most
  Result<void> accept(std::span<const std::string_view> keys, std::vector<Code>& codes) const;

  // Put (client_put.cpp). Each works on the items of one message.
  Task<void> put_some(PutCall& call, std::size_t first, std::size_t size);
  struct Refusals;
  Task<bool> put_once(PutCall& call, std::vector<std::size_t>& left,
                      std::map<std::size_t, Refusals>& refusals);
  static void explain_refusals(PutCall& call, std::size_t item, const Refusals& refused);
  Task<Result<PlacedBatch>> grant(const PutCall& call, std::span<const std::string_view> keys,
                                  std::span<const std::uint64_t> sizes, Numbers numbers);
  Task<void> write_and_publish(PutState& state);
  void plan_writes(PutState& state);
  // An end of grants, as the Master is told it, and what it answers for each.
  struct Finish {
    std::vector<FinishItem> items;
    std::vector<std::size_t> indexes;  // into the call's items
    std::vector<Code> codes;
    void add(FinishItem item, std::size_t index) {
      items.push_back(std::move(item));
      indexes.push_back(index);
    }
  };
  Task<void> finish(net::Method method, Finish& what, TimePoint deadline, bool set_aside = false);

  // Get (client_get.cpp).
  Task<std::vector<GetOutcome>> get_all(std::vector<std::string_view> keys, RoomFor room,
                                        TimePoint deadline);
  Task<void> get_some(std::span<const std::string_view> keys, std::size_t first,
                      const RoomFor& room, std::span<GetOutcome> outcomes, TimePoint deadline);
  Task<Result<PlacedBatch>> locate(std::span<const std::string_view> keys, TimePoint deadline);
  struct Attempts;
  bool is_worth_another(GetState& state, std::size_t a) const;
  static bool has_other(const PlacedBatch& batch, const PlacedObject& object,
                        const Attempts& attempts, std::size_t chosen);
  Task<void> read_found(GetState& state, TimePoint deadline);
  std::size_t choose_replica(const PlacedBatch& batch, const PlacedObject& object,
                             const Attempts& attempts) const;

  // Pin (client_pin.cpp).
  Task<Result<transfer::PinnedBytes>> pin_found(const PlacedBatch& placed,
                                                const PlacedObject& object, TimePoint deadline);
  void remember_pin(std::string_view key, const std::shared_ptr<void>& hold);
  Task<void> renew_leases_of_pins();
  std::vector<std::string> pinned_keys();

  SegmentHandle target(const SegmentAddress& segment);
  static transfer::Slice read_slice(const PlacedBatch& batch, const PlacedObject& object,
                                    std::size_t replica);

  os::Env env_;
  transfer::Engine& engine_;
  ClientOptions options_;
  const ClientId id_;
  MasterLink master_;
  CommandNumbers numbers_;
  std::uint64_t membership_sequence_ = 0;
  std::unique_ptr<SegmentHolder> segment_;
  std::optional<TimePoint> leaves_at_;  // the segment
  base::Duration heartbeat_interval_ = std::chrono::seconds(1);
  bool mounted_ = false;
  bool heard_ = true;  // whether the Master has answered the last heartbeat
  bool stopping_ = false;
  os::Completion<bool>* pausing_ = nullptr;
  struct PinnedKey {
    std::string key;
    std::weak_ptr<void> hold;
  };
  std::vector<PinnedKey> pins_;  // some of which may have ended
  std::size_t pins_swept_ = 0;   // how many were left by the last sweep
  base::TaskGroup tasks_;        // keep_mounted(), and the calls under way

  // Keeps the client alive until the call that holds it has returned.
  class CallUnderWay {
   public:
    explicit CallUnderWay(ClientImpl& client) : client_(client) { client.tasks_.enter(); }
    CallUnderWay(const CallUnderWay&) = delete;
    CallUnderWay& operator=(const CallUnderWay&) = delete;
    ~CallUnderWay() {
      client_.env_.executor.post([&group = client_.tasks_] { group.leave(); });
    }

   private:
    ClientImpl& client_;
  };

  base::MetricsRegistry metrics_;
  struct Counters {
    explicit Counters(base::MetricsRegistry& registry);
    base::Counter& put_bytes;
    base::Counter& get_bytes;
    base::Counter& hits;
    base::Counter& misses;
    base::Counter& unanswered;
    base::Counter& stored;
    base::Counter& put_failures;
    base::Counter& stale_reads;
    base::Counter& mounts;
    base::Histogram& put_seconds;
    base::Histogram& get_seconds;
  } counters_;
};

// What asking the Master again may mend: the memory was reused, or its mount replaced.
constexpr bool is_stale(Code code) {
  return code == Code::kGenerationMismatch || code == Code::kRegionKeyMismatch ||
         code == Code::kAddressNotRegistered;
}

// Cuts `count` items into messages: calls `each(first, size)` with ranges whose keys fit together.
template <typename KeyOf, typename Each>
void for_each_message(std::size_t count, KeyOf key_of, Each each) {
  std::size_t first = 0;
  while (first < count) {
    std::size_t size = 0, bytes = 0;
    while (first + size < count && size < kItemsPerMessage &&
           (size == 0 || bytes + key_of(first + size).size() <= kKeyBytesPerMessage)) {
      bytes += key_of(first + size).size();
      ++size;
    }
    each(first, size);
    first += size;
  }
}

}  // namespace mooncake::store
