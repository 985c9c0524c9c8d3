// Request traces in the format that Mooncake's authors published: one JSON object a line,
//   {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}
// A hash id stands for one block of 512 tokens and for the whole prefix that ends with it.
#pragma once

#include <mooncake/result.h>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mooncake::workload {

inline constexpr std::uint64_t kBlockTokens = 512;

struct Request {
  std::uint64_t timestamp_ms = 0;   // since the start of the trace
  std::uint64_t input_length = 0;   // tokens
  std::uint64_t output_length = 0;  // tokens
  std::vector<std::uint64_t> hash_ids;

  bool operator==(const Request&) const = default;
};

// Tokens in the block at `position` of an input: kBlockTokens, fewer in the last, 0 behind it.
std::uint64_t block_tokens(std::uint64_t input_length, std::size_t position);

struct TraceLimits {
  std::size_t line_bytes = std::size_t{16} << 20;
  std::size_t ids_per_request = std::size_t{1} << 20;
};

// One line, without its line feed. Strict: all four keys, each once, whole numbers from 0 to
// 2^64-1, at least one token and one id, nothing behind the object. Other keys may come with any
// JSON value; they are skipped. Keys are compared as written, so an escaped one is another key.
// Errors (kInvalidArgument) name the field and its value.
Result<Request> parse_request(std::string_view line, const TraceLimits& limits = {});

// Reads a file request by request; holds one line at a time. Not thread-safe, blocks on the file.
class TraceReader {
 public:
  static Result<std::unique_ptr<TraceReader>> open(const std::string& path,
                                                   const TraceLimits& limits = {});
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;

  // nullopt at the end of the file, and for ever after an error. Errors begin with "FILE:LINE".
  // Timestamps never fall.
  Result<std::optional<Request>> next();
  std::uint64_t lines_read() const { return line_; }

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  TraceReader(std::string path, std::FILE* file, const TraceLimits& limits);

  Result<std::optional<std::string_view>> read_line();
  Result<void> refill();
  Result<Request> parse_next(std::string_view line);
  Error at_line(Error error) const;

  const std::string path_;
  const TraceLimits limits_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::string buffer_;     // bytes [begin_, size) are not yet handed out,
  std::size_t begin_ = 0;  // of which [begin_, scanned_) hold no line feed
  std::size_t scanned_ = 0;
  bool end_of_file_ = false;
  bool done_ = false;
  std::uint64_t line_ = 0;
  std::uint64_t last_timestamp_ms_ = 0;
};

// The first `max_requests` of a file. Reading stops there: later lines are not looked at.
Result<std::vector<Request>> read_trace(const std::string& path,
                                        std::size_t max_requests = SIZE_MAX,
                                        const TraceLimits& limits = {});

// One line in the published key order and spacing, with its line feed.
void append_line(const Request& request, std::string& out);
// Replaces the file.
Result<void> write_trace(const std::string& path, std::span<const Request> requests);

// What the published files promise beyond their syntax: timestamps never fall; ids count up from 0
// by first appearance and are unique within a request; as many as the input has blocks; an id comes
// always behind the same id (equal id, equal prefix). The error names the request, from 0.
Result<void> check_published_form(std::span<const Request> requests);

}  // namespace mooncake::workload
