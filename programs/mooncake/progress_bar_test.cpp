// Proves: the progress line fits its width, shows how far the job is and what is left, and where no
// terminal is, a plain line comes once in its interval. On strings and a temporary file.
#include "progress_bar.h"

#include <gtest/gtest.h>

namespace mooncake::demo {
namespace {

Progress half_way() {
  Progress progress;
  progress.requests_done = 123;
  progress.requests = 400;
  progress.blocks_done = 500;
  progress.blocks = 1000;
  progress.hit_ratio = 0.3449;
  progress.bytes_moved = 6'000'000'000;
  progress.seconds = 4;
  return progress;
}

TEST(ProgressBar, ShowsHowFarItIs) {
  const std::string line = draw_progress(half_way(), 80);
  EXPECT_EQ(line, "[##############..............] 123/400  hit 0.345  1.50 GB/s  4 s left");
  EXPECT_EQ(say_progress(half_way()), "123/400 requests, hit ratio 0.345, 1.50 GB/s, 4 s left");
}

TEST(ProgressBar, FitsAnyWidth) {
  for (std::size_t width = 0; width < 200; ++width) {
    EXPECT_LE(draw_progress(half_way(), width).size(), width);
    EXPECT_LE(draw_progress(Progress(), width).size(), width);
  }
}

TEST(ProgressBar, EndsFull) {
  Progress progress = half_way();
  progress.blocks_done = progress.blocks;
  EXPECT_EQ(draw_progress(progress, 80).find('.'), draw_progress(progress, 80).find("0.345") + 1);
  EXPECT_NE(say_progress(progress).find("0 s left"), std::string::npos);
}

TEST(ProgressBar, PlainLinesWithoutATerminal) {
  std::FILE* const out = std::tmpfile();
  ASSERT_NE(out, nullptr);
  {
    ProgressBar bar(out, true);
    const ProgressBar::Time start{std::chrono::hours(1)};
    bar.update(half_way(), start);
    bar.update(half_way(), start + std::chrono::milliseconds(200));
    bar.update(half_way(), bar.next_update());
  }
  std::rewind(out);
  char text[1000] = {};
  const std::size_t size = std::fread(text, 1, sizeof(text), out);
  std::fclose(out);
  const std::string line = say_progress(half_way()) + "\n";
  EXPECT_EQ(std::string(text, size), line + line);
}

}  // namespace
}  // namespace mooncake::demo
