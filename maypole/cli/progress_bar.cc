// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace maypole::cli {

namespace {

constexpr std::chrono::milliseconds kBetweenDrawings{100};
constexpr int kWidth = 30;

}  // namespace

ProgressBar::ProgressBar(std::string what) : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (shown_) {
    fmt::print(stderr, "\r\033[K");
  }
}

void ProgressBar::show(double share, const std::string& detail) {
  const base::TimePoint now = std::chrono::steady_clock::now();
  if (!terminal_ || (shown_ && now - last_ < kBetweenDrawings)) {
    return;
  }
  last_ = now;
  shown_ = true;
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * kWidth);
  fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:3.0f} % {}\033[K", what_, "", full, "", kWidth - full, 100 * std::clamp(share, 0.0, 1.0),
             detail);
  std::fflush(stderr);
}

}  // namespace maypole::cli
