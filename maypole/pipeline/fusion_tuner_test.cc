// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/fusion_tuner.h"

#include "maypole/base/status.h"
#include "maypole/overlap/iteration_simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace maypole::pipeline {
namespace {

using overlap::FusionPlan;
using ::testing::HasSubstr;

constexpr std::size_t kBlock = 64 << 10;
constexpr std::size_t kTensors = 40;

overlap::PlanRequest model_of(std::size_t tensors = kTensors) {
  return {
      .tensors = std::vector<overlap::PlannedTensor>(tensors, {64 << 10, base::DType::kFloat32}), .block_bytes = kBlock, .halved = false};
}

/// What training is like on a made-up machine: the iteration simulator, which the tuner does not see.
struct World {
  int ranks = 3;
  std::string schedule = "weave";
  double forward_s = 0.05;
  double backward_s = 0.1;
  double start_s = 0.4e-3;
  double s_per_byte = 6e-9;  // 10.5 MB: 63 ms a phase
  double noise = 0;          // of an iteration, as a share
  double slowest = 1;        // how much more the last rank computes
  std::mt19937 random{1};

  [[nodiscard]] overlap::ObservedIteration tensors() const {
    overlap::ObservedIteration observed;
    for (std::size_t i = 0; i < kTensors; ++i) {
      const double at = static_cast<double>(i) / kTensors;
      observed.ready_s.push_back(backward_s * (1 - at));
      observed.need_s.push_back(forward_s * at);
    }
    return observed;
  }
  [[nodiscard]] overlap::SimulatedIteration run(const FusionPlan& plan) const {
    const overlap::IterationSetting setting{.forward_s = forward_s * slowest,
                                            .backward_s = backward_s * slowest,
                                            .update_s = 0,
                                            .phase = {start_s, s_per_byte},
                                            .segment_s = 1e-3,
                                            .contention_s_per_byte = 0,
                                            .workers = static_cast<std::size_t>(ranks)};
    return overlap::simulate(*overlap::make_schedule(schedule).value(), overlap::observed_loads(plan, tensors(), false), setting);
  }
};

FusionPlan even(std::size_t bytes, std::size_t tensors = kTensors) {
  return overlap::plan_fusion(model_of(tensors).tensors, {.block_bytes = kBlock, .group_bytes = bytes, .first_group_bytes = bytes}).value();
}

/// All ranks' tuners, and the groups that they train with.
struct Job {
  Job(const World& world, const std::string& search, FusionPlan start, TunedFor tuned_for = {}) : plan(std::move(start)) {
    for (int r = 0; r < world.ranks; ++r) {
      tuners.push_back(FusionTuner::make({.search = search,
                                          .model = model_of(),
                                          .start = plan,
                                          .tuned_for = tuned_for,
                                          .schedule = world.schedule,
                                          .start_s = 0.3e-3,
                                          .num_ranks = world.ranks,
                                          .rank = r})
                           .value());
    }
  }

  /// Trains for some iterations; all ranks must come to the same groups.
  void train(World& world, int iterations) {
    for (int k = 0; k < iterations; ++k) {
      const overlap::SimulatedIteration one = world.run(plan);
      const overlap::ObservedIteration tensors = world.tensors();
      std::vector<double> sums;
      std::size_t full = 0;
      const double factor = 1 + world.noise * std::normal_distribution<double>()(world.random);
      for (std::size_t r = 0; r < tuners.size(); ++r) {
        const double computing = r + 1 == tuners.size() ? world.slowest : 1.0;
        for (std::size_t i = 0; i < kTensors && tuners[r].window().observing(); ++i) {
          tuners[r].window().note_ready(i, tensors.ready_s[i] * computing);
          tuners[r].window().note_need(i, tensors.need_s[i] * computing);
        }
        const double iteration_s = one.iteration_s * factor * (1 + 1e-3 * static_cast<double>(r));  // clocks differ
        const double compute_s = (world.forward_s + world.backward_s) * computing;
        if (tuners[r].iteration({.iteration_s = iteration_s,
                                 .exposed_s = iteration_s - compute_s,
                                 .backward_s = world.backward_s * computing,
                                 .busy_s = std::min(one.communication_s, iteration_s),
                                 .update_s = 0})) {
          ++full;
          const std::vector<double> packed = tuners[r].pack();
          sums.resize(packed.size());
          for (std::size_t i = 0; i < packed.size(); ++i) {
            sums[i] += packed[i];
          }
        }
      }
      ASSERT_TRUE(full == 0 || full == tuners.size());
      if (full == 0) {
        continue;
      }
      ++decisions;
      const std::vector<std::byte> order = tuners[0].decide(sums);
      std::optional<FusionPlan> next;
      for (FusionTuner& tuner : tuners) {
        next = tuner.follow(order).value();
        EXPECT_EQ(tuner.report().cuts, tuners[0].report().cuts);
        EXPECT_EQ(tuner.ended(), tuners[0].ended());
      }
      if (next) {
        plan = *std::move(next);
        changed_at = k;
        ++changes;
      }
    }
  }

  std::vector<FusionTuner> tuners;
  FusionPlan plan;
  int decisions = 0, changes = 0, changed_at = -1;
};

TEST(FusionTuner, AutoEndsWithinSixtyIterationsNearTheBestOfAGridFromBadStarts) {
  for (const char* schedule : {"wfbp", "dear", "weave"}) {
    for (const double s_per_byte : {2e-9, 6e-9, 20e-9}) {
      World world{.schedule = schedule, .s_per_byte = s_per_byte, .noise = 0.01};
      double best_s = 1e9;
      for (std::size_t bytes = kBlock; bytes <= 32 << 20; bytes *= 2) {
        best_s = std::min(best_s, world.run(even(bytes)).iteration_s);
      }
      for (const std::size_t start : {kBlock, std::size_t{32} << 20}) {
        Job job(world, "auto", even(start));
        job.train(world, 200);
        EXPECT_EQ(job.tuners[0].report().settled, 1u) << job.tuners[0].report().text;
        EXPECT_LE(job.changed_at, static_cast<int>(FusionTuner::kMostIterations)) << job.tuners[0].report().text;
        EXPECT_LE(world.run(job.plan).iteration_s, 1.03 * best_s)
            << schedule << ", " << s_per_byte << " s a byte: " << job.tuners[0].report().text;
      }
    }
  }
}

TEST(FusionTuner, AutoIsNeverWorseThanWhereItBeganByMoreThanNoise) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    World world{.noise = 0.03, .random = std::mt19937(seed)};
    FusionPlan start = even((std::size_t{64} << 10) << (seed % 8));
    const double before_s = world.run(start).iteration_s;
    Job job(world, "auto", std::move(start));
    job.train(world, 100);
    EXPECT_LE(world.run(job.plan).iteration_s, 1.02 * before_s) << "seed " << seed << ": " << job.tuners[0].report().text;
  }
}

TEST(FusionTuner, AutoTriesNothingWhereComputingHidesAll) {
  World world{.s_per_byte = 1e-10, .noise = 0.002};
  world.start_s = 1e-5;
  Job job(world, "auto", even(1 << 20));
  job.train(world, 20);
  EXPECT_EQ(job.decisions, 1);
  EXPECT_EQ(job.tuners[0].report().settled, 1u);
  EXPECT_EQ(job.tuners[0].report().tried.size(), 1u);
}

TEST(FusionTuner, PlanTakesThePlanWithoutTryingAndEnds) {
  World world;
  Job job(world, "plan", even(kBlock));
  job.train(world, 40);
  EXPECT_EQ(job.decisions, 1);
  EXPECT_EQ(job.changes, 1);
  EXPECT_TRUE(job.tuners[0].ended());
  EXPECT_LT(world.run(job.plan).iteration_s, 0.97 * world.run(even(kBlock)).iteration_s);
}

TEST(FusionTuner, SearchesEndByThemselvesWithinSixtyIterationsBetterThanTheyBegan) {
  for (const char* search : {"bayes", "random", "grid"}) {
    World world;
    Job job(world, search, even(32 << 20));
    job.train(world, 60);
    EXPECT_TRUE(job.tuners[0].ended()) << search;
    EXPECT_LT(world.run(job.plan).iteration_s, world.run(even(32 << 20)).iteration_s) << search;
  }
}

TEST(FusionTuner, AutoBeginsAgainWhenTheLinkHasChangedForGoodAndNotBefore) {
  World world{.noise = 0.01};
  Job job(world, "auto", even(1 << 20));
  job.train(world, 500);
  EXPECT_EQ(job.tuners[0].report().settled, 1u);
  world.s_per_byte *= 4;
  job.train(world, 40);  // one bad window is not enough
  world.s_per_byte /= 4;
  job.train(world, 200);
  EXPECT_EQ(job.tuners[0].report().settled, 1u);
  world.s_per_byte *= 4;
  job.train(world, 250);
  EXPECT_EQ(job.tuners[0].report().settled, 2u);
  EXPECT_THAT(job.tuners[0].report().text, HasSubstr("since the link takes"));
  job.train(world, 1000);  // what it has found now is what it compares with
  EXPECT_EQ(job.tuners[0].report().settled, 2u);
}

TEST(FusionTuner, GroupsOfAnEarlierRunAreKeptUntilTheyNoLongerFit) {
  World world;
  Job first(world, "auto", even(1 << 20));
  first.train(world, 100);
  const TuningReport& report = first.tuners[0].report();
  Job second(world, "auto", overlap::plan_fusion_at(model_of().tensors, kBlock, report.cuts).value(), report.tuned_for);
  second.train(world, 400);
  EXPECT_EQ(second.changes, 0);
  EXPECT_EQ(second.tuners[0].report().settled, 0u);
  EXPECT_THAT(second.tuners[0].report().text, HasSubstr("an earlier run"));
  world.forward_s *= 3;  // another batch
  world.backward_s *= 3;
  second.train(world, 300);
  EXPECT_EQ(second.tuners[0].report().settled, 1u);
  EXPECT_THAT(second.tuners[0].report().text, HasSubstr("since computing takes"));
}

TEST(FusionTuner, ARankThatComputesLongerSetsThePace) {
  World world{.slowest = 1.5};
  Job job(world, "auto", even(32 << 20));
  job.train(world, 100);
  EXPECT_NEAR(job.tuners[0].report().tuned_for.compute_s, 1.5 * (world.forward_s + world.backward_s), 0.01);
}

TEST(FusionTuner, AModelOfOneBlockIsNotTuned) {
  FusionTuner tuner = FusionTuner::make({.search = "auto",
                                         .model = {{{100, base::DType::kFloat32}}, kBlock, false},
                                         .start = overlap::plan_fusion({{100, base::DType::kFloat32}}, {.block_bytes = kBlock}).value(),
                                         .tuned_for = {},
                                         .schedule = "weave",
                                         .num_ranks = 2})
                          .value();
  EXPECT_TRUE(tuner.ended());
  for (int k = 0; k < 100; ++k) {
    EXPECT_FALSE(tuner.iteration({.iteration_s = 1}));
  }
  EXPECT_THAT(tuner.report().text, HasSubstr("too small"));
}

TEST(FusionTuner, AnUnknownSearchOrScheduleIsAnErrorThatListsTheOthers) {
  TunerOptions options{.search = "guess", .model = model_of(), .start = even(1 << 20), .tuned_for = {}, .schedule = "weave"};
  EXPECT_THAT(base::message(FusionTuner::make(options).status()), HasSubstr("bayes"));
  options.search = "auto";
  options.schedule = "fifo";
  EXPECT_THAT(base::message(FusionTuner::make(options).status()), HasSubstr("weave"));
}

}  // namespace
}  // namespace maypole::pipeline
