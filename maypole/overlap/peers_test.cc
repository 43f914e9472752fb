// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/peers.h"

#include "maypole/overlap/paper_models.h"
#include "maypole/overlap/plan_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace maypole::overlap {
namespace {

/// Layers of 1 s forward and 2 s backward, one tensor each of the given numbers of float32 elements (16 fill an alignment).
model::Profile layers_of(const std::vector<std::size_t>& elements) {
  model::Profile profile;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    profile.layers.push_back({"layer" + std::to_string(i), {1, 0}, {2, 0}});
    profile.tensors.push_back({"tensor" + std::to_string(i), i, elements[i], base::DType::kFloat32});
  }
  return profile;
}

std::vector<std::size_t> group_bytes(const FusionPlan& plan) {
  std::vector<std::size_t> bytes;
  for (const Group& group : plan.groups) {
    bytes.push_back(group.range.size() * 4);
  }
  return bytes;
}

TEST(MgWfbp, MergesWhatBecomesReadyBeforeTheLinkIsFreeOrSavesAStartUp) {
  const model::Profile profile = layers_of({16, 16, 16});  // ready at 6, 4 and 2 s
  // An all-reduce takes 2 (0.1 + 0.5) s: the last tensor is sent before the one before it is ready.
  EXPECT_THAT(group_bytes(plan_mg_wfbp(profile, {.phase = {0.1, 0.5 / 64}})), ::testing::ElementsAre(64, 64, 64));
  // A start-up of 4 s is worth more than a wait of 2 s.
  EXPECT_THAT(group_bytes(plan_mg_wfbp(profile, {.phase = {2, 0}})), ::testing::ElementsAre(192));
  EXPECT_THAT(group_bytes(plan_mg_wfbp(profile, {.phase = {0.1, 0.5 / 64}, .always_below_elements = 17})), ::testing::ElementsAre(192));
}

TEST(MgWfbp, IsNeverBelowTheBestPlanOfWfbp) {
  for (const std::string& name : paper_model_names()) {
    const model::Profile profile = paper_profile(name).value();
    for (const char* link : {"paper-10GbE", "paper-100GbIB"}) {
      const IterationSetting setting = setting_of(profile, named_network(link).value(), 64);
      const auto wfbp = make_schedule("wfbp").value();
      const CutLine line(tensor_parts(profile, 1e12));  // as fine as tensors, without the gaps between them
      const double best = simulate(*wfbp, line.loads(best_wfbp_cuts(line, setting)), setting).iteration_s;
      const double merged = simulate(*wfbp, group_loads(profile, plan_mg_wfbp(profile, {.phase = setting.phase})), setting).iteration_s;
      EXPECT_GE(merged, best * (1 - 1e-6)) << name << " " << link;
    }
  }
}

TEST(Horovod, FusesWhatBecameReadyInACycleUpToTheBuffer) {
  const model::Profile profile = layers_of({16, 16, 16, 16});  // ready at 8, 6, 4 and 2 s
  const std::vector<GroupLoad> groups = horovod_groups(profile, {.fusion_bytes = 1e9, .cycle_s = 5, .negotiation_s = 0.25});
  ASSERT_EQ(groups.size(), 2u);  // at 10 s and at 5 s
  EXPECT_EQ(groups[0].bytes, 128);
  EXPECT_DOUBLE_EQ(groups[0].ready_s + groups[0].ready_delay_s, 10.25);
  EXPECT_DOUBLE_EQ(groups[1].ready_s + groups[1].ready_delay_s, 5.25);
  EXPECT_EQ(horovod_groups(profile, {.fusion_bytes = 64, .cycle_s = 5}).size(), 4u);
}

TEST(Horovod, GroupsAreSentAfterTheirTick) {
  const model::Profile profile = layers_of({16, 16});  // ready at 4 and 2 s
  const std::vector<GroupLoad> groups = horovod_groups(profile, {.fusion_bytes = 1e9, .cycle_s = 3});
  IterationSetting setting{.forward_s = 2, .backward_s = 4, .phase = {0.5, 0}, .workers = 2};
  // Ticks at 3 and 6 s, a second for each: forward begins at 7 s.
  EXPECT_DOUBLE_EQ(simulate(*make_schedule("wfbp").value(), groups, setting).iteration_s, 9);
}

TEST(Priority, SendsWhatForwardNeedsFirstOnePartAtATime) {
  const model::Profile profile = layers_of({16, 16, 16});  // ready at 6, 4 and 2 s; needed at 0, 1 and 2 s
  IterationSetting setting{.forward_s = 3, .backward_s = 6, .phase = {1.5, 0}, .workers = 2, .record = true};
  const SimulatedIteration iteration = simulate(*make_priority_schedule(), tensor_parts(profile, 64), setting);
  std::vector<int> order;
  for (const Span& span : iteration.timeline) {
    if (span.lane == Lane::kReduceScatter) {
      order.push_back(span.group);
    }
  }
  // The last one is sent from 2 to 5 s, the middle one from 5 to 8 s; the first one then delays nothing but itself.
  EXPECT_THAT(order, ::testing::ElementsAre(2, 1, 0));
  EXPECT_DOUBLE_EQ(iteration.iteration_s, 11 + 3);
  setting.phase = {4, 0};
  order.clear();
  for (const Span& span : simulate(*make_priority_schedule(), tensor_parts(profile, 64), setting).timeline) {
    if (span.lane == Lane::kReduceScatter) {
      order.push_back(span.group);
    }
  }
  EXPECT_THAT(order, ::testing::ElementsAre(2, 0, 1));
}

TEST(Priority, CutsLargeTensorsIntoParts) {
  const std::vector<GroupLoad> parts = tensor_parts(layers_of({16, 40}), 64);
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_DOUBLE_EQ(parts[1].bytes, 160.0 / 3);
  EXPECT_EQ(parts[3].need_s, 1);
}

}  // namespace
}  // namespace maypole::overlap
