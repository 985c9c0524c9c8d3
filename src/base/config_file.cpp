// Config files: flat YAML or JSON. What the two libraries throw is caught here.
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "base/text.h"
#include "mooncake/config.h"

namespace mooncake {

namespace {

using base::quote;
using Values = std::map<std::string, std::string>;

constexpr std::size_t kMaxContent = std::size_t{1} << 20;
constexpr std::string_view kFlat =
    "is a list or a table; the file is flat: one text, number or boolean for each key";
constexpr std::string_view kNoValue =
    "has no value; leave the line out for the default, or write \"\" for an empty text";

// Collects the members of one flat object. The text of numbers is kept as it was written.
class FlatJson final : public nlohmann::json_sax<nlohmann::json> {
 public:
  const std::string& fault() const { return fault_; }
  Values take() { return std::move(values_); }

  bool null() override {
    return refuse(opened_ ? fmt::format("key {} {}", quote(key_), kNoValue)
                          : "the file is not one JSON object");
  }
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

// Collects the pairs of one flat map from the parser's events. The parser is asked for events
// because its own loaders never return on some files, such as one that holds only a comma.
class FlatYaml final : public YAML::EventHandler {
 public:
  const std::string& fault() const { return fault_; }
  Values take() { return std::move(values_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override { add(std::nullopt); }
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override { refuse("aliases are not taken"); }
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string& value) override {
    add(value);
  }
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open(false);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    open(true);
  }
  void OnMapEnd() override {}

 private:
  static constexpr std::string_view kNoTable = "not a table of `key: value` lines";

  void open(bool map) {
    if (opened_) {
      refuse(key_ ? fmt::format("key {} {}", quote(*key_), kFlat) : "a key is not a plain word");
    } else if (!map) {
      refuse(kNoTable);
    }
    opened_ = true;
  }
  // A key, or the value of the last one; nothing where the file has nothing.
  void add(std::optional<std::string> text) {
    if (!opened_) {
      if (text) refuse(kNoTable);
    } else if (!key_) {
      if (!text) return refuse("a key is not a plain word");
      if (!seen_.insert(*text).second) refuse(fmt::format("key {} appears twice", quote(*text)));
      key_ = std::move(text);
    } else {
      if (!text) refuse(fmt::format("key {} {}", quote(*key_), kNoValue));
      if (text) values_.insert_or_assign(*key_, *std::move(text));
      key_.reset();
    }
  }
  // The first fault stays.
  void refuse(std::string_view why) {
    if (fault_.empty()) fault_ = why;
  }

  Values values_;
  std::set<std::string> seen_;
  std::optional<std::string> key_;  // its value comes next
  std::string fault_;
  bool opened_ = false;
};

Result<Values> parse_yaml(std::string_view content) {
  FlatYaml values;
  try {
    std::istringstream stream{std::string(content)};
    YAML::Parser parser(stream);
    const bool found = parser.HandleNextDocument(values);
    if (!values.fault().empty()) return fail(Code::kInvalidArgument, values.fault());
    FlatYaml rest;
    if (found && parser.HandleNextDocument(rest)) {
      return fail(Code::kInvalidArgument, "more follows after the table of `key: value` lines");
    }
  } catch (const std::exception& error) {
    return fail(Code::kInvalidArgument, base::escape(error.what()));
  }
  return values.take();
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
