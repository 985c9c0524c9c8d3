#include "transfer/segment_document.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>

namespace mooncake::transfer {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxDocument = 1u << 20;
constexpr std::string_view kPrefix = "mooncake/";

tl::unexpected<Error> bad(std::string_view what) {
  return fail(Code::kMetadataError, fmt::format("document: {}", what));
}

// A member of this type, or `fallback` when it is missing; an error when it is of another type.
Result<std::string> text_of(const json& object, const char* key, std::string fallback) {
  const auto it = object.find(key);
  if (it == object.end()) return fallback;
  if (!it->is_string()) return bad(fmt::format("'{}' is no text", key));
  return it->get<std::string>();
}
Result<std::uint16_t> port_of(const json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end()) return std::uint16_t{0};
  if (!it->is_number_unsigned() || it->get<std::uint64_t>() > 65535) {
    return bad(fmt::format("'{}' is no port", key));
  }
  return static_cast<std::uint16_t>(it->get<std::uint64_t>());
}

Result<json> parse_object(std::string_view text) {
  if (text.size() > kMaxDocument) return bad(fmt::format("{} bytes", text.size()));
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return bad("not a JSON object");
  return parsed;
}

// Buffers without name, address or length make the whole document void.
Result<void> check_buffers(const json& document) {
  const auto it = document.find("buffers");
  if (it == document.end()) return {};
  if (!it->is_array()) return bad("'buffers' is no list");
  for (const json& buffer : *it) {
    if (!buffer.is_object()) return bad("a buffer is no object");
    MC_TRY(const std::string name, text_of(buffer, "name", ""));
    for (const char* key : {"addr", "length"}) {
      const auto number = buffer.find(key);
      if (number == buffer.end() || !number->is_number_unsigned() ||
          number->get<std::uint64_t>() == 0) {
        return bad(fmt::format("a buffer without '{}'", key));
      }
    }
    if (name.empty()) return bad("a buffer without 'name'");
  }
  return {};
}

}  // namespace

std::string rpc_meta_key(std::string_view name) {
  return fmt::format("{}rpc_meta/{}", kPrefix, name);
}

std::string encode_rpc_meta(const net::Address& address) {
  return json{{"ip_or_host_name", address.host}, {"rpc_port", address.port}}.dump(
      -1, ' ', true, json::error_handler_t::replace);
}

Result<net::Address> decode_rpc_meta(std::string_view text) {
  MC_TRY(const json document, parse_object(text));
  net::Address address;
  MC_TRY(address.host, text_of(document, "ip_or_host_name", ""));
  MC_TRY(address.port, port_of(document, "rpc_port"));
  if (address.host.empty() || address.port == 0) return bad("no address in rpc_meta");
  return address;
}

std::string segment_key(std::string_view name) {
  const bool has_path = name.find('/') != std::string_view::npos;
  return fmt::format("{}{}{}", kPrefix, has_path ? "" : "ram/", name);
}

std::string encode_segment(const SegmentDocument& document, std::int64_t unix_seconds) {
  const std::time_t when = unix_seconds;
  json encoded{{"name", document.name},
               {"protocol", document.protocol},
               {"rdma_server_name", ""},
               {"tcp_data_port", document.data.port},
               {"tcp_proto_version", 2},
               {"timestamp", fmt::format("{:%Y-%m-%d %H:%M:%S}.000000", fmt::gmtime(when))},
               {"buffers", json::array()}};
  if (!document.data.host.empty()) encoded["tcp_data_host"] = document.data.host;
  if (document.own_framing) encoded["mooncake_frame"] = 1;
  return encoded.dump(-1, ' ', true, json::error_handler_t::replace);
}

Result<SegmentDocument> decode_segment(std::string_view text) {
  MC_TRY(const json document, parse_object(text));
  SegmentDocument segment;
  MC_TRY(segment.name, text_of(document, "name", ""));
  MC_TRY(segment.protocol, text_of(document, "protocol", ""));
  if (segment.protocol != "tcp") {
    return bad(fmt::format("protocol '{}', known is: tcp", segment.protocol));
  }
  MC_TRY(segment.data.host, text_of(document, "tcp_data_host", ""));
  MC_TRY(segment.data.port, port_of(document, "tcp_data_port"));
  const auto frame = document.find("mooncake_frame");
  segment.own_framing = frame != document.end() && frame->is_number_unsigned();
  MC_CHECK(check_buffers(document));
  return segment;
}

}  // namespace mooncake::transfer
