#include "progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "common/say.h"

namespace mooncake::demo {

namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::milliseconds kBetweenLines{3000};

double gigabytes_per_second(const Progress& progress) {
  return progress.seconds > 0 ? static_cast<double>(progress.bytes_moved) / 1e9 / progress.seconds
                              : 0;
}

std::string time_left(const Progress& progress) {
  if (progress.blocks_done == 0 || progress.seconds < 0.5) return "";
  const double share =
      static_cast<double>(progress.blocks_done) / static_cast<double>(progress.blocks);
  const auto seconds = static_cast<std::uint64_t>(std::ceil(progress.seconds * (1 / share - 1)));
  return seconds < 100 ? fmt::format("{} s left", seconds)
                       : fmt::format("{} min left", (seconds + 59) / 60);
}

std::size_t terminal_width(std::FILE* out) {
  winsize size{};
  const bool known = ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

std::string draw_progress(const Progress& progress, std::size_t width) {
  const std::string text =
      fmt::format("] {}/{}  hit {:.3f}  {:.2f} GB/s  {}", progress.requests_done, progress.requests,
                  progress.hit_ratio, gigabytes_per_second(progress), time_left(progress));
  // Its length is kept when the time left isn't known, so that the bar does not jump.
  const std::size_t taken = std::max<std::size_t>(text.size(), 50) + 2;
  const std::size_t cells = width > taken + 4 ? std::min<std::size_t>(width - taken, 60) : 4;
  const std::size_t full =
      progress.blocks == 0 ? cells : progress.blocks_done * cells / progress.blocks;
  std::string line = "[" + std::string(full, '#') + std::string(cells - full, '.') + text;
  line.resize(std::min(line.size(), width));
  return line;
}

std::string say_progress(const Progress& progress) {
  const std::string left = time_left(progress);
  return fmt::format("{}/{} requests, hit ratio {:.3f}, {:.2f} GB/s{}{}", progress.requests_done,
                     progress.requests, progress.hit_ratio, gigabytes_per_second(progress),
                     left.empty() ? "" : ", ", left);
}

ProgressBar::ProgressBar(std::FILE* out, bool drawn)
    : out_(out), draws_(drawn && ::isatty(::fileno(out)) == 1) {}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::update(const Progress& progress, Time now) {
  if (now < next_) return;
  next_ = now + (draws_ ? kRedraw : kBetweenLines);
  if (draws_) {
    // The last column stays free: some terminals wrap there.
    program::say(out_, "\r{}\x1b[K", draw_progress(progress, terminal_width(out_) - 1));
    drawn_ = true;
  } else {
    program::say(out_, "{}\n", say_progress(progress));
  }
  std::fflush(out_);
}

void ProgressBar::clear() {
  if (!drawn_) return;
  drawn_ = false;
  program::say(out_, "\r\x1b[K");
  std::fflush(out_);
}

}  // namespace mooncake::demo
