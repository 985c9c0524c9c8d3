#include "transfer/transports/shm/host_writes.h"

#include <algorithm>
#include <utility>

namespace mooncake::transfer::shm {

namespace {

// Open at once.
constexpr std::size_t kMaxRanges = 1u << 15;
constexpr std::size_t kMaxRangesOfPeer = 1u << 13;
constexpr base::Duration kGrace = std::chrono::seconds(1);  // behind a write's deadline
// A request is a few megabytes: whoever has not copied them by then stands still.
constexpr base::Duration kLongest = std::chrono::seconds(60);

Task<Result<net::Bytes>> at_once(Result<net::Bytes> result) { co_return result; }

}  // namespace

// Copies under a pass of its own, which ends with the write.
class HostWrites::Writer final : public memory::Copier {
 public:
  explicit Writer(std::shared_ptr<memory::Gate> gate)
      : gate_(std::move(gate)), pass_(gate_->open()) {}
  // One that is still inside keeps its pass for good: another writer must not be taken for it.
  ~Writer() override {
    stop();
    if (is_out()) gate_->retire(pass_);
  }

  memory::Pass pass() const { return pass_; }
  void stop() override {
    if (!std::exchange(stopped_, true)) gate_->raise(pass_);
  }
  bool is_out() const override {
    out_ = out_ || gate_->is_clear(pass_);
    return out_;
  }

 private:
  const std::shared_ptr<memory::Gate> gate_;
  const memory::Pass pass_;
  bool stopped_ = false;
  mutable bool out_ = false;  // for good, once it is stopped
};

HostWrites::HostWrites(const TransportContext& context, std::shared_ptr<memory::Gate> gate,
                       const Guests& guests)
    : context_(context),
      gate_(std::move(gate)),
      guests_(guests),
      ranges_(kMaxRanges, kMaxRangesOfPeer) {
  context_.server.handle(net::Method::kBeginWrite,
                         [this](net::ServerCall& call) { return at_once(begin(call)); });
  context_.server.handle(net::Method::kEndWrite,
                         [this](net::ServerCall& call) { return at_once(end(call)); });
}

HostWrites::~HostWrites() {
  for (auto& [key, open] : open_)
    context_.env.executor.cancel(open.end);
}

void HostWrites::end_all(GuestId guest) {
  for (auto it = open_.lower_bound(first_key_of(guest));
       it != open_.end() && guest_of(it->first) == guest;) {
    close(it++);
  }
}

HostWrites::Open HostWrites::close(std::map<AttemptKey, Open>::iterator place) {
  const GuestId guest = guest_of(place->first);
  Open open = std::move(place->second);
  open_.erase(place);
  context_.env.executor.cancel(open.end);
  ranges_.give_back(guest, open.accesses.size());
  return open;
}

Result<net::Bytes> HostWrites::begin(const net::ServerCall& call) {
  MC_TRY(const TransferMessage message, decode_write(call.body()));
  MC_TRY(const GuestId guest, guests_.guest_of(call, message.attempt, message.receiver));
  if (message.records.size() != message.ranges.size()) {
    return fail(Code::kInvalidArgument, "only guarded ranges are written so");
  }
  const AttemptKey key = key_of(guest, message.attempt);
  if (open_.contains(key)) return fail(Code::kInvalidArgument, "the attempt is open");
  const std::size_t ranges = message.ranges.size();
  if (!ranges_.take(guest, ranges)) return fail(Code::kBusy, "too many writes are open");
  Open open;
  open.writer = std::make_shared<Writer>(gate_);
  std::vector<Code> codes;
  bool any = false;
  for (std::size_t i = 0; i < message.ranges.size(); ++i) {
    const WriteAccess& access = open.accesses.emplace_back(
        context_.registry, message.ranges[i], &message.records[i], message.keys[i], open.writer);
    if (is_refusal(access.code())) context_.counters.refused_ranges.add();
    codes.push_back(access.present() ? Code::kObjectExists : access.code());
    any |= codes.back() == Code::kOk;
  }
  // What is there already needs no end.
  if (!any || open.writer->pass() == memory::Pass::kNone) {
    ranges_.give_back(guest, ranges);
    return encode_begun(codes, memory::Pass::kNone);
  }
  const memory::Pass pass = open.writer->pass();
  const auto place = open_.emplace(key, std::move(open)).first;
  const TimePoint limit = std::min(call.deadline() + kGrace, context_.env.now() + kLongest);
  place->second.end = context_.env.executor.run_at(limit, [this, key] {
    if (const auto late = open_.find(key); late != open_.end()) close(late);
  });
  return encode_begun(codes, pass);
}

Result<net::Bytes> HostWrites::end(const net::ServerCall& call) {
  MC_TRY(const EndMessage message, decode_end(call.body()));
  const auto guest = guests_.guest_of(call, message.attempt, message.receiver);
  if (!guest && guest.error().code() != Code::kNotSupported) return fail(guest.error());
  const auto found = guest ? open_.find(key_of(*guest, message.attempt)) : open_.end();
  if (found == open_.end()) return fail(Code::kTransferFailed, "no such write is open");
  Open open = close(found);
  if (message.arrived.size() != open.accesses.size()) {
    return fail(Code::kProtocolError, "EndWriteRequest is malformed");
  }
  std::vector<Code> codes;
  for (std::size_t i = 0; i < open.accesses.size(); ++i) {
    codes.push_back(message.arrived[i] ? open.accesses[i].finish() : Code::kTransferFailed);
  }
  return encode_codes(codes);
}

}  // namespace mooncake::transfer::shm
