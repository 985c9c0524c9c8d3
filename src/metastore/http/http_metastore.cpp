#include "metastore/http/http_metastore.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "metastore/metadata_map.h"
#include "net/http.h"
#include "net/http_url.h"

namespace mooncake::metastore {
namespace {

constexpr auto kConnectTimeout = std::chrono::milliseconds(1500);
constexpr auto kTimeout = std::chrono::seconds(3);

class HttpMetastore final : public Metastore {
 public:
  HttpMetastore(os::Env env, std::string url) : env_(env), prefix_(std::move(url)) {
    prefix_ += prefix_.find('?') == std::string::npos ? "?key=" : "&key=";
  }

  const MetastoreCapabilities& capabilities() const override {
    static constexpr MetastoreCapabilities kCapabilities{.name = "http", .shared = true};
    return kCapabilities;
  }
  Task<Result<std::string>> get(std::string key, base::TimePoint deadline,
                                os::CancelToken* cancel) override;
  Task<Result<void>> put(std::string key, std::string value, base::TimePoint deadline) override;
  Task<Result<void>> remove(std::string key, base::TimePoint deadline) override;

 private:
  // The body of an answer 200; every other one is an error.
  Task<Result<std::string>> call(std::string method, std::string key, std::string body,
                                 base::TimePoint deadline, os::CancelToken* cancel = nullptr);

  const os::Env env_;
  std::string prefix_;
};

Error refused(const std::string& method, const std::string& key,
              const net::HttpResponse& response) {
  const std::string what = "metadata key " + base::quote(key);
  if (response.status == 404 && method != "PUT") return Error(Code::kObjectNotFound, what);
  const bool our_fault = response.status == 400 || response.status == 413;
  return Error(our_fault ? Code::kInvalidArgument : Code::kMetadataError,
               what + ": " + method + " was answered with " + std::to_string(response.status) +
                   " " + base::quote(response.body));
}

Task<Result<std::string>> HttpMetastore::call(std::string method, std::string key, std::string body,
                                              base::TimePoint deadline, os::CancelToken* cancel) {
  MC_CO_CHECK(check_key(key));
  MC_CO_CHECK(check_value(key, body));
  const base::TimePoint end = std::min(deadline, env_.now() + kTimeout);
  const std::string url = prefix_ + net::url_encode(key);
  Task<Result<net::HttpResponse>> request =
      net::http_request(env_, method, url, std::move(body), end, kConnectTimeout, cancel);
  Result<net::HttpResponse> response = co_await request;
  if (!response) {
    Error error = std::move(response).error();
    if (error.code() == Code::kNotSupported || error.code() == Code::kCancelled) {
      co_return fail(std::move(error));
    }
    const bool too_late = env_.now() >= deadline;
    co_return fail(too_late ? Code::kDeadlineExceeded : Code::kMetadataError, error.message());
  }
  if (response->status != 200) co_return fail(refused(method, key, *response));
  co_return std::move(response->body);
}

Task<Result<std::string>> HttpMetastore::get(std::string key, base::TimePoint deadline,
                                             os::CancelToken* cancel) {
  co_return co_await call("GET", std::move(key), "", deadline, cancel);
}

Task<Result<void>> HttpMetastore::put(std::string key, std::string value,
                                      base::TimePoint deadline) {
  MC_CO_CHECK(co_await call("PUT", std::move(key), std::move(value), deadline));
  co_return Result<void>();
}

Task<Result<void>> HttpMetastore::remove(std::string key, base::TimePoint deadline) {
  MC_CO_CHECK(co_await call("DELETE", std::move(key), "", deadline));
  co_return Result<void>();
}

Result<std::unique_ptr<Metastore>> open(os::Env env, std::string_view url) {
  MC_CHECK(net::parse_http_url(url));
  return std::make_unique<HttpMetastore>(env, std::string(url.substr(0, url.find('#'))));
}

}  // namespace

const MetastoreEntry& http_metastore_entry() {
  static constexpr MetastoreEntry kEntry{.scheme = "http", .open = open};
  return kEntry;
}

}  // namespace mooncake::metastore
