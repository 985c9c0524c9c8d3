// Calls that read and write registered memory where it lies.
#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "native/answers.h"
#include "native/store_calls.h"

namespace mooncake::python {

namespace {

const std::int32_t kNotRegistered = code_info(Code::kAddressNotRegistered).store;
constexpr std::int32_t kBadMetadataCall = -1;  // of put_from_with_metadata() alone
constexpr std::uint64_t kMostBytes = PTRDIFF_MAX;

using Words = std::span<const std::uint64_t>;

void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

// The code of a call that has failed, whose reason is logged; 0 for one that has not.
std::int32_t code_of(const char* call, const Result<void>& outcome) {
  if (outcome) return 0;
  base::log_error("{}: {}", call, outcome.error().message());
  return outcome.error().store_code();
}

// Objects of a batch whose memory is in order, and the codes of the others. Made and ended without
// the GIL; until its end no owner gets the memory back.
template <typename Bytes>
class HeldBatch {
 public:
  static constexpr bool kWritten = std::is_same_v<Bytes, MutableBytes>;

  HeldBatch(StoreSession& session, std::size_t objects) : session_(session), outcomes_(objects, 0) {
    positions_.reserve(objects);
    ends_.reserve(objects);
  }

  void add(std::size_t object, Words addresses, Words lengths) {
    const std::size_t first = parts_.size();
    outcomes_[object] = hold(object, addresses, lengths);
    const bool takes_part = outcomes_[object] == 0 && (kWritten || parts_.size() > first);
    if (takes_part) {
      positions_.push_back(object);
      ends_.push_back(parts_.size());
    } else {
      parts_.resize(first);
    }
  }

  // `Item` is PutItem or GetItem; they point into this batch.
  template <typename Item>
  std::vector<Item> items(std::span<const std::string_view> keys) const {
    std::vector<Item> items;
    items.reserve(positions_.size());
    std::size_t begin = 0;
    for (std::size_t i = 0; i < positions_.size(); ++i) {
      items.push_back({keys[positions_[i]], std::span(parts_).subspan(begin, ends_[i] - begin)});
      begin = ends_[i];
    }
    return items;
  }
  const std::vector<std::size_t>& positions() const { return positions_; }

  // Those of the items in their places.
  template <typename Number>
  std::vector<std::int64_t> outcomes(const std::vector<Number>& of_items) && {
    for (std::size_t i = 0; i < of_items.size(); ++i)
      outcomes_[positions_[i]] = of_items[i];
    return std::move(outcomes_);
  }

 private:
  // A line on stderr says what is wrong with the first that is refused.
  std::int32_t refuse(std::int32_t code, const std::string& text) {
    if (!std::exchange(told_, true)) base::log_error("{}", text);
    return code;
  }
  std::int32_t hold(std::size_t object, Words addresses, Words lengths) {
    if (addresses.size() != lengths.size()) {
      return refuse(kRefused, fmt::format("object {} of the call has {} buffers and {} sizes",
                                          object, addresses.size(), lengths.size()));
    }
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      if (lengths[i] == 0) continue;
      memory::Use use = session_.hold(addresses[i], lengths[i], kWritten);
      if (!use) {
        return refuse(kNotRegistered,
                      fmt::format("{} bytes at {:#x} are not registered: register_buffer() first",
                                  lengths[i], addresses[i]));
      }
      total += lengths[i];  // both are at most PTRDIFF_MAX
      if (total > kMostBytes) {
        return refuse(kRefused, fmt::format("object {} of the call has more than {} bytes", object,
                                            kMostBytes));
      }
      uses_.push_back(std::move(use));
      using Pointer = typename Bytes::pointer;
      parts_.emplace_back(static_cast<Pointer>(pointer(addresses[i])), lengths[i]);
    }
    return 0;
  }

  StoreSession& session_;
  bool told_ = false;
  std::vector<std::int64_t> outcomes_;
  std::vector<memory::Use> uses_;
  std::vector<Bytes> parts_;
  std::vector<std::size_t> positions_;  // of the objects that take part
  std::vector<std::size_t> ends_;       // of their parts
};

template <typename Bytes>
void add_rows(HeldBatch<Bytes>& batch, const MemoryRows& memory) {
  for (std::size_t i = 0; i < memory.addresses.size(); ++i)
    batch.add(i, memory.addresses[i], memory.lengths[i]);
}

// Without the GIL. An object without bytes is success, and stores nothing.
std::vector<std::int64_t> write_held(StoreSession& session, Write kind, ReplicateConfig config,
                                     std::span<const std::string_view> keys,
                                     HeldBatch<ConstBytes> batch) {
  if (config.group_ids) {
    std::vector<std::string> groups;
    for (const std::size_t position : batch.positions())
      groups.push_back((*config.group_ids)[position]);
    config.group_ids = std::move(groups);
  }
  const std::vector<PutItem> items = batch.items<PutItem>(keys);
  std::vector<std::int32_t> codes;
  if (!items.empty()) codes = write_items(session, kind, items, config);
  return std::move(batch).outcomes(codes);
}

// The codes of a batch that is refused as a whole; none where it is in order.
std::vector<std::int64_t> refuse_batch(const KeyList& keys, const MemoryRows& memory,
                                       const StoreSession* session, const char* call) {
  const bool many = memory.addresses.is_table();
  check_list(memory.addresses.list(), many ? "all_buffer_ptrs" : "buffer_ptrs");
  check_list(memory.lengths.list(), many ? "all_sizes" : "sizes");
  if (session == nullptr) return std::vector<std::int64_t>(keys.size(), kNotSetUp);
  if (memory.addresses.size() == keys.size() && memory.lengths.size() == keys.size()) return {};
  base::log_error("{}: {} keys, {} buffers and {} sizes", call, keys.size(),
                  memory.addresses.size(), memory.lengths.size());
  return std::vector<std::int64_t>(keys.size(), kRefused);
}

}  // namespace

int DistributedStore::register_buffer(Word address, Word length) {
  const auto open = session();
  if (open == nullptr) return kNotSetUp;
  return waiting(
      [&] { return code_of("register_buffer", open->register_memory(pointer(address), length)); });
}

int DistributedStore::unregister_buffer(Word address) {
  const auto open = session();
  if (open == nullptr) return kNotSetUp;
  return waiting(
      [&] { return code_of("unregister_buffer", open->unregister_memory(pointer(address))); });
}

int DistributedStore::write_from(Write kind, Key key, Word address, Word length,
                                 const ReplicaSettings* config) {
  const auto open = session();
  if (open == nullptr) return kNotSetUp;
  const auto replicas = replicas_of("put_from", config, 1);
  if (!replicas) return kRefused;
  return waiting([&] {
    HeldBatch<ConstBytes> batch(*open, 1);
    batch.add(0, {&address.value, 1}, {&length.value, 1});
    const auto codes = write_held(*open, kind, *replicas, {&key.text, 1}, std::move(batch));
    return static_cast<int>(codes.front());
  });
}

int DistributedStore::put_from_with_metadata(Key key, Word address, Word metadata_address,
                                             Word length, Word metadata_length,
                                             const ReplicaSettings* config) {
  const auto open = session();
  if (open == nullptr) return kNotSetUp;
  const auto replicas = replicas_of("put_from_with_metadata", config, 1);
  if (!replicas) return kBadMetadataCall;
  const std::uint64_t addresses[] = {metadata_address, address};
  const std::uint64_t lengths[] = {metadata_length, length};
  return waiting([&] {
    HeldBatch<ConstBytes> batch(*open, 1);
    batch.add(0, addresses, lengths);
    if (batch.positions().empty()) return kBadMetadataCall;
    const auto codes = write_held(*open, Write::kPut, *replicas, {&key.text, 1}, std::move(batch));
    return static_cast<std::int32_t>(-codes.front());
  });
}

nb::object DistributedStore::write_batch_from(Write kind, const KeyList& keys,
                                              const MemoryRows& memory,
                                              const ReplicaSettings* config, SameNode same_node) {
  keys.check();
  const char* const call = memory.addresses.is_table() ? "batch_put_from_multi_buffers"
                           : kind == Write::kPut       ? "batch_put_from"
                                                       : "batch_upsert_from";
  const auto open = session();
  std::vector<std::int64_t> codes = refuse_batch(keys, memory, open.get(), call);
  if (!codes.empty() || keys.size() == 0) return answer(codes, keys.is_array());
  const auto replicas = replicas_of(call, config, keys.size(), same_node);
  if (!replicas) {
    return answer(std::vector<std::int64_t>(keys.size(), kRefused), keys.is_array());
  }
  codes = waiting([&] {
    HeldBatch<ConstBytes> batch(*open, keys.size());
    add_rows(batch, memory);
    return write_held(*open, kind, *replicas, keys.keys(), std::move(batch));
  });
  return answer(codes, keys.is_array());
}

std::int64_t DistributedStore::get_into(Key key, Word address, Word length) {
  const auto open = session();
  if (open == nullptr) return kNotSetUp;
  return waiting([&] {
    HeldBatch<MutableBytes> batch(*open, 1);
    batch.add(0, {&address.value, 1}, {&length.value, 1});
    const auto items = batch.items<GetItem>({&key.text, 1});
    std::vector<std::int64_t> read;
    if (!items.empty()) read = open->store().get_into_batch(items);
    return std::move(batch).outcomes(read).front();
  });
}

nb::object DistributedStore::get_batch_into(const KeyList& keys, const MemoryRows& memory) {
  keys.check();
  const auto open = session();
  std::vector<std::int64_t> outcomes = refuse_batch(keys, memory, open.get(), "batch_get_into");
  if (!outcomes.empty() || keys.size() == 0) return answer(outcomes, keys.is_array());
  outcomes = waiting([&] {
    HeldBatch<MutableBytes> batch(*open, keys.size());
    add_rows(batch, memory);
    const std::vector<GetItem> items = batch.items<GetItem>(keys.keys());
    std::vector<std::int64_t> read;
    if (!items.empty()) read = open->store().get_into_batch(items);
    return std::move(batch).outcomes(read);
  });
  return answer(outcomes, keys.is_array());
}

}  // namespace mooncake::python
