#include "native/setup.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "transfer/protocols.h"

namespace mooncake::python {

namespace {

constexpr std::uint64_t kSmallest = 1024;  // bytes, of a size that isn't 0
constexpr double kTebibyte = 1099511627776.0;

// What the published setup() takes beside the settings of a store.
constexpr Setting kOthers[] = {
    {.name = "local_buffer_size",
     .type = SettingType::kBytes,
     .fallback = "16MB",
     .help = "bound of a BufferPool's memory; values need none: they are read and written in place",
     .minimum = 0,
     .maximum = kTebibyte},
    {.name = "protocol",
     .type = SettingType::kChoice,
     .fallback = "tcp",
     .help = "tcp and rdma choose the best path there is",
     .allowed = transfer::kProtocols},
    {.name = "rdma_devices",
     .type = SettingType::kText,
     .fallback = "",
     .help = "names of network cards",
     .support = Support::kAcceptedIgnored},
    {.name = "ipc_socket_path",
     .type = SettingType::kText,
     .fallback = "",
     .help = "whether clients without memory of their own are served",
     .support = Support::kRefused},
    {.name = "enable_ssd_offload",
     .type = SettingType::kBool,
     .fallback = "false",
     .help = "whether objects are kept on a local disk too",
     .support = Support::kRefused},
    {.name = "ssd_offload_path",
     .type = SettingType::kText,
     .fallback = "",
     .help = "folder of the local disk tier",
     .support = Support::kAcceptedIgnored},
    {.name = "tenant_id",
     .type = SettingType::kText,
     .fallback = "default",
     .help = "whose objects are seen",
     .support = Support::kRefused},
    {.name = "enable_client_http_server",
     .type = SettingType::kBool,
     .fallback = "false",
     .help = "whether the client serves HTTP",
     .support = Support::kRefused},
    {.name = "client_http_port",
     .type = SettingType::kInteger,
     .fallback = "9300",
     .help = "port of the client's HTTP server",
     .minimum = 1,
     .maximum = 65535,
     .support = Support::kAcceptedIgnored},
};

// Of the environment only the secret counts: callers read the rest themselves, and pass it on.
std::span<const Setting> setup_settings() {
  static const std::vector<Setting>& table = *new auto([] {
    std::vector<Setting> rows;
    for (Setting setting : store_settings()) {
      if (setting.name != "cluster_secret") setting.env = {};
      if (setting.name == "local_hostname" || setting.name == "master_server_addr") {
        setting.type = SettingType::kAddress;
      }
      rows.push_back(setting);
    }
    rows.insert(rows.end(), std::begin(kOthers), std::end(kOthers));
    return rows;
  }());
  return table;
}

// Names that callers of the published package use beside those of the table.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"master_server_address", "master_server_addr"},
    {"device_name", "rdma_devices"},
};

Result<void> resolve_aliases(SetupTexts& given) {
  for (const auto& [alias, name] : kAliases) {
    auto found = given.extract(std::string(alias));
    if (found.empty()) continue;
    const auto [there, is_new] = given.emplace(name, found.mapped());
    if (!is_new && there->second != found.mapped()) {
      return fail(Code::kInvalidArgument, fmt::format("{}: '{}' contradicts {}: '{}'", alias,
                                                      found.mapped(), name, there->second));
    }
  }
  return {};
}

// What is spelled out as its default, or left empty, needs no notice that it isn't used.
void drop_defaults(SetupTexts& given) {
  for (const Setting& setting : kOthers) {
    if (setting.support == Support::kServed) continue;
    const auto found = given.find(std::string(setting.name));
    if (found == given.end()) continue;
    if (found->second.empty() || found->second == setting.fallback) given.erase(found);
  }
}

Result<void> check_required(const SetupTexts& given) {
  for (const char* name : {"local_hostname", "metadata_server"}) {
    const auto found = given.find(name);
    if (found == given.end() || found->second.empty()) {
      return fail(Code::kInvalidArgument, fmt::format("{}: must be given", name));
    }
  }
  return {};
}

Result<void> check_buffer_size(std::uint64_t bytes) {
  if (bytes == 0 || bytes >= kSmallest) return {};
  return fail(Code::kInvalidArgument,
              fmt::format("local_buffer_size: {} is neither 0 nor at least 1024 bytes", bytes));
}

Result<void> check_metadata_server(const std::string& server) {
  if (server == "P2PHANDSHAKE" || server.starts_with("http://")) return {};
  return fail(Code::kInvalidArgument,
              fmt::format("metadata_server: '{}' is not P2PHANDSHAKE or http://host:port/metadata",
                          server));
}

}  // namespace

Result<SetupPlan> plan_setup(SetupTexts given) {
  MC_CHECK(resolve_aliases(given));
  MC_CHECK(check_required(given));
  drop_defaults(given);
  SettingInputs inputs;
  inputs.arguments = std::move(given);
  inputs.environment = process_environment(setup_settings());
  MC_TRY(const Settings settings, Settings::resolve(setup_settings(), inputs));
  MC_CHECK(check_buffer_size(settings.bytes("local_buffer_size")));
  MC_CHECK(check_metadata_server(settings.text("metadata_server")));
  SetupPlan plan;
  plan.notices = settings.notices();
  MC_TRY(const std::string notice, transfer::check_protocol(settings.text("protocol")));
  if (!notice.empty()) plan.notices.push_back(notice);
  MC_TRY(plan.options, store_options(settings));
  plan.local_buffer_size = settings.bytes("local_buffer_size");
  return plan;
}

}  // namespace mooncake::python
