// Calls of MooncakeDistributedStore that give reasons: a dict for each key.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "native/buffer_views.h"
#include "native/store.h"
#include "native/store_calls.h"
#include "store/why/explain.h"

namespace mooncake::python {

namespace {

// A view of text that is cut from others.
nb::str text_of(std::string_view text) { return nb::str(text.data(), text.size()); }

nb::dict outcome_dict(const char* success, const ItemOutcome& outcome) {
  nb::dict dict;
  const bool present = outcome.code == Code::kObjectExists;
  const bool missed = outcome.miss != MissReason::kNone;
  const bool good = outcome.code == Code::kOk;
  dict["outcome"] = good ? success : present ? "already_present" : missed ? "miss" : "error";
  dict["code"] = present ? 0 : code_info(outcome.code).store;
  dict["reason"] = good || present ? text_of("")
                   : missed        ? text_of(to_string(outcome.miss))
                                   : text_of(code_info(outcome.code).text);
  dict["detail"] = text_of(outcome.detail);
  return dict;
}

std::vector<ItemOutcome> not_set_up(std::size_t count) {
  ItemOutcome outcome;
  outcome.code = Code::kNotReady;
  return std::vector<ItemOutcome>(count, outcome);
}

nb::list outcome_list(const char* success, const std::vector<ItemOutcome>& outcomes) {
  nb::list list;
  for (const ItemOutcome& outcome : outcomes)
    list.append(outcome_dict(success, outcome));
  return list;
}

}  // namespace

nb::list DistributedStore::put_outcomes(const KeyList& keys, nb::handle values,
                                        const ReplicaSettings* config) {
  keys.check();
  const BufferViews views(values);
  if (views.size() != keys.size()) {
    const std::string message =
        "values: " + std::to_string(views.size()) + " for " + std::to_string(keys.size()) + " keys";
    throw nb::value_error(message.c_str());
  }
  const auto open = session();
  if (open == nullptr) return outcome_list("stored", not_set_up(keys.size()));
  const Result<ReplicateConfig> replicas = plan_replicas(config, keys.size(), SameNode::kRefused);
  if (!replicas) {
    ItemOutcome refused;
    refused.code = replicas.error().code();
    refused.detail = replicas.error().message();
    return outcome_list("stored", std::vector<ItemOutcome>(keys.size(), refused));
  }
  std::vector<ConstBytes> bytes(keys.size());
  std::vector<PutItem> items(keys.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    bytes[i] = views[i].bytes();
    items[i] = {keys.keys()[i], std::span(&bytes[i], 1)};
  }
  return outcome_list("stored",
                      waiting([&] { return open->store().put_outcomes(items, *replicas); }));
}

nb::list DistributedStore::get_outcomes(const KeyList& keys) {
  keys.check();
  const auto open = session();
  if (open == nullptr) return outcome_list("hit", not_set_up(keys.size()));
  // The store asks for room on its own thread, where there is no GIL to make objects under.
  std::vector<std::unique_ptr<std::byte[]>> rooms(keys.size());
  const auto make_room = [&rooms](std::size_t i, std::uint64_t size) {
    rooms[i].reset(new (std::nothrow) std::byte[size]);
    return MutableBytes(rooms[i].get(), rooms[i] ? size : 0);
  };
  const auto outcomes = waiting([&] { return open->store().get_outcomes(keys.keys(), make_room); });
  nb::list list;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    nb::dict dict = outcome_dict("hit", outcomes[i]);
    if (outcomes[i].code == Code::kOk) {
      dict["data"] = nb::bytes(rooms[i].get(), static_cast<std::size_t>(outcomes[i].size));
      rooms[i].reset();
    }
    list.append(std::move(dict));
  }
  return list;
}

nb::list DistributedStore::exist_outcomes(const KeyList& keys) {
  keys.check();
  const auto open = session();
  if (open == nullptr) return outcome_list("hit", not_set_up(keys.size()));
  return outcome_list("hit", waiting([&] { return open->store().exist_outcomes(keys.keys()); }));
}

nb::object DistributedStore::why(Key key) {
  const auto open = session();
  Result<KeyReport> report = fail(Code::kNotReady);
  if (open != nullptr) report = waiting([&] { return open->store().why(key.text); });
  if (report) {
    const nb::object loads = nb::module_::import_("json").attr("loads");
    nb::object dict = loads(text_of(store::report_json(key.text, *report)));
    dict["code"] = 0;
    return dict;
  }
  const Error& error = report.error();
  const bool asked = error.code() == Code::kNotReady || error.code() == Code::kInvalidArgument;
  nb::dict dict;
  dict["state"] = "unknown";
  dict["reason"] =
      text_of(to_string(asked ? MissReason::kUnexplained : MissReason::kMasterUnreachable));
  dict["summary"] = text_of(error.message());
  dict["events"] = nb::list();
  dict["code"] = error.store_code();
  return dict;
}

}  // namespace mooncake::python
