// SPDX-License-Identifier: Apache-2.0
#include "maypole/sim/simulator.h"

#include "maypole/sim/metrics.h"
#include "maypole/sim/offered_load.h"
#include "maypole/sim/reach_alone.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace maypole::sim {
namespace {

using model::JobId;
using ::testing::HasSubstr;
using ::testing::SizeIs;

model::Cluster one_server(double gpus) {
  model::ClusterParts parts;
  parts.resources = {"gpu"};
  parts.racks = {"r"};
  model::Server server;
  server.id = "s";
  server.rack = model::RackId(0);
  server.capacity.assign(1, gpus);
  parts.servers.push_back(server);
  return model::Cluster::make(parts).value();
}

model::Job job(const std::string& id, double arrival_s, int workers, double work) {
  model::Job made;
  made.id = id;
  made.arrival_s = arrival_s;
  made.workers = workers;
  made.max_workers = workers;
  made.demand.assign(1, 1);
  made.work = work;
  made.progress.zeta = 10;
  made.utility.kind = model::UtilityKind::kLinear;
  return made;
}

/// First come, first served on the one server, without passing: all of it can be worked out by hand. Counts how often it is asked.
class OneQueue final : public sched::Policy {
 public:
  explicit OneQueue(int* asked = nullptr) : asked_(asked) {}
  [[nodiscard]] std::string name() const override { return "one-queue"; }
  [[nodiscard]] sched::Decision decide(const sched::SlotProblem& problem, base::Rng& /*rng*/) override {
    if (asked_ != nullptr) {
      ++*asked_;
    }
    sched::Decision decision;
    double free = problem.cluster->total_capacity()[model::ResourceId(0)];
    for (const sched::ActiveJob& active : problem.jobs) {
      if (active.job->workers > free) {
        break;
      }
      free -= active.job->workers;
      sched::Placement placement;
      placement.job = active.id;
      placement.embedding.ring.assign(static_cast<std::size_t>(active.job->workers), model::ServerId(0));
      placement.embedding.edges.resize(active.job->workers > 1 ? placement.embedding.ring.size() : 0);
      decision.placements.push_back(placement);
      decision.utility += sched::utility_gain(
          active, sched::slot_progress(active, model::shape_of(placement.embedding), false, problem.slot_s), problem.start_s());
    }
    decision.slot = problem.slot;
    return decision;
  }
  [[nodiscard]] std::int64_t repeats(const sched::SlotProblem& /*problem*/, const sched::Decision& /*decision*/) const override {
    return 1000000;
  }

 private:
  int* asked_;
};

Simulation run(const model::Instance& instance, const SimulationOptions& options = {}, int* asked = nullptr) {
  const base::ManualClock clock;
  auto result = simulate(instance, std::make_unique<OneQueue>(asked), options, clock);
  EXPECT_TRUE(result.ok()) << result.status();
  return std::move(result).value();
}

// Two GPUs, slots of 60 s, 10 of progress per worker and slot:
//   a: 2 workers, work 50, arrives 0:   runs 0 to 150 s (20 a slot: slots 0, 1 and half of 2)
//   b: 1 worker,  work 10, arrives 30:  known to slot 1, waits for a's end; runs in slot 3, 180 to 240 s
//   c: 1 worker,  work 25, arrives 600: runs 600 to 750 s
model::Instance by_hand() { return {one_server(2), {job("a", 0, 2, 50), job("b", 30, 1, 10), job("c", 600, 1, 25)}, 60, 0, 1}; }

TEST(Simulator, GivesWhatIsWorkedOutByHand) {
  const Simulation result = run(by_hand());
  ASSERT_THAT(result.jobs, SizeIs(3));
  EXPECT_DOUBLE_EQ(*result.jobs[0].ended_s, 150);
  EXPECT_DOUBLE_EQ(*result.jobs[1].started_s, 180);
  EXPECT_DOUBLE_EQ(*result.jobs[1].ended_s, 240);
  EXPECT_DOUBLE_EQ(*result.jobs[2].ended_s, 750);
  const Metrics metrics = metrics_of(result, by_hand());
  EXPECT_DOUBLE_EQ(metrics.total_utility, 85);
  EXPECT_DOUBLE_EQ(*metrics.jct_mean_s, (150 + 210 + 150) / 3.0);
  EXPECT_DOUBLE_EQ(*metrics.jct_p50_s, 150);
  EXPECT_DOUBLE_EQ(*metrics.queueing_mean_s, 50);
  EXPECT_DOUBLE_EQ(*metrics.makespan_s, 750);
  EXPECT_DOUBLE_EQ(metrics.gpu_hours, (300 + 60 + 150) / 3600.0);
  EXPECT_DOUBLE_EQ(metrics.utilisation, 510 / 1500.0);
  // Slots with jobs: 0 (a), 1 and 2 (a of a, b), 3 (b), 10, 11, 12 (c).
  EXPECT_DOUBLE_EQ(metrics.embedded_share, (1 + 0.5 + 0.5 + 1 + 3) / 7);
  EXPECT_EQ(metrics.preemptions, 0);
  // a and b each meet 5/3 jobs on average, so a fair share holds one worker: 300 s for a, 60 s for b; c is alone, and wants one: 150 s.
  EXPECT_DOUBLE_EQ(*metrics.fairness_mean, (150 / 300.0 + 210 / 60.0 + 150 / 150.0) / 3);
  EXPECT_DOUBLE_EQ(*metrics.fairness_max, 3.5);
}

TEST(Simulator, SkippingUnchangedSlotsChangesNothingButTheNumberOfQuestions) {
  std::vector<sched::Decision> skipped;
  std::vector<sched::Decision> asked_all;
  int few = 0;
  int all = 0;
  const Simulation one = run(by_hand(), {.on_slot = [&](const sched::SlotOutcome& slot) { skipped.push_back(slot.decision); }}, &few);
  const Simulation two = run(
      by_hand(), {.skip_unchanged = false, .on_slot = [&](const sched::SlotOutcome& slot) { asked_all.push_back(slot.decision); }}, &all);
  EXPECT_EQ(few, 5);  // a starts; b beside a; b starts; c starts; c goes on
  EXPECT_EQ(all, 7);
  ASSERT_EQ(skipped.size(), 13);  // a line for every slot, also the idle ones 4 to 9
  ASSERT_EQ(asked_all.size(), 13);
  for (std::size_t i = 0; i < 13; ++i) {
    EXPECT_EQ(skipped[i].slot, static_cast<std::int64_t>(i));
    EXPECT_EQ(skipped[i].placements, asked_all[i].placements);
    EXPECT_EQ(skipped[i].utility, asked_all[i].utility);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(one.jobs[i].progress, two.jobs[i].progress);
    EXPECT_EQ(one.jobs[i].ended_s, two.jobs[i].ended_s);
    EXPECT_EQ(one.jobs[i].attained_s, two.jobs[i].attained_s);
  }
}

/// Servers in one rack, each with so many GPUs.
model::Cluster one_rack(int servers, double gpus) {
  model::ClusterParts parts;
  parts.resources = {"gpu"};
  parts.racks = {"r"};
  for (int s = 0; s < servers; ++s) {
    model::Server server;
    server.id = fmt::format("s{}", s);
    server.rack = model::RackId(0);
    server.capacity.assign(1, gpus);
    parts.servers.push_back(server);
  }
  return model::Cluster::make(std::move(parts)).value();
}

/// Three servers of four GPUs; jobs of 1 to 12 GPUs, some of them elastic, in bursts.
model::Instance bursts(std::uint64_t seed) {
  model::Instance instance{one_rack(3, 4), {}, 60, 0, seed};
  base::Rng rng(seed, "bursts");
  for (int i = 0; i < 40; ++i) {
    const auto burst = static_cast<double>(rng.uniform_int(0, 5));
    model::Job made = job(fmt::format("j{}", i), 1500 * burst + rng.uniform(0, 200), static_cast<int>(rng.uniform_int(1, 12)), 1);
    made.work = 10 * made.workers * rng.uniform(0.5, 15);
    made.weight = 1 / *made.work;
    if (i % 3 == 0) {
      made.max_workers = std::min(2 * made.workers, 12);
      made.progress.resize_s = 5;
    }
    made.min_workers = made.workers;
    instance.jobs.push_back(std::move(made));
  }
  std::ranges::sort(instance.jobs, {}, &model::Job::arrival_s);
  return instance;
}

TEST(Simulator, SkippingChangesNothingUnderAnyPolicyThatPromisesToRepeat) {
  for (const char* name : {"gadget", "gadget-blind", "srtf", "las", "drf", "optimus", "fifo"}) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", name, seed));
      const model::Instance instance = bursts(seed);
      const base::ManualClock clock;
      std::vector<sched::Decision> decisions[2];
      std::vector<Simulation> runs;
      for (const bool skip : {true, false}) {
        const SimulationOptions options = {.skip_unchanged = skip, .on_slot = [&](const sched::SlotOutcome& slot) {
                                             EXPECT_THAT(slot.violations, ::testing::IsEmpty());
                                             decisions[skip ? 0 : 1].push_back(slot.decision);
                                           }};
        auto result = simulate(instance, sched::make_policy(name, {}).value(), options, clock);
        ASSERT_TRUE(result.ok()) << result.status();
        runs.push_back(*std::move(result));
      }
      ASSERT_EQ(decisions[0].size(), decisions[1].size());
      for (std::size_t slot = 0; slot < decisions[0].size(); ++slot) {
        ASSERT_EQ(decisions[0][slot].placements, decisions[1][slot].placements) << "slot " << slot;
        ASSERT_EQ(decisions[0][slot].utility, decisions[1][slot].utility) << "slot " << slot;
      }
      for (std::size_t i = 0; i < instance.jobs.size(); ++i) {
        ASSERT_TRUE(runs[0].jobs[i].ended_s.has_value());
        EXPECT_EQ(runs[0].jobs[i].ended_s, runs[1].jobs[i].ended_s);
        EXPECT_EQ(runs[0].jobs[i].attained_s, runs[1].jobs[i].attained_s);
        EXPECT_EQ(runs[0].jobs[i].resizes, runs[1].jobs[i].resizes);
      }
      const auto asked = [](const Simulation& run) { return std::ranges::count(run.slots, true, &SlotSample::decided); };
      if (std::string_view(name).starts_with("gadget")) {
        EXPECT_LT(asked(runs[0]), 0.8 * static_cast<double>(asked(runs[1])));
      }
    }
  }
}

// 32 GPUs; small jobs of four GPUs and two slots come faster than they can be served, and each is worth 8 times the big one by the
// worker, 16 times in its last slot. The worth of the big one, which takes 20 minutes, grows by e every two hours that it waits, so nothing
// that comes more than ln(16) times two hours after it may pass.
TEST(Simulator, AStreamOfSmallJobsCannotStarveABigOneUnderGadget) {
  constexpr int kStream = 60;
  model::Instance instance{one_rack(4, 8), {}, 600, 0, 1};
  instance.jobs.push_back(job("big", 0, 32, 32 * 10 * 2));
  for (int slot = 0; slot < kStream; ++slot) {
    for (int k = 0; k < 5; ++k) {
      instance.jobs.push_back(job(fmt::format("s{}-{}", slot, k), slot * instance.slot_s, 4, 4 * 10 * 2));
    }
  }
  for (model::Job& made : instance.jobs) {
    made.min_workers = made.workers;
    made.weight = 1 / *made.work;
  }
  const auto started_s = [&](double ageing) {
    const base::ManualClock clock;
    auto result = simulate(instance, sched::make_policy("gadget", {.ageing_per_s = ageing}).value(), {}, clock);
    EXPECT_TRUE(result.ok()) << result.status();
    return result->jobs[0].started_s.value_or(1e9);
  };
  EXPECT_GE(started_s(0), kStream * instance.slot_s);  // without age it waits for the stream to end
  EXPECT_LE(started_s(-1), std::log(16) * 7200 + 10 * instance.slot_s);
}

TEST(Simulator, AHorizonEndsTheRunAndWhatDidNotEndHasNoMakespan) {
  model::Instance instance = by_hand();
  instance.slots = 2;
  std::int64_t lines = 0;
  const Simulation result = run(instance, {.on_slot = [&](const sched::SlotOutcome&) { ++lines; }});
  const Metrics metrics = metrics_of(result, instance);
  EXPECT_EQ(lines, 2);
  EXPECT_EQ(metrics.jobs_finished, 0);
  EXPECT_FALSE(metrics.makespan_s.has_value());
  EXPECT_FALSE(metrics.jct_mean_s.has_value());
  EXPECT_DOUBLE_EQ(metrics.total_utility, 40);
  EXPECT_EQ(metrics.jobs_never_started, 1);  // b; c had not arrived
}

TEST(Simulator, TimelinesJoinEqualSlots) {
  const Simulation result = run(by_hand());
  ASSERT_THAT(result.timelines[0], SizeIs(1));
  EXPECT_EQ(result.timelines[0][0].end, 3);
  EXPECT_EQ(result.timelines[0][0].workers, 2);
}

TEST(Simulator, ARunThatCouldNeverEndIsRefused) {
  model::Instance instance = by_hand();
  instance.jobs[1].work.reset();
  const base::ManualClock clock;
  const auto result = simulate(instance, std::make_unique<OneQueue>(), {}, clock);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("job 'b' has neither work nor budget"));
}

TEST(Simulator, APolicyThatNeverServesTheLastJobsIsStopped) {
  model::Instance instance = by_hand();
  instance.jobs[2].workers = instance.jobs[2].max_workers = 3;  // one worker would fit, three never do
  const Simulation result = run(instance);
  EXPECT_THAT(result.stopped, HasSubstr("1 jobs never get workers from one-queue, 'c' the first"));
  EXPECT_EQ(metrics_of(result, instance).jobs_finished, 2);
}

/// Serves a job once its limit of racks has ended, however long that takes.
class Patient final : public sched::Policy {
 public:
  [[nodiscard]] std::string name() const override { return "patient"; }
  [[nodiscard]] sched::Decision decide(const sched::SlotProblem& problem, base::Rng& rng) override {
    sched::SlotProblem allowed = problem;
    std::erase_if(allowed.jobs,
                  [](const sched::ActiveJob& active) { return !active.running() && active.waiting_s < active.job->max_racks_s; });
    return OneQueue().decide(allowed, rng);
  }
};

TEST(Simulator, AJobThatWaitsForItsRackLimitToEndIsNotGivenUp) {
  model::Instance instance = by_hand();
  instance.jobs.resize(1);
  instance.jobs[0].max_racks = 1;
  instance.jobs[0].max_racks_s = 1500 * 60;
  const base::ManualClock clock;
  const auto result = simulate(instance, std::make_unique<Patient>(), {}, clock);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->stopped, "");
  EXPECT_DOUBLE_EQ(result->jobs[0].started_s.value_or(-1), 1500 * 60);
  EXPECT_DOUBLE_EQ(result->jobs[0].ended_s.value_or(-1), 1500 * 60 + 150);
}

TEST(Simulator, JobsOutOfOrderAreRefused) {
  model::Instance instance = by_hand();
  std::swap(instance.jobs[0], instance.jobs[1]);
  const base::ManualClock clock;
  EXPECT_THAT(std::string(simulate(instance, std::make_unique<OneQueue>(), {}, clock).status().message()), HasSubstr("sort by arrival"));
}

TEST(OfferedLoad, IsNeedOverCapacityWhileJobsArrive) {
  const OfferedLoad offered = offered_load(by_hand());
  EXPECT_DOUBLE_EQ(offered.load, (2 * 150 + 60 + 150) / (2 * 600.0));
  EXPECT_EQ(offered.resource, "gpu");
  EXPECT_DOUBLE_EQ(offered.alone_s, 360);
}

TEST(ReachAlone, IsLimitedByTimeBudgetAndWork) {
  model::Instance instance = by_hand();
  instance.slots = 11;
  EXPECT_DOUBLE_EQ(reach_alone(instance.jobs[0], instance), 50);
  EXPECT_DOUBLE_EQ(reach_alone(instance.jobs[2], instance), 10);  // one slot is left
  instance.jobs[0].budget = 3.9;
  EXPECT_DOUBLE_EQ(reach_alone(instance.jobs[0], instance), 30);
  instance.jobs[0].max_workers = 100;  // the cluster holds 2
  instance.jobs[0].budget.reset();
  instance.jobs[0].work.reset();
  EXPECT_DOUBLE_EQ(reach_alone(instance.jobs[0], instance), 220);
}

TEST(Quantile, IsLinearBetweenNeighbours) {
  EXPECT_FALSE(quantile({}, 0.5).has_value());
  EXPECT_DOUBLE_EQ(*quantile({3, 1, 2}, 0.5), 2);
  EXPECT_DOUBLE_EQ(*quantile({0, 10}, 0.95), 9.5);
}

}  // namespace
}  // namespace maypole::sim
