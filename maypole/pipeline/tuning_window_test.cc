// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/tuning_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::pipeline {
namespace {

using ::testing::ElementsAre;

TunedIteration iteration(double seconds) {
  return {.iteration_s = seconds, .exposed_s = seconds / 2, .backward_s = seconds / 4, .busy_s = seconds / 8, .update_s = 0};
}

/// The sum that an all-reduce would give.
std::vector<double> sum(const std::vector<TuningWindow>& windows) {
  std::vector<double> total;
  for (const TuningWindow& window : windows) {
    const std::vector<double> packed = window.pack();
    total.resize(packed.size());
    for (std::size_t i = 0; i < packed.size(); ++i) {
      total[i] += packed[i];
    }
  }
  return total;
}

TEST(TuningWindow, SettlesThenFillsAndTakesMedians) {
  TuningWindow window(1, 1, 0);
  window.begin(2, 5, false);
  EXPECT_FALSE(window.add(iteration(100)));
  EXPECT_FALSE(window.add(iteration(100)));
  for (const double seconds : {5.0, 1.0, 4.0, 2.0}) {
    EXPECT_FALSE(window.add(iteration(seconds)));
  }
  EXPECT_TRUE(window.add(iteration(3)));
  const TuningWindow::Seen seen = window.unpack(window.pack());
  ASSERT_EQ(seen.ranks.size(), 1u);
  EXPECT_EQ(seen.ranks[0].iteration_s, 3);
  EXPECT_EQ(seen.ranks[0].exposed_s, 1.5);
  EXPECT_EQ(seen.ranks[0].busy_s, 0.375);
  EXPECT_TRUE(seen.tensors.ready_s.empty());
}

TEST(TuningWindow, EveryRankKeepsItsOwnFiguresAndTensorsAreAveragedOverThoseThatSawThem) {
  std::vector<TuningWindow> windows = {{3, 2, 0}, {3, 2, 1}};
  for (std::size_t r = 0; r < 2; ++r) {
    windows[r].begin(1, 1, true);
    windows[r].note_ready(0, 99);  // while it settles
    EXPECT_FALSE(windows[r].add(iteration(9)));
    windows[r].note_ready(0, 1.0 + static_cast<double>(r));
    windows[r].note_need(1, 3);
    windows[r].note_need(1, 4);  // not the first use
    if (r == 1) {
      windows[r].note_ready(2, 7);  // rank 0 has no gradient for it
    }
    EXPECT_TRUE(windows[r].add(iteration(1.0 + static_cast<double>(r))));
  }
  const TuningWindow::Seen seen = windows[0].unpack(sum(windows));
  EXPECT_EQ(seen.ranks[0].iteration_s, 1);
  EXPECT_EQ(seen.ranks[1].iteration_s, 2);
  EXPECT_THAT(seen.tensors.ready_s, ElementsAre(1.5, 0, 7));
  EXPECT_THAT(seen.tensors.need_s, ElementsAre(-1, 3, -1));
}

}  // namespace
}  // namespace maypole::pipeline
