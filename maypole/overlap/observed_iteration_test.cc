// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/observed_iteration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace maypole::overlap {
namespace {

using base::DType;
using ::testing::ElementsAre;

constexpr std::size_t kBlock = 1024;

/// Tensors of 2 blocks each, computed evenly.
PlanRequest request_of(std::size_t tensors, DType last = DType::kFloat32) {
  PlanRequest request{.tensors = std::vector<PlannedTensor>(tensors, {512, DType::kFloat32}), .block_bytes = kBlock, .halved = false};
  request.tensors.back().dtype = last;
  return request;
}

ObservedIteration evenly(std::size_t tensors, double forward_s, double backward_s) {
  ObservedIteration observed;
  for (std::size_t i = 0; i < tensors; ++i) {
    observed.ready_s.push_back(backward_s * static_cast<double>(tensors - i) / static_cast<double>(tensors));
    observed.need_s.push_back(forward_s * static_cast<double>(i) / static_cast<double>(tensors));
  }
  return observed;
}

IterationSetting setting_of(double start_s, double s_per_byte) {
  return {.forward_s = 1,
          .backward_s = 2,
          .update_s = 0,
          .phase = {start_s, s_per_byte},
          .segment_s = 1024 * s_per_byte,
          .contention_s_per_byte = 0,
          .workers = 2};
}

TEST(ObservedIteration, GroupsAreReadyWithTheirLastTensorAndNeededWithTheirFirst) {
  const PlanRequest request = request_of(4);
  const FusionPlan plan = plan_fusion_at(request.tensors, kBlock, {{0, 3}}).value();
  const std::vector<GroupLoad> loads = observed_loads(plan, {{4, 3, 2, 1}, {0, 1, 2, 3}}, false);
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_EQ(loads[0].bytes, 3 * kBlock);
  EXPECT_EQ(loads[0].ready_s, 4);
  EXPECT_EQ(loads[0].need_s, 0);
  EXPECT_EQ(loads[1].bytes, 5 * kBlock);
  EXPECT_EQ(loads[1].ready_s, 3);  // tensor 1 lies in both
  EXPECT_EQ(loads[1].need_s, 1);
}

TEST(ObservedIteration, WhatIsCompressedCountsHalf) {
  const PlanRequest request = request_of(2, DType::kFloat64);
  const FusionPlan plan =
      plan_fusion(request.tensors, {.block_bytes = kBlock, .group_bytes = 1 << 20, .first_group_bytes = 1 << 20}).value();
  const std::vector<GroupLoad> loads = observed_loads(plan, evenly(2, 1, 2), true);
  EXPECT_THAT(loads, ElementsAre(::testing::Field(&GroupLoad::bytes, 1024), ::testing::Field(&GroupLoad::bytes, 4096)));
}

TEST(ObservedIteration, ATensorThatNobodySawUsedGoesWithTheOneBefore) {
  const PlanRequest request = request_of(3);
  const FusionPlan plan = plan_fusion_at(request.tensors, kBlock, {{0, 2, 4}}).value();
  const std::vector<GroupLoad> loads = observed_loads(plan, {{3, 2, 1}, {-1, 0.5, -1}}, false);
  EXPECT_EQ(loads[0].need_s, 0);
  EXPECT_EQ(loads[1].need_s, 0.5);
  EXPECT_EQ(loads[2].need_s, 0.5);
}

TEST(ObservedIteration, AGradientThatComesLateHoldsBackAllThatIsReducedAfterIt) {
  const PlanRequest request = request_of(3);
  const FusionPlan plan = plan_fusion_at(request.tensors, kBlock, {{0, 2, 4}}).value();
  const std::vector<GroupLoad> loads = observed_loads(plan, {{0.5, 2, 1}, {2, 1, 3}}, false);
  EXPECT_EQ(loads[0].ready_s, 2);
  EXPECT_EQ(loads[0].need_s, 1);  // gathered before the one that is needed first
  EXPECT_EQ(loads[2].need_s, 3);
}

TEST(ObservedIteration, ThePlanIsNoWorseThanAnyEvenOneUnderEverySchedule) {
  std::mt19937 random(7);
  for (const char* name : {"sync", "wfbp", "dear", "weave"}) {
    const auto schedule = make_schedule(name).value();
    for (const DType last : {DType::kFloat32, DType::kFloat64}) {
      for (int round = 0; round < 5; ++round) {
        const std::size_t tensors = 5 + random() % 20;
        const PlanRequest request = request_of(tensors, last);
        const ObservedIteration observed = evenly(tensors, 1, 2);
        const double bytes = 2048.0 * static_cast<double>(tensors);
        const IterationSetting setting =
            setting_of(0.01 * static_cast<double>(random() % 20), (0.5 + static_cast<double>(random() % 4)) / bytes);
        const FusionPlan plan = plan_observed(request, observed, setting, *schedule).value();
        const double planned_s = simulate(*schedule, observed_loads(plan, observed, false), setting).iteration_s;
        for (std::size_t size = kBlock; size < 64 * kBlock; size *= 2) {
          const FusionPlan even =
              plan_fusion(request.tensors, {.block_bytes = kBlock, .group_bytes = size, .first_group_bytes = kBlock}).value();
          const double tolerance = schedule->name() == "weave" ? 1.02 : 1.0001;  // a search, or exact
          EXPECT_LE(planned_s, simulate(*schedule, observed_loads(even, observed, false), setting).iteration_s * tolerance)
              << name << ", groups of " << size;
        }
      }
    }
  }
}

TEST(ObservedIteration, CutsOfAPlanGiveThePlanAgain) {
  const PlanRequest request = request_of(9, DType::kBFloat16);
  const FusionPlan plan =
      plan_fusion(request.tensors, {.block_bytes = kBlock, .group_bytes = 3 * kBlock, .first_group_bytes = kBlock}).value();
  const FusionPlan again = plan_fusion_at(request.tensors, kBlock, cuts_of(plan)).value();
  ASSERT_EQ(again.groups.size(), plan.groups.size());
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    EXPECT_EQ(again.groups[g].range, plan.groups[g].range);
    EXPECT_EQ(again.groups[g].arena, plan.groups[g].arena);
    EXPECT_EQ(again.groups[g].tensors, plan.groups[g].tensors);
  }
}

}  // namespace
}  // namespace maypole::overlap
