// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/iteration_simulator.h"
#include "maypole/base/test_seed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace maypole::overlap {
namespace {

using ::testing::DoubleNear;

constexpr double kTiny = 1e-9;

/// Layers with one group each, drawn at random; group g is used by layer g.
struct Case {
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<GroupLoad> groups;
  IterationSetting setting;
};

Case random_case(std::mt19937& random) {
  const auto uniform = [&](double high) { return std::uniform_real_distribution<double>(0, high)(random); };
  Case result;
  const std::size_t layers = 1 + random() % 9;
  for (std::size_t l = 0; l < layers; ++l) {
    result.forward.push_back(uniform(1));
    result.backward.push_back(uniform(2));
  }
  double before = 0;
  double after = 0;
  result.groups.resize(layers);
  for (std::size_t l = 0; l < layers; ++l) {
    result.groups[l].need_s = before;
    before += result.forward[l];
  }
  for (std::size_t l = layers; l-- > 0;) {
    after += result.backward[l];
    result.groups[l].ready_s = after;
    result.groups[l].bytes = uniform(3);
  }
  result.setting.forward_s = before;
  result.setting.backward_s = after;
  result.setting.phase = {uniform(0.2), uniform(1)};
  result.setting.workers = 4;
  return result;
}

SimulatedIteration run(const char* schedule, const Case& c) { return simulate(*make_schedule(schedule).value(), c.groups, c.setting); }

// The recurrences that a link obeys which serves first what came first, layer by layer.

double wfbp_recurrence(const Case& c) {
  double end = 0;
  for (std::size_t l = c.groups.size(); l-- > 0;) {
    end = std::max(end, c.groups[l].ready_s) + 2 * c.setting.phase(c.groups[l].bytes);
  }
  return c.setting.forward_s + std::max(c.setting.backward_s, end);
}

double dear_recurrence(const Case& c) {
  double reduced = 0;
  for (std::size_t l = c.groups.size(); l-- > 0;) {
    reduced = std::max(reduced, c.groups[l].ready_s) + c.setting.phase(c.groups[l].bytes);
  }
  double gathered = 0;
  double end = 0;
  for (std::size_t l = 0; l < c.groups.size(); ++l) {
    gathered += c.setting.phase(c.groups[l].bytes);
    end = std::max(end, gathered) + c.forward[l];
  }
  return std::max(c.setting.backward_s, reduced) + end;
}

class RandomIterations : public ::testing::Test {
 protected:
  template <typename Check>
  void check(const Check& each) {
    const auto seed = base::test_seed();
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    for (int trial = 0; trial < 500 && !HasFailure(); ++trial) {
      each(random_case(random), random);
    }
  }
};

TEST_F(RandomIterations, FollowTheRecurrencesOfWfbpAndDear) {
  check([](const Case& c, std::mt19937&) {
    EXPECT_THAT(run("wfbp", c).iteration_s, DoubleNear(wfbp_recurrence(c), kTiny));
    EXPECT_THAT(run("dear", c).iteration_s, DoubleNear(dear_recurrence(c), kTiny));
  });
}

TEST_F(RandomIterations, OfSyncOverlapNothing) {
  check([](const Case& c, std::mt19937&) {
    const SimulatedIteration iteration = run("sync", c);
    EXPECT_THAT(iteration.iteration_s, DoubleNear(c.setting.forward_s + c.setting.backward_s + iteration.communication_s, kTiny));
    EXPECT_THAT(iteration.exposed_s, DoubleNear(iteration.communication_s, kTiny));
  });
}

TEST_F(RandomIterations, OfWeaveAreBehindDearByOneSegmentAtMostAndNeverBeatTheBound) {
  check([](Case c, std::mt19937& random) {
    c.setting.segment_s = std::uniform_real_distribution<double>(0, 0.3)(random);
    const double weave = run("weave", c).iteration_s;
    EXPECT_LE(weave, run("dear", c).iteration_s + c.setting.segment_s + kTiny);
    for (const char* schedule : {"sync", "wfbp", "dear", "weave"}) {
      EXPECT_GE(run(schedule, c).iteration_s, run(schedule, c).bound_s - kTiny) << schedule;
    }
  });
}

TEST_F(RandomIterations, AddUpToComputeAndExposedTime) {
  check([](Case c, std::mt19937& random) {
    c.setting.segment_s = random() % 2 == 0 ? 0 : 0.05;
    for (const char* schedule : {"sync", "wfbp", "dear", "weave"}) {
      const SimulatedIteration iteration = run(schedule, c);
      EXPECT_THAT(iteration.iteration_s, DoubleNear(c.setting.forward_s + c.setting.backward_s + iteration.exposed_s, kTiny)) << schedule;
      EXPECT_THAT(iteration.reduce_scatter_s + iteration.all_gather_s, DoubleNear(iteration.communication_s, kTiny)) << schedule;
      double exposed = 0;
      for (const SimulatedGroup& group : iteration.groups) {
        EXPECT_THAT(group.reduce_scatter_s, DoubleNear(c.setting.phase(group.bytes), kTiny));
        EXPECT_THAT(group.all_gather_s, DoubleNear(c.setting.phase(group.bytes), kTiny));
        exposed += group.exposed_s;
      }
      EXPECT_THAT(exposed, DoubleNear(iteration.exposed_s, kTiny)) << schedule;
    }
  });
}

TEST_F(RandomIterations, TimelineNeverHasTwoTransfersAtOnceNorComputesWhileItWaits) {
  check([](Case c, std::mt19937& random) {
    c.setting.record = true;
    c.setting.update_s = 0.3;
    c.setting.contention_s_per_byte = 0.2;
    c.setting.segment_s = random() % 2 == 0 ? 0 : 0.1;
    for (const char* schedule : {"sync", "wfbp", "dear", "weave"}) {
      const SimulatedIteration iteration = run(schedule, c);
      std::vector<Span> link;
      std::vector<Span> thread;
      for (const Span& span : iteration.timeline) {
        if (span.lane == Lane::kReduceScatter || span.lane == Lane::kAllGather) {
          link.push_back(span);
        } else if (span.lane == Lane::kCompute || span.lane == Lane::kWait) {
          thread.push_back(span);
        }
      }
      for (std::vector<Span>* spans : {&link, &thread}) {
        std::ranges::sort(*spans, {}, &Span::begin_s);
        for (std::size_t i = 1; i < spans->size(); ++i) {
          EXPECT_GE((*spans)[i].begin_s, (*spans)[i - 1].end_s - kTiny) << schedule;
        }
      }
    }
  });
}

TEST_F(RandomIterations, OfShardedUpdatesGatherNothingBeforeStep) {
  check([](Case c, std::mt19937&) {
    c.setting.update = UpdateMode::kSharded;
    c.setting.record = true;
    c.setting.update_s = 0.5;
    for (const char* schedule : {"dear", "weave"}) {
      const SimulatedIteration iteration = run(schedule, c);
      for (const Span& span : iteration.timeline) {
        if (span.lane == Lane::kAllGather) {
          EXPECT_GE(span.begin_s, iteration.step_s - kTiny);
        }
      }
    }
  });
}

/// One layer that computes 2 s forward and 4 s backward; phases of 1 s and a byte.
Case one_layer(double bytes) {
  Case c;
  c.forward = {2};
  c.backward = {4};
  c.groups = {{.bytes = bytes, .ready_s = 4, .need_s = 0}};
  c.setting = {.forward_s = 2, .backward_s = 4, .phase = {0, 1}, .workers = 2};
  return c;
}

TEST(IterationSimulator, OfOneLayerHidesNothing) {
  for (const char* schedule : {"sync", "wfbp", "dear", "weave"}) {
    const SimulatedIteration iteration = run(schedule, one_layer(3));
    EXPECT_DOUBLE_EQ(iteration.iteration_s, 12) << schedule;
    EXPECT_DOUBLE_EQ(iteration.exposed_s, 6) << schedule;
    EXPECT_DOUBLE_EQ(iteration.bound_s, 6) << schedule;
  }
}

TEST(IterationSimulator, ReplicatedUpdatesPayInFullAndShardedOnesTheirShare) {
  Case c = one_layer(3);
  c.setting.update_s = 1;
  EXPECT_DOUBLE_EQ(run("wfbp", c).iteration_s, 13);
  EXPECT_DOUBLE_EQ(run("weave", c).iteration_s, 13);
  c.setting.update = UpdateMode::kSharded;
  EXPECT_DOUBLE_EQ(run("weave", c).iteration_s, 12.5);
}

TEST(IterationSimulator, ContentionSlowsComputeOnlyWhileTheLinkIsBusy) {
  Case c = one_layer(3);
  // A second group, ready after 2 s of backward and needed last: its RS of 1 s runs beside backward.
  c.groups.push_back({.bytes = 1, .ready_s = 2, .need_s = 2});
  EXPECT_DOUBLE_EQ(run("weave", c).step_s, 4);
  c.setting.contention_s_per_byte = 2;  // a worker of two sends half the bytes
  // RS and AG of the second group take 2 s beside 1 s worth of backward.
  EXPECT_DOUBLE_EQ(run("weave", c).step_s, 5);
  EXPECT_DOUBLE_EQ(run("sync", c).step_s, 4 + 8);
}

TEST(IterationSimulator, ReduceScatterWaitsForTheSegmentOnTheWireAndNoLonger) {
  Case c;
  c.setting = {.forward_s = 10, .backward_s = 5.25, .phase = {0, 1}, .segment_s = 0.5, .workers = 2, .record = true};
  c.groups = {{.bytes = 1, .ready_s = 5.25, .need_s = 0}, {.bytes = 4, .ready_s = 1, .need_s = 9}};
  std::vector<Span> reduces;
  for (const Span& span : run("weave", c).timeline) {
    if (span.lane == Lane::kReduceScatter) {
      reduces.push_back(span);
    }
  }
  ASSERT_EQ(reduces.size(), 2u);
  // The AG of group 1 began at 5; its first segment ends at 5.5.
  EXPECT_DOUBLE_EQ(reduces[1].begin_s, 5.5);
}

TEST(IterationSimulator, AWorldOfOneComputesOnly) {
  Case c = one_layer(3);
  c.setting.phase = {};
  for (const char* schedule : {"sync", "wfbp", "dear", "weave"}) {
    EXPECT_DOUBLE_EQ(run(schedule, c).iteration_s, 6) << schedule;
  }
}

TEST(IterationSimulator, ModelWithoutTensorsComputesOnly) {
  Case c = one_layer(3);
  c.groups.clear();
  for (const char* schedule : {"sync", "wfbp", "dear", "weave"}) {
    EXPECT_DOUBLE_EQ(run(schedule, c).iteration_s, 6) << schedule;
  }
}

TEST(IterationSimulator, TakesGroupsFromAPlanByTheLayerOfTheirFirstTensor) {
  model::Profile profile;
  profile.layers = {{"a", {1, 0}, {10, 0}}, {"b", {2, 0}, {20, 0}}, {"c", {4, 0}, {40, 0}}};
  profile.tensors = {{"a", 0, 16}, {"b", 1, 16}, {"c", 2, 32}};
  const FusionPlan plan = plan_fusion(planned_tensors(profile), {.block_bytes = 64, .group_bytes = 128, .first_group_bytes = 64}).value();
  const std::vector<GroupLoad> loads = group_loads(profile, plan);
  ASSERT_EQ(loads.size(), 3u);
  EXPECT_EQ(loads[0].ready_s, 70);
  EXPECT_EQ(loads[0].need_s, 0);
  EXPECT_EQ(loads[1].bytes, 128);  // b and half of c
  EXPECT_EQ(loads[1].ready_s, 60);
  EXPECT_EQ(loads[1].need_s, 1);
  EXPECT_EQ(loads[2].ready_s, 40);
  EXPECT_EQ(loads[2].need_s, 3);
}

}  // namespace
}  // namespace maypole::overlap
