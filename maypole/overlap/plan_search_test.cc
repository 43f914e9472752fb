// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/plan_search.h"

#include "maypole/base/test_seed.h"
#include "maypole/model/status_testing.h"
#include "maypole/overlap/network_model.h"
#include "maypole/overlap/paper_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace maypole::overlap {
namespace {

struct Case {
  std::vector<GroupLoad> blocks;
  IterationSetting setting;
};

/// Up to `most` blocks of random sizes; some of the same layer, as the blocks of a large tensor are.
Case random_case(std::mt19937& random, std::size_t most) {
  const auto uniform = [&](double high) { return std::uniform_real_distribution<double>(0, high)(random); };
  Case result;
  const std::size_t blocks = 1 + random() % most;
  std::vector<double> forward(blocks);
  std::vector<double> backward(blocks);
  for (std::size_t b = 0; b < blocks; ++b) {
    const bool same_layer = b > 0 && random() % 4 == 0;
    forward[b] = same_layer ? 0 : uniform(1);
    backward[b] = same_layer ? 0 : uniform(2);
    result.setting.forward_s += forward[b];
    result.setting.backward_s += backward[b];
  }
  double before_forward = 0;
  double before_backward = 0;
  result.blocks.resize(blocks);
  for (std::size_t b = 0; b < blocks; ++b) {
    // A block of the same layer as the one before is used, and ready, with it.
    const bool same_layer = b > 0 && forward[b] == 0;
    result.blocks[b] =
        same_layer ? result.blocks[b - 1] : GroupLoad{.ready_s = result.setting.backward_s - before_backward, .need_s = before_forward};
    result.blocks[b].bytes = uniform(2);
    before_forward += forward[b];
    before_backward += backward[b];
  }
  result.setting.phase = {uniform(0.5), uniform(1)};
  result.setting.workers = 8;
  return result;
}

double iteration(const CutLine& line, const Case& c, const char* schedule, const Cuts& cuts) {
  return simulate(*make_schedule(schedule).value(), line.loads(cuts), c.setting).iteration_s;
}

/// The best of all ways to cut, each in the simulator.
double brute_force(const CutLine& line, const Case& c, const char* schedule) {
  double best = std::numeric_limits<double>::infinity();
  for (unsigned mask = 0; mask < 1U << (line.num_blocks() - 1); ++mask) {
    Cuts cuts = {0};
    for (std::size_t b = 1; b < line.num_blocks(); ++b) {
      if ((mask >> (b - 1) & 1U) != 0) {
        cuts.push_back(b);
      }
    }
    best = std::min(best, iteration(line, c, schedule, cuts));
  }
  return best;
}

TEST(PlanSearch, IsExactForWfbpAndDearAgainstBruteForce) {
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 60; ++trial) {
    const Case c = random_case(random, 12);
    const CutLine line(c.blocks);
    for (const char* schedule : {"wfbp", "dear"}) {
      const double best = brute_force(line, c, schedule);
      const double found = iteration(line, c, schedule, best_cuts(line, c.setting, *make_schedule(schedule).value()));
      ASSERT_NEAR(found, best, 1e-6 * best) << schedule << ", trial " << trial;
    }
  }
}

TEST(PlanSearch, ForWeaveIsWithinOnePercentOfBruteForceInTheMedian) {
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::vector<double> gaps;
  for (int trial = 0; trial < 41; ++trial) {
    const Case c = random_case(random, 12);
    const CutLine line(c.blocks);
    const double best = brute_force(line, c, "weave");
    gaps.push_back(iteration(line, c, "weave", best_cuts(line, c.setting, *make_schedule("weave").value())) / best - 1);
    EXPECT_GE(gaps.back(), -1e-9);
  }
  std::ranges::sort(gaps);
  EXPECT_LE(gaps[gaps.size() / 2], 0.01);
  RecordProperty("median_gap_percent", std::to_string(100 * gaps[gaps.size() / 2]));
  RecordProperty("largest_gap_percent", std::to_string(100 * gaps.back()));
}

TEST(PlanSearch, OfAModelUsesCutsThatItsFusionPlanHas) {
  const model::Profile profile = paper_profile("resnet50").value();
  const Network network = named_network("paper-10GbE").value();
  const IterationSetting setting = setting_of(profile, network, 64);
  const CutLine line = CutLine::make(profile, 256 << 10).value();
  for (const char* name : {"wfbp", "dear", "weave"}) {
    const auto schedule = make_schedule(name).value();
    const Cuts cuts = best_cuts(line, setting, *schedule);
    const FusionPlan plan = plan_fusion_at(planned_tensors(profile), 256 << 10, {cuts}).value();
    EXPECT_EQ(plan.groups.size(), cuts.size());
    EXPECT_NEAR(simulate(profile, network, 64, *schedule, plan).iteration_s, simulate(*schedule, line.loads(cuts), setting).iteration_s,
                1e-12)
        << name;
  }
}

TEST(PlanSearch, NeedsOneDtype) {
  model::Profile profile;
  profile.layers = {{"a", {1, 0}, {1, 0}}};
  profile.tensors = {{"a", 0, 10, base::DType::kFloat32}, {"b", 0, 10, base::DType::kBFloat16}};
  EXPECT_THAT(CutLine::make(profile, 64), model::FailsWith("the tensors have 2 dtypes"));
}

TEST(PlanSearch, OfNothingIsNothing) {
  const CutLine line(std::vector<GroupLoad>{});
  for (const char* name : {"sync", "wfbp", "dear", "weave"}) {
    EXPECT_TRUE(best_cuts(line, {}, *make_schedule(name).value()).empty()) << name;
  }
}

TEST(CutLine, FindsTheFurthestBlockThatBytesReach) {
  const CutLine line(std::vector<GroupLoad>{{.bytes = 2}, {.bytes = 3}, {.bytes = 5}});
  EXPECT_EQ(line.furthest(0, 1), 0u);
  EXPECT_EQ(line.furthest(0, 5), 2u);
  EXPECT_EQ(line.furthest(1, 9), 2u);
  EXPECT_EQ(line.furthest(0, 100), 3u);
  EXPECT_EQ(line.even_cuts(2, 8), (Cuts{0, 1}));
  EXPECT_EQ(line.even_cuts(1, 1), (Cuts{0, 1, 2}));
}

}  // namespace
}  // namespace maypole::overlap
