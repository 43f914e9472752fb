// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/fusion_search.h"

#include "maypole/base/rng.h"
#include "maypole/model/status_testing.h"
#include "maypole/overlap/gaussian_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

namespace maypole::overlap {
namespace {

/// A valley in log scale around 8 MB for groups and 1 MB for the first, in the middle of nothing special for the split size.
double valley(const FusionSizes& sizes) {
  const double group = std::log2(sizes.group / 8e6);
  const double first = std::log2(sizes.first_group / 1e6);
  return 0.2 * (1 + 0.02 * group * group + 0.01 * first * first);
}

struct Outcome {
  std::size_t samples = 0;
  double best = 0;  // true value of what the search calls best
};

Outcome search(const char* name, SearchOptions options, double noise) {
  const auto search = make_fusion_search(name, options).value();
  base::Rng rng(options.seed, "noise");
  Outcome outcome;
  while (const std::optional<FusionSizes> sizes = search->ask()) {
    EXPECT_GE(sizes->group, options.smallest * (1 - 1e-9));
    EXPECT_LE(sizes->group, options.largest * (1 + 1e-9));
    search->tell(valley(*sizes) * (1 + noise * rng.uniform(-1, 1)));
    ++outcome.samples;
  }
  outcome.best = valley(search->best());
  return outcome;
}

TEST(FusionSearch, BayesFindsAValleyInNoiseAndEndsByItself) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Outcome outcome = search("bayes", {.most_samples = 60, .seed = seed}, 0.02);
    EXPECT_LT(outcome.best, 0.2 * 1.10) << "seed " << seed;
    EXPECT_LT(outcome.samples, 60u) << "seed " << seed;
  }
}

TEST(FusionSearch, BayesDoesBetterThanRandomWithAsManySamples) {
  double bayes = 0;
  double random = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    bayes += search("bayes", {.most_samples = 15, .seed = seed}, 0.01).best;
    random += search("random", {.most_samples = 15, .seed = seed}, 0.01).best;
  }
  EXPECT_LT(bayes, random);
}

TEST(FusionSearch, TriesTheStartFirst) {
  for (const char* name : {"bayes", "random", "grid"}) {
    const auto search = make_fusion_search(name, {.start = FusionSizes{1e6, 25e6, 100e6}}).value();
    const FusionSizes first = search->ask().value();
    EXPECT_NEAR(first.first_group, 1e6, 1) << name;
    EXPECT_NEAR(first.group, 25e6, 1) << name;
    EXPECT_NEAR(first.split, 100e6, 1) << name;
  }
}

TEST(FusionSearch, AsksTheSameOfEveryRankThatTellsTheSame) {
  for (const char* name : {"bayes", "random", "grid"}) {
    const auto one = make_fusion_search(name, {.seed = 7}).value();
    const auto other = make_fusion_search(name, {.seed = 7}).value();
    for (int i = 0; i < 12; ++i) {
      const auto sizes = one->ask();
      const auto same = other->ask();
      ASSERT_EQ(sizes.has_value(), same.has_value());
      if (!sizes) {
        break;
      }
      ASSERT_EQ(sizes->group, same->group) << name;
      ASSERT_EQ(sizes->first_group, same->first_group) << name;
      one->tell(valley(*sizes));
      other->tell(valley(*sizes));
    }
  }
}

TEST(FusionSearch, GridVisitsEveryPointOnce) {
  const auto search = make_fusion_search("grid", {.joint = false, .most_samples = 100}).value();
  std::set<double> seen;
  std::size_t samples = 0;
  while (const auto sizes = search->ask()) {
    EXPECT_EQ(sizes->group, sizes->first_group);
    seen.insert(sizes->group);
    search->tell(1);
    ++samples;
  }
  EXPECT_EQ(samples, 12u);
  EXPECT_EQ(seen.size(), 12u);
}

TEST(FusionSearch, UnknownNameListsTheNamesThereAre) {
  EXPECT_THAT(make_fusion_search("anneal", {}), model::FailsWith("bayes, random, grid"));
  EXPECT_THAT(make_fusion_search("bayes", {.smallest = 10, .largest = 10}), model::FailsWith("sizes reach from 10 to 10"));
}

TEST(GaussianProcess, GoesThroughItsPointsAndIsUnsureAwayFromThem) {
  const std::vector<CubePoint> points = {{0.1, 0, 0}, {0.3, 0, 0}, {0.5, 0, 0}, {0.7, 0, 0}, {0.9, 0, 0}};
  const std::vector<double> values = {4, 2, 1, 2, 4};  // mean 2.6, spread 1.2
  GaussianProcess process;
  process.fit(points, values);
  for (std::size_t i = 0; i < points.size(); ++i) {
    EXPECT_NEAR(2.6 + 1.2 * process.at(points[i]).mean, values[i], 0.15);
  }
  EXPECT_LT(process.at({0.5, 0, 0}).deviation, process.at({0.5, 1, 1}).deviation + 1e-9);
  EXPECT_LT(process.at({0.5, 0, 0}).deviation, 0.2);
  EXPECT_LT(process.at({0.45, 0, 0}).mean, process.at({0.2, 0, 0}).mean);
}

TEST(GaussianProcess, TakesScatterBetweenEqualPointsForNoise) {
  std::vector<CubePoint> points;
  std::vector<double> values;
  for (int i = 0; i < 10; ++i) {
    points.push_back({0.2, 0.2, 0.2});
    values.push_back(i % 2 == 0 ? 1.0 : 1.4);
    points.push_back({0.8, 0.8, 0.8});
    values.push_back(i % 2 == 0 ? 2.0 : 2.4);
  }
  GaussianProcess process;
  process.fit(points, values);
  EXPECT_GT(process.noise(), 0.15);  // the true one is 0.2 / 0.54
}

}  // namespace
}  // namespace maypole::overlap
