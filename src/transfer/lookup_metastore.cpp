#include <utility>

#include "transfer/lookup.h"
#include "transfer/segment_document.h"

namespace mooncake::transfer {

namespace {

using base::Task;
using base::TimePoint;

class MetastoreLookup final : public SegmentLookup {
 public:
  MetastoreLookup(std::unique_ptr<metastore::Metastore> store, const base::Clock& clock)
      : store_(std::move(store)), clock_(clock) {}

  Task<Result<net::Address>> find(std::string name, TimePoint deadline,
                                  os::CancelToken* cancel) override;
  Task<Result<void>> publish(std::string name, net::Address address, TimePoint deadline) override;
  Task<Result<void>> withdraw(std::string name, TimePoint deadline) override;
  bool may_forget() const override { return true; }
  Task<Result<Standing>> standing(std::string name, net::Address address, TimePoint deadline,
                                  os::CancelToken* cancel) override;

 private:
  // As kSegmentNotFound when there is no such document.
  Task<Result<std::string>> get(std::string key, std::string name, TimePoint deadline,
                                os::CancelToken* cancel);

  const std::unique_ptr<metastore::Metastore> store_;
  const base::Clock& clock_;
};

Task<Result<std::string>> MetastoreLookup::get(std::string key, std::string name,
                                               TimePoint deadline, os::CancelToken* cancel) {
  auto text = co_await store_->get(std::move(key), deadline, cancel);
  if (!text && text.error().code() == Code::kObjectNotFound) {
    co_return fail(Code::kSegmentNotFound, "'" + name + "'");
  }
  co_return text;
}

Task<Result<net::Address>> MetastoreLookup::find(std::string name, TimePoint deadline,
                                                 os::CancelToken* cancel) {
  MC_CO_TRY(const std::string text, co_await get(segment_key(name), name, deadline, cancel));
  auto document = decode_segment(text);
  if (!document) co_return fail(std::move(document).error().with_context("segment '" + name + "'"));
  if (!document->own_framing) {
    co_return fail(Code::kNotSupported,
                   "segment '" + name + "' is served by another kind of engine");
  }
  net::Address address = document->data;
  if (address.host.empty() || address.port == 0) {
    MC_CO_TRY(const std::string meta, co_await get(rpc_meta_key(name), name, deadline, cancel));
    MC_CO_TRY(address, decode_rpc_meta(meta));
  }
  co_return address;
}

Task<Result<void>> MetastoreLookup::publish(std::string name, net::Address address,
                                            TimePoint deadline) {
  SegmentDocument document;
  document.name = name;
  document.data = address;
  document.own_framing = true;
  std::string text = encode_segment(document, clock_.unix_seconds());
  MC_CO_CHECK(co_await store_->put(rpc_meta_key(name), encode_rpc_meta(address), deadline));
  co_return co_await store_->put(segment_key(name), std::move(text), deadline);
}

Task<Result<void>> MetastoreLookup::withdraw(std::string name, TimePoint deadline) {
  auto meta = co_await store_->remove(rpc_meta_key(name), deadline);
  auto document = co_await store_->remove(segment_key(name), deadline);
  if (!meta && meta.error().code() != Code::kObjectNotFound) co_return meta;
  if (!document && document.error().code() != Code::kObjectNotFound) co_return document;
  co_return Result<void>();
}

// A document that can't be read is not this engine's: it stays.
Task<Result<SegmentLookup::Standing>> MetastoreLookup::standing(std::string name,
                                                                net::Address address,
                                                                TimePoint deadline,
                                                                os::CancelToken* cancel) {
  bool missing = false;
  for (const bool is_meta : {true, false}) {
    const std::string key = is_meta ? rpc_meta_key(name) : segment_key(name);
    const auto text = co_await get(key, name, deadline, cancel);
    if (!text && text.error().code() != Code::kSegmentNotFound) co_return fail(text.error());
    missing |= !text;
    if (!text) continue;
    bool own = false;
    if (is_meta) {
      const auto meta = decode_rpc_meta(*text);
      own = meta && *meta == address;
    } else {
      const auto document = decode_segment(*text);
      own = document && document->own_framing && document->data == address;
    }
    if (!own) co_return Standing::kTaken;
  }
  co_return missing ? Standing::kMissing : Standing::kPublished;
}

}  // namespace

std::unique_ptr<SegmentLookup> make_metastore_lookup(std::unique_ptr<metastore::Metastore> store,
                                                     const base::Clock& clock) {
  return std::make_unique<MetastoreLookup>(std::move(store), clock);
}

}  // namespace mooncake::transfer
