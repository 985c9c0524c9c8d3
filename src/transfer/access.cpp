#include "transfer/access.h"

#include <utility>

namespace mooncake::transfer {

WriteAccess::WriteAccess(const memory::Registry& registry, const RemoteRange& range,
                         const memory::ExtentRecord* record, std::string_view key,
                         std::shared_ptr<memory::Copier> copier)
    : range_(range) {
  code_ = admit(registry, record, key, std::move(copier));
}

WriteAccess::~WriteAccess() {
  if (extents_) extents_->abandon(ticket_);
}

Code WriteAccess::admit(const memory::Registry& registry, const memory::ExtentRecord* record,
                        std::string_view key, std::shared_ptr<memory::Copier> copier) {
  auto access = registry.admit(range_.address, range_.length, range_.key);
  if (!access) return access.error().code();
  const memory::Region& region = access->region();
  const bool guarded = region.extents != nullptr;
  if (region.permission == memory::Permission::kReadOnly || guarded != (range_.guard != 0)) {
    return Code::kAddressNotRegistered;
  }
  if (guarded) {
    if (!record || range_.extent < region.base) return Code::kInvalidArgument;
    if (record->version != range_.guard) return Code::kGrantRefused;
    auto begun =
        region.extents->begin_write(range_.extent - region.base, range_.address - region.base,
                                    range_.length, *record, key, std::move(copier));
    if (!begun) return begun.error().code();
    present_ = begun->kind == memory::ExtentTable::Begin::kAlreadyComplete;
    ticket_ = begun->ticket;
    extents_ = region.extents;
  }
  access_ = *std::move(access);
  return Code::kOk;
}

bool WriteAccess::may_write() const {
  return code_ == Code::kOk && !present_ && access_.live() &&
         (!extents_ || extents_->may_write(ticket_));
}

Code WriteAccess::finish() {
  if (code_ != Code::kOk) return code_;
  if (!access_.live()) {
    // See was_taken_back().
    code_ = access_.region().extents ? Code::kAddressNotRegistered : Code::kGenerationMismatch;
  } else if (extents_ && !present_) {
    const auto extents = std::exchange(extents_, nullptr);
    const auto committed = extents->commit(ticket_);
    if (!committed) code_ = committed.error().code();
  }
  access_ = {};
  return code_;
}

ReadAccess::ReadAccess(const memory::Registry& registry, const RemoteRange& range) : range_(range) {
  auto access = registry.admit(range_.address, range_.length, range_.key);
  if (!access) {
    code_ = access.error().code();
  } else if ((access->region().extents != nullptr) != (range_.guard != 0)) {
    code_ = Code::kAddressNotRegistered;
  } else {
    access_ = *std::move(access);
    code_ = state();
  }
}

Code ReadAccess::state() const {
  if (!access_.live()) return Code::kAddressNotRegistered;
  const memory::Region& region = access_.region();
  if (!region.extents) return Code::kOk;
  const bool readable =
      range_.extent >= region.base &&
      region.extents->readable(range_.extent - region.base, range_.address - region.base,
                               range_.length, static_cast<base::Generation>(range_.guard));
  return readable ? Code::kOk : Code::kGenerationMismatch;
}

bool ReadAccess::may_read() const { return code_ == Code::kOk && state() == Code::kOk; }

Result<memory::PinnedRanges::Pin> ReadAccess::pin() {
  const Code code = code_ == Code::kOk ? state() : code_;
  if (code != Code::kOk) return fail(code);
  const memory::Region& region = access_.region();
  if (!region.extents) return fail(Code::kNotSupported, "only guarded memory is pinned");
  return region.extents->pin(range_.extent - region.base,
                             static_cast<base::Generation>(range_.guard));
}

Code ReadAccess::finish() {
  if (code_ == Code::kOk) code_ = state();
  access_ = {};
  return code_;
}

}  // namespace mooncake::transfer
