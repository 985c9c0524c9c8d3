// Every built-in metastore keeps the contract of metastore.h: values are opaque, keys are any text,
// limits and deadlines are the same everywhere, and what one handle puts another one gets. Checked
// by examples, by a random run against a std::map, and by many calls at once, on a real executor.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "metastore/http/metadata_routes.h"
#include "metastore/metadata_map.h"
#include "metastore/metastore.h"
#include "net/http.h"
#include "net/runtime.h"
#include "os/run_blocking.h"

namespace mooncake::metastore {
namespace {

using namespace std::chrono_literals;

// What a back end talks to, if anything; one for each test.
struct Service {
  std::string url;
  std::unique_ptr<net::HttpServer> server;
};

Service memory_service(os::Env) {
  static int count = 0;
  return {.url = "memory://conformance-" + std::to_string(++count), .server = nullptr};
}

Service http_service(os::Env env) {
  Service service;
  service.server = net::HttpServer::create(env).value();
  add_metadata_routes(*service.server, std::make_shared<MetadataMap>());
  const net::Address address = service.server->listen({"127.0.0.1", 0}).value();
  service.url = "http://" + to_string(address) + "/metadata";
  return service;
}

const std::map<std::string_view, Service (*)(os::Env)> kServices = {
    {"memory", memory_service},
    {"http", http_service},
};

struct MetastoreConformance : testing::TestWithParam<std::string_view> {
  void SetUp() override {
    ASSERT_TRUE(kServices.contains(GetParam())) << "say above how its service is started";
    service = kServices.at(GetParam())(runtime->env());
    store = open();
  }
  std::unique_ptr<Metastore> open() { return open_metastore(runtime->env(), service.url).value(); }
  base::TimePoint deadline(base::Duration within = 20s) { return runtime->env().now() + within; }
  template <typename T>
  T run(Task<T> task) {
    return *os::run_blocking(runtime->env().executor, std::move(task));
  }
  Result<std::string> get(const std::string& key) { return run(store->get(key, deadline())); }
  Result<void> put(const std::string& key, const std::string& value) {
    return run(store->put(key, value, deadline()));
  }
  Result<void> remove(const std::string& key) { return run(store->remove(key, deadline())); }

  std::unique_ptr<net::Runtime> runtime = net::Runtime::start("conformance").value();
  Service service;
  std::unique_ptr<Metastore> store;
};

std::vector<std::string_view> schemes() {
  std::vector<std::string_view> names;
  for (const MetastoreEntry& entry : builtin_metastores())
    names.push_back(entry.scheme);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Builtin, MetastoreConformance, testing::ValuesIn(schemes()),
                         [](const auto& scheme) { return std::string(scheme.param); });

TEST_P(MetastoreConformance, PutsGetsReplacesAndRemoves) {
  EXPECT_FALSE(store->capabilities().name.empty());
  ASSERT_TRUE(put("k", "one"));
  EXPECT_EQ(get("k").value(), "one");
  ASSERT_TRUE(put("k", "two"));
  EXPECT_EQ(get("k").value(), "two");
  ASSERT_TRUE(remove("k"));
  EXPECT_EQ(get("k").error().code(), Code::kObjectNotFound);
}

TEST_P(MetastoreConformance, AMissingKeyIsNamed) {
  const auto got = get("mooncake/ram/nobody");
  const auto removed = remove("mooncake/ram/nobody");
  for (const Error& error : {got.error(), removed.error()}) {
    EXPECT_EQ(error.code(), Code::kObjectNotFound);
    EXPECT_NE(error.message().find("mooncake/ram/nobody"), std::string::npos);
  }
}

TEST_P(MetastoreConformance, ValuesAreOpaque) {
  std::string all;
  for (int c = 0; c < 256; ++c)
    all += static_cast<char>(c);
  for (const std::string& value : {std::string(), all, std::string("\0", 1),
                                   std::string("\r\n\r\n"), std::string(kMaxValue, '\xff')}) {
    ASSERT_TRUE(put("k", value));
    EXPECT_TRUE(get("k").value() == value) << value.size();
  }
  const auto large = put("k", std::string(kMaxValue + 1, 'x'));
  EXPECT_EQ(large.error().code(), Code::kInvalidArgument);
  EXPECT_NE(large.error().message().find("'k'"), std::string::npos);
}

TEST_P(MetastoreConformance, KeysAreAnyText) {
  const std::string keys[] = {
      "mooncake/ram/10.0.0.1:15428",
      "mooncake/rpc_meta/[fe80::1%eth0]:1",
      "a b",
      "a+b",
      "a%20b",
      "a&b=c",
      "?",
      "#",
      "key=",
      "\xc3\xa9\xe6\xbc\xa2",
      "a\nb",
      std::string("a\0b", 3),
      "..",
      "/",
      std::string(kMaxKey, '/'),
  };
  for (const std::string& key : keys)
    ASSERT_TRUE(put(key, "value of " + key)) << key;
  for (const std::string& key : keys)
    EXPECT_EQ(get(key).value(), "value of " + key);
  for (const std::string& key : keys)
    EXPECT_TRUE(remove(key)) << key;
  for (const std::string& key : {std::string(), std::string(kMaxKey + 1, 'k')}) {
    EXPECT_EQ(put(key, "v").error().code(), Code::kInvalidArgument);
    EXPECT_EQ(get(key).error().code(), Code::kInvalidArgument);
    EXPECT_EQ(remove(key).error().code(), Code::kInvalidArgument);
  }
}

TEST_P(MetastoreConformance, HandlesShareOneMap) {
  const std::unique_ptr<Metastore> other = open();
  ASSERT_TRUE(put("k", "v"));
  EXPECT_EQ(run(other->get("k", deadline())).value(), "v");
  ASSERT_TRUE(run(other->remove("k", deadline())));
  EXPECT_EQ(get("k").error().code(), Code::kObjectNotFound);
}

TEST_P(MetastoreConformance, ADeadlineThatHasPassedEndsTheCall) {
  EXPECT_EQ(run(store->put("k", "v", deadline(-1s))).error().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(run(store->get("k", deadline(-1s))).error().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(run(store->remove("k", deadline(0s))).error().code(), Code::kDeadlineExceeded);
}

Task<Result<std::string>> get_cancelled(Metastore& store, base::TimePoint deadline) {
  os::CancelToken cancel;
  cancel.cancel();
  co_return co_await store.get("k", deadline, &cancel);
}

TEST_P(MetastoreConformance, ACancelledCallSaysSo) {
  ASSERT_TRUE(put("k", "v"));
  EXPECT_EQ(run(get_cancelled(*store, deadline())).error().code(), Code::kCancelled);
  EXPECT_EQ(get("k").value(), "v");
}

Task<void> put_and_get(Metastore& store, std::string key, base::TimePoint deadline, int& good) {
  const Result<void> put = co_await store.put(key, key + key, deadline);
  const Result<std::string> got = co_await store.get(key, deadline);
  if (put && got && *got == key + key) ++good;
}

Task<bool> put_and_get_all(Metastore& store, base::TimePoint deadline, int count, int& good) {
  base::TaskGroup group;
  for (int i = 0; i < count; ++i) {
    group.start(put_and_get(store, "key " + std::to_string(i), deadline, good));
  }
  co_await group.join();
  co_return true;
}

TEST_P(MetastoreConformance, ManyCallsAtOnce) {
  int good = 0;
  run(put_and_get_all(*store, deadline(), 100, good));
  EXPECT_EQ(good, 100);
}

TEST_P(MetastoreConformance, AgreesWithAModel) {
  base::Random random(GetParam().size());
  std::map<std::string, std::string> model;
  for (int step = 0; step < 500; ++step) {
    const std::string key = "k" + std::to_string(random.below(10));
    const auto known = model.find(key);
    switch (random.below(3)) {
      case 0: {
        const std::string value(random.below(50), static_cast<char>(random.below(256)));
        ASSERT_TRUE(put(key, value));
        model[key] = value;
        break;
      }
      case 1: {
        const auto got = get(key);
        ASSERT_EQ(got.has_value(), known != model.end());
        if (got) {
          ASSERT_EQ(*got, known->second);
        }
        break;
      }
      default:
        ASSERT_EQ(remove(key).has_value(), known != model.end());
        model.erase(key);
    }
  }
}

}  // namespace
}  // namespace mooncake::metastore
