// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/fusion_tuner.h"

#include "maypole/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace maypole::pipeline {
namespace {

constexpr overlap::FusionOptions kBadStart{.block_bytes = 256 << 10, .group_bytes = 64 << 20, .first_group_bytes = 64 << 20};

/// An iteration that is best with groups of 2 MiB.
double iteration_s(const overlap::FusionOptions& fusion) {
  const double off = std::log2(static_cast<double>(fusion.group_bytes) / (2 << 20));
  return 0.1 * (1 + 0.05 * off * off);
}

TEST(FusionTuner, SettlesThenFillsAWindowAndTakesItsMedian) {
  FusionTuner tuner = FusionTuner::make("bayes", kBadStart, 64 << 20).value();
  EXPECT_FALSE(tuner.iteration(100));
  EXPECT_FALSE(tuner.iteration(100));
  for (const double seconds : {5.0, 1.0, 4.0, 2.0}) {
    EXPECT_FALSE(tuner.iteration(seconds));
  }
  EXPECT_TRUE(tuner.iteration(3));
  EXPECT_EQ(tuner.window_s(), 3);
}

TEST(FusionTuner, EndsByItselfWithinSixtyIterationsBetterThanItBegan) {
  for (const char* search : {"bayes", "random", "grid"}) {
    FusionTuner tuner = FusionTuner::make(search, kBadStart, 64 << 20).value();
    overlap::FusionOptions fusion = kBadStart;
    int iterations = 0;
    while (!tuner.ended()) {
      ++iterations;
      if (tuner.iteration(iteration_s(fusion))) {
        if (const auto next = tuner.decide(tuner.window_s())) {
          fusion = *next;
        }
      }
    }
    EXPECT_LE(iterations, 60) << search;
    EXPECT_LT(iteration_s(fusion), iteration_s(kBadStart)) << search;
    EXPECT_EQ(fusion.block_bytes, kBadStart.block_bytes);
    EXPECT_FALSE(tuner.iteration(1));  // it has nothing more to ask
  }
}

TEST(FusionTuner, RanksThatAreToldTheSameAskForTheSame) {
  FusionTuner one = FusionTuner::make("bayes", kBadStart, 64 << 20).value();
  FusionTuner other = FusionTuner::make("bayes", kBadStart, 64 << 20).value();
  for (int sample = 0; sample < 5; ++sample) {
    for (std::size_t k = 0; k < FusionTuner::kSettling + FusionTuner::kWindow; ++k) {
      (void)one.iteration(1.0 + sample);
      (void)other.iteration(2.0);  // its own times do not matter, the average does
    }
    const auto sizes = one.decide(1.5 + 0.1 * sample);
    const auto others = other.decide(1.5 + 0.1 * sample);
    ASSERT_TRUE(sizes && others);
    EXPECT_EQ(sizes->group_bytes, others->group_bytes);
    EXPECT_EQ(sizes->first_group_bytes, others->first_group_bytes);
    EXPECT_EQ(sizes->split_bytes, others->split_bytes);
  }
}

TEST(FusionTuner, AnUnknownSearchIsAnErrorThatListsTheOthers) {
  EXPECT_THAT(base::message(FusionTuner::make("guess", kBadStart, 1).status()), ::testing::HasSubstr("bayes"));
}

}  // namespace
}  // namespace maypole::pipeline
