#include "workload/trace.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>
#include <unordered_map>
#include <utility>

namespace mooncake::workload {
namespace {

constexpr std::size_t kReadBytes = std::size_t{256} << 10;

std::string numbered(std::string_view text, std::uint64_t number) {
  return std::string(text).append(" ").append(std::to_string(number));
}

void append_number(std::uint64_t number, std::string& out) {
  char digits[20];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), number).ptr);
}

Error file_error(Code code, const std::string& path, std::string_view what) {
  const std::string reason = std::generic_category().message(errno);
  return Error(code, std::string(path).append(": ").append(what).append(": ").append(reason));
}

}  // namespace

std::uint64_t block_tokens(std::uint64_t input_length, std::size_t position) {
  const std::uint64_t full = input_length / kBlockTokens;
  if (position < full) {
    return kBlockTokens;
  }
  return position == full ? input_length % kBlockTokens : 0;
}

// Reading.

TraceReader::TraceReader(std::string path, std::FILE* file, const TraceLimits& limits)
    : path_(std::move(path)), limits_(limits), file_(file) {}

Result<std::unique_ptr<TraceReader>> TraceReader::open(const std::string& path,
                                                       const TraceLimits& limits) {
  std::FILE* file = std::fopen(path.c_str(), "rbe");
  if (file == nullptr) {
    return fail(file_error(Code::kInvalidArgument, path, "cannot open trace"));
  }
  return std::unique_ptr<TraceReader>(new TraceReader(path, file, limits));
}

Error TraceReader::at_line(Error error) const {
  return std::move(error).with_context(path_ + ":" + std::to_string(line_));
}

Result<void> TraceReader::refill() {
  buffer_.erase(0, begin_);
  scanned_ -= begin_;
  begin_ = 0;
  const std::size_t held = buffer_.size();
  buffer_.resize(held + kReadBytes);
  const std::size_t read = std::fread(buffer_.data() + held, 1, kReadBytes, file_.get());
  buffer_.resize(held + read);
  if (read == 0 && std::ferror(file_.get()) != 0) {
    return fail(file_error(Code::kSystemCall, path_, "cannot read trace"));
  }
  end_of_file_ = read == 0;
  return {};
}

Result<std::optional<std::string_view>> TraceReader::read_line() {
  while (true) {
    const std::size_t feed = buffer_.find('\n', scanned_);
    const bool found = feed != std::string::npos;
    scanned_ = found ? feed : buffer_.size();
    if (begin_ == scanned_ && !found && end_of_file_) {
      return std::nullopt;
    }
    if (scanned_ - begin_ > limits_.line_bytes) {
      ++line_;
      return fail(at_line(
          Error(Code::kInvalidArgument,
                numbered("line is longer than the limit of", limits_.line_bytes) + " bytes")));
    }
    if (found || end_of_file_) {
      ++line_;
      const std::string_view line(buffer_.data() + begin_, scanned_ - begin_);
      scanned_ += found ? 1 : 0;
      begin_ = scanned_;
      return line;
    }
    MC_CHECK(refill());
  }
}

Result<Request> TraceReader::parse_next(std::string_view line) {
  Result<Request> request = parse_request(line, limits_);
  if (request && request->timestamp_ms < last_timestamp_ms_) {
    std::string detail = numbered("field timestamp: is", request->timestamp_ms);
    detail += numbered(", less than the line before with", last_timestamp_ms_);
    request = fail(Code::kInvalidArgument, detail);
  }
  if (!request) {
    return fail(at_line(std::move(request).error()));
  }
  last_timestamp_ms_ = request->timestamp_ms;
  return request;
}

Result<std::optional<Request>> TraceReader::next() {
  if (done_) {
    return std::nullopt;
  }
  done_ = true;  // unless a request comes out
  MC_TRY(const std::optional<std::string_view> line, read_line());
  if (!line) {
    return std::nullopt;
  }
  MC_TRY(Request request, parse_next(*line));
  done_ = false;
  return request;
}

Result<std::vector<Request>> read_trace(const std::string& path, std::size_t max_requests,
                                        const TraceLimits& limits) {
  MC_TRY(const std::unique_ptr<TraceReader> reader, TraceReader::open(path, limits));
  std::vector<Request> requests;
  while (requests.size() < max_requests) {
    MC_TRY(std::optional<Request> request, reader->next());
    if (!request) {
      break;
    }
    requests.push_back(std::move(*request));
  }
  return requests;
}

// Writing.

void append_line(const Request& request, std::string& out) {
  out += "{\"timestamp\": ";
  append_number(request.timestamp_ms, out);
  out += ", \"input_length\": ";
  append_number(request.input_length, out);
  out += ", \"output_length\": ";
  append_number(request.output_length, out);
  out += ", \"hash_ids\": [";
  std::string_view separator;
  for (const std::uint64_t id : request.hash_ids) {
    out += separator;
    append_number(id, out);
    separator = ", ";
  }
  out += "]}\n";
}

Result<void> write_trace(const std::string& path, std::span<const Request> requests) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) {
    return fail(file_error(Code::kInvalidArgument, path, "cannot create trace"));
  }
  bool written = true;
  std::string line;
  for (const Request& request : requests) {
    line.clear();
    append_line(request, line);
    written = written && std::fwrite(line.data(), 1, line.size(), file) == line.size();
  }
  const int write_errno = errno;
  if (std::fclose(file) != 0 || !written) {
    errno = written ? errno : write_errno;
    return fail(file_error(Code::kSystemCall, path, "cannot write trace"));
  }
  return {};
}

// Checking.

namespace {

// Follows the ids of a trace: which are known, and behind which id each one comes.
class IdFollower {
 public:
  // What is wrong with the request; empty when nothing is.
  std::string add(const Request& request) {
    const std::vector<std::uint64_t>& ids = request.hash_ids;
    const std::uint64_t blocks =
        request.input_length / kBlockTokens + (request.input_length % kBlockTokens != 0 ? 1 : 0);
    if (ids.size() != blocks) {
      return numbered("has", ids.size()) + numbered(" hash_ids, its input_length asks for", blocks);
    }
    std::uint64_t before = kNothing;
    for (const std::uint64_t id : ids) {
      if (id > before_.size()) {
        return numbered("hash id", id) + numbered(" appears before id", before_.size());
      }
      if (id == before_.size()) {
        before_.push_back(before);
      }
      // A second appearance in one request would come behind itself or behind two ids.
      if (before_[id] != before) {
        return numbered("hash id", id) + " comes behind another prefix than before";
      }
      before = id;
    }
    return {};
  }

 private:
  static constexpr std::uint64_t kNothing = UINT64_MAX;
  std::vector<std::uint64_t> before_;
};

}  // namespace

Result<void> check_published_form(std::span<const Request> requests) {
  IdFollower follower;
  std::uint64_t last_timestamp_ms = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    std::string wrong = follower.add(requests[i]);
    if (wrong.empty() && requests[i].timestamp_ms < last_timestamp_ms) {
      wrong = numbered("timestamp", requests[i].timestamp_ms) + " is less than the one before";
    }
    if (!wrong.empty()) {
      return fail(Code::kInvalidArgument, numbered("request", i) + ": " + wrong);
    }
    last_timestamp_ms = requests[i].timestamp_ms;
  }
  return {};
}

}  // namespace mooncake::workload
