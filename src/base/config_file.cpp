// Config files: flat YAML or JSON. What the two libraries throw is caught here.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "mooncake/config.h"

namespace mooncake {

namespace {

using base::quote;
using Values = std::map<std::string, std::string>;

constexpr std::size_t kMaxContent = std::size_t{1} << 20;
constexpr std::string_view kFlat =
    "is a list or a table; the file is flat: one text, number or boolean for each key";

// Collects the members of one flat object. The text of numbers is kept as it was written.
class FlatJson final : public nlohmann::json_sax<nlohmann::json> {
 public:
  const std::string& fault() const { return fault_; }
  Values take() { return std::move(values_); }

  bool null() override { return in_object() || refuse("the file is not one JSON object"); }
  bool boolean(bool value) override { return add(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return add(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return add(text); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return refuse("the file is not one JSON object"); }
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_array() override { return true; }
  bool end_object() override {
    opened_ = false;
    return true;
  }
  bool key(string_t& name) override {
    key_ = std::move(name);
    if (!seen_.insert(key_).second) return refuse(fmt::format("key {} appears twice", quote(key_)));
    return true;
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::json::exception& error) override {
    return refuse(base::escape(error.what()));
  }

 private:
  bool in_object() const { return opened_; }
  bool open(bool object) {
    if (opened_) return refuse(fmt::format("key {} {}", quote(key_), kFlat));
    if (!object) return refuse("the file is not one JSON object");
    opened_ = true;
    return true;
  }
  bool add(std::string value) {
    if (!opened_) return refuse("the file is not one JSON object");
    values_.insert_or_assign(key_, std::move(value));
    return true;
  }
  bool refuse(std::string why) {
    fault_ = std::move(why);
    return false;
  }

  Values values_;
  std::set<std::string> seen_;
  std::string key_;
  std::string fault_;
  bool opened_ = false;
};

Result<Values> parse_json(std::string_view content) {
  FlatJson values;
  if (!nlohmann::json::sax_parse(content.begin(), content.end(), &values)) {
    return fail(Code::kInvalidArgument, values.fault());
  }
  return values.take();
}

Result<Values> read_yaml(std::string_view content) {
  const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(content));
  Values values;
  if (documents.empty()) return values;
  if (documents.size() > 1) return fail(Code::kInvalidArgument, "more than one YAML document");
  const YAML::Node& document = documents.front();
  if (document.IsNull()) return values;
  if (!document.IsMap()) return fail(Code::kInvalidArgument, "not a table of `key: value` lines");
  std::set<std::string> seen;
  for (const auto& member : document) {
    if (!member.first.IsScalar()) return fail(Code::kInvalidArgument, "a key is not a plain word");
    const std::string& key = member.first.Scalar();
    if (!seen.insert(key).second) {
      return fail(Code::kInvalidArgument, fmt::format("key {} appears twice", quote(key)));
    }
    if (member.second.IsNull()) continue;
    if (!member.second.IsScalar()) {
      return fail(Code::kInvalidArgument, fmt::format("key {} {}", quote(key), kFlat));
    }
    values.emplace(key, member.second.Scalar());
  }
  return values;
}

Result<Values> parse_yaml(std::string_view content) {
  try {
    return read_yaml(content);
  } catch (const std::exception& error) {
    return fail(Code::kInvalidArgument, base::escape(error.what()));
  }
}

bool ends_with_word(std::string_view path, std::string_view ending) {
  return path.size() > ending.size() &&
         base::equal_ignoring_case(path.substr(path.size() - ending.size()), ending);
}

}  // namespace

Result<std::map<std::string, std::string>> parse_config_file(std::string_view path,
                                                             std::string_view content) {
  const bool yaml = ends_with_word(path, ".yaml") || ends_with_word(path, ".yml");
  if (!yaml && !ends_with_word(path, ".json")) {
    return fail(
        Code::kInvalidArgument,
        fmt::format("config file {}: the name must end in .yaml, .yml or .json", quote(path)));
  }
  if (content.size() > kMaxContent) {
    return fail(Code::kInvalidArgument,
                fmt::format("config file {}: {} is more than {}", quote(path),
                            format_size(content.size()), format_size(kMaxContent)));
  }
  auto values = yaml ? parse_yaml(content) : parse_json(content);
  if (!values) {
    return fail(std::move(values).error().with_context(fmt::format("config file {}", quote(path))));
  }
  return values;
}

}  // namespace mooncake
