#include "net/http_url.h"

#include <algorithm>

#include "base/text.h"

namespace mooncake::net {
namespace {

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// No character that would end a request line early.
bool is_visible(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c != '\x7f'; });
}

Result<std::string> decode_query_part(std::string_view text) {
  std::string spaced(text);
  std::ranges::replace(spaced, '+', ' ');
  return url_decode(spaced);
}

}  // namespace

std::string url_encode(std::string_view text) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (char c : text) {
    if (is_unreserved(c)) {
      encoded += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      encoded += '%';
      encoded += kDigits[byte >> 4];
      encoded += kDigits[byte & 15];
    }
  }
  return encoded;
}

Result<std::string> url_decode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
    if (high < 0 || low < 0) {
      return fail(Code::kInvalidArgument, "broken % escape in " + base::quote(text));
    }
    decoded += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return decoded;
}

Result<HttpUrl> parse_http_url(std::string_view url) {
  const auto bad = [url](std::string_view why) {
    return fail(Code::kInvalidArgument, "URL " + base::quote(url) + ": " + std::string(why));
  };
  constexpr std::string_view kScheme = "http://";
  if (url.size() > kMaxUrl) return bad("is too long");
  if (!is_visible(url)) return bad("has spaces or control characters");
  if (!base::equal_ignoring_case(url.substr(0, kScheme.size()), kScheme)) {
    return bad("expected http://host[:port]/path");
  }
  std::string_view rest = url.substr(kScheme.size());
  rest = rest.substr(0, rest.find('#'));
  const std::size_t end = std::min(rest.find_first_of("/?"), rest.size());
  const std::string_view authority = rest.substr(0, end);
  if (authority.find('@') != std::string_view::npos) return bad("has a user name");
  Result<Address> address = parse_address(authority, 80);
  if (!address) return fail(std::move(address).error().with_context("URL " + base::quote(url)));
  if (address->port == 0) return bad("port 0 can't be connected to");
  HttpUrl parsed;
  parsed.address = *std::move(address);
  parsed.authority = authority;
  parsed.target = rest.substr(end);
  if (!parsed.target.starts_with('/')) parsed.target.insert(0, "/");
  return parsed;
}

Result<void> parse_target(std::string_view target, HttpRequest& request) {
  constexpr std::string_view kScheme = "http://";
  if (target.starts_with(kScheme)) {
    const std::size_t path = target.find('/', kScheme.size());
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  if (!target.starts_with('/')) {
    return fail(Code::kInvalidArgument, "target " + base::quote(target) + " is no path");
  }
  target = target.substr(0, target.find('#'));
  const std::size_t mark = std::min(target.find('?'), target.size());
  MC_TRY(request.path, url_decode(target.substr(0, mark)));
  request.query.clear();
  std::string_view query = target.substr(std::min(mark + 1, target.size()));
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (pair.empty()) continue;
    const std::size_t equals = std::min(pair.find('='), pair.size());
    MC_TRY(std::string name, decode_query_part(pair.substr(0, equals)));
    MC_TRY(std::string value, decode_query_part(pair.substr(std::min(equals + 1, pair.size()))));
    request.query.insert_or_assign(std::move(name), std::move(value));
  }
  return {};
}

}  // namespace mooncake::net
