// SPDX-License-Identifier: Apache-2.0

// Small cases of `gadget` that can be solved by hand, and the situations that people who share clusters complain about.

#include "maypole/sched/policies/gadget.h"

#include "maypole/model/routes.h"
#include "maypole/sched/sched_testing.h"
#include "maypole/sched/schedule_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

namespace maypole::sched {
namespace {

using model::Cluster;
using model::Embedding;
using model::Job;
using model::ServerId;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Decision decide(const SlotProblem& problem, const PolicyOptions& options = {}) {
  base::Rng rng(1);
  Decision decision = make_gadget(options)->decide(problem, rng);
  EXPECT_THAT(check_decision(problem, decision), IsEmpty());
  return decision;
}

std::vector<int> servers_of(const Embedding& embedding) {
  std::vector<int> servers;
  for (const ServerId server : embedding.ring) {
    servers.push_back(server.value());
  }
  return servers;
}

Embedding on_one_server(int server, int workers) {
  Embedding embedding;
  embedding.ring.assign(static_cast<std::size_t>(workers), ServerId(server));
  if (workers > 1) {
    embedding.edges.assign(static_cast<std::size_t>(workers), {});
  }
  return embedding;
}

TEST(Gadget, TenWorkersOnThreeRacksOfFourFillOneRackAfterTheOther) {
  const Cluster cluster = tree_cluster({.racks = 3, .servers_per_rack = 4, .gpus = 1});
  const std::vector<Job> jobs = {rigid_job(cluster, "a", 10)};
  const Decision decision = decide(problem_of(cluster, jobs));
  ASSERT_EQ(decision.placements.size(), 1u);
  EXPECT_THAT(servers_of(decision.placements[0].embedding), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(Gadget, FiveWorkersOnTwoRacksCrossBetweenThemTwice) {
  const Cluster cluster = tree_cluster({.racks = 2, .servers_per_rack = 3, .gpus = 1});
  const std::vector<Job> jobs = {rigid_job(cluster, "a", 5)};
  const Decision decision = decide(problem_of(cluster, jobs));
  ASSERT_EQ(decision.placements.size(), 1u);
  EXPECT_EQ(model::rack_crossings(cluster, decision.placements[0].embedding.ring), 2);
}

TEST(Gadget, AJobThatHoldsTenGpusGivesOneToAWaitingJobAndKeepsTheOthers) {
  const Cluster cluster = flat_cluster({4, 4, 2});
  std::vector<Job> jobs = {elastic_job(cluster, "a", 5, 10), rigid_job(cluster, "b", 1)};
  SlotProblem problem = problem_of(cluster, jobs);
  Embedding current;
  for (const int server : {0, 0, 0, 0, 1, 1, 1, 1, 2, 2}) {
    current.ring.emplace_back(server);
    current.edges.emplace_back();
  }
  problem.jobs[0].current = &current;
  EXPECT_THAT(workers_of(problem, decide(problem)), ElementsAre(9, 1));
}

TEST(Gadget, SurplusGoesToWaitingJobsWhereItIsWorthTheSameAndNoFurther) {
  const Cluster cluster = flat_cluster({4, 4, 2});
  std::vector<Job> jobs = {elastic_job(cluster, "a", 5, 10)};
  for (int k = 0; k < 6; ++k) {
    jobs.push_back(rigid_job(cluster, fmt::format("b{}", k), 1));
  }
  for (Job& job : jobs) {
    job.utility.kind = model::UtilityKind::kLinear;
  }
  Embedding current;
  for (const int server : {0, 0, 0, 0, 1, 1, 1, 1, 2, 2}) {
    current.ring.emplace_back(server);
    current.edges.emplace_back();
  }
  SlotProblem problem = problem_of(cluster, jobs);
  problem.jobs[0].current = &current;
  EXPECT_THAT(workers_of(problem, decide(problem)), ElementsAre(5, 1, 1, 1, 1, 1, 0));
  jobs.resize(2);
  problem = problem_of(cluster, jobs);
  problem.jobs[0].current = &current;
  EXPECT_THAT(workers_of(problem, decide(problem)), ElementsAre(9, 1));
  jobs[1] = rigid_job(cluster, "b", 5);  // several workers at once
  jobs[1].utility.kind = model::UtilityKind::kLinear;
  EXPECT_THAT(workers_of(problem, decide(problem)), ElementsAre(5, 5));
  jobs[1].weight = 0.99;  // now it would be a loss
  EXPECT_THAT(workers_of(problem, decide(problem)), ElementsAre(10, 0));
}

TEST(Gadget, EqualJobsNeitherResizeNorEvictEachOther) {
  const Cluster cluster = flat_cluster({4, 4});
  std::vector<Job> jobs = {elastic_job(cluster, "a", 2, 8), elastic_job(cluster, "b", 2, 8)};
  for (Job& job : jobs) {
    job.utility.kind = model::UtilityKind::kLinear;
  }
  const Embedding four = on_one_server(0, 4);
  const Embedding other = on_one_server(1, 4);
  SlotProblem problem = problem_of(cluster, jobs);
  problem.jobs[0].current = &four;
  problem.jobs[1].current = &other;
  const Decision decision = decide(problem);
  ASSERT_EQ(decision.placements.size(), 2u);
  EXPECT_EQ(decision.placements[0].embedding, four);
  EXPECT_EQ(decision.placements[1].embedding, other);
  const std::vector<Job> rigid = {rigid_job(cluster, "a", 4), rigid_job(cluster, "b", 4), rigid_job(cluster, "c", 4)};
  problem = problem_of(cluster, rigid);
  problem.jobs[2].current = &four;
  problem.jobs[1].current = &other;
  EXPECT_THAT(workers_of(problem, decide(problem)), ElementsAre(0, 4, 4));
}

TEST(Gadget, AJobGrowsByItselfWhenGpusComeFreeInsideItsRackWhileItCan) {
  const Cluster cluster = tree_cluster({.racks = 3, .servers_per_rack = 4, .gpus = 4});
  std::vector<Job> jobs = {elastic_job(cluster, "a", 4, 16)};
  SlotProblem problem = problem_of(cluster, jobs);
  const Embedding current = on_one_server(5, 4);
  problem.jobs[0].current = &current;
  const Decision decision = decide(problem);
  ASSERT_EQ(decision.placements.size(), 1u);
  EXPECT_EQ(decision.placements[0].embedding.workers(), 16);
  for (const int server : servers_of(decision.placements[0].embedding)) {
    EXPECT_EQ(server / 4, 1);
  }
}

TEST(Gadget, TwoWorkersOfEightGpusWaitOnNodesWithSevenSevenEightAndAOneNodeJobStarts) {
  const Cluster cluster = flat_cluster({7, 7, 8});
  std::vector<Job> jobs = {rigid_job(cluster, "pair", 2), rigid_job(cluster, "single", 1)};
  for (Job& job : jobs) {
    job.demand[cluster.accelerator()] = 8;
  }
  const SlotProblem problem = problem_of(cluster, jobs);
  EXPECT_THAT(workers_of(problem, decide(problem)), ElementsAre(0, 1));
}

TEST(Gadget, TwoGangsThatDoNotFitTogetherNeverHoldHalfTheClusterEach) {
  const Cluster cluster = flat_cluster({4, 4, 4, 4});
  const std::vector<Job> jobs = {elastic_job(cluster, "a", 10, 12), elastic_job(cluster, "b", 10, 12)};
  const SlotProblem problem = problem_of(cluster, jobs);
  const std::vector<int> workers = workers_of(problem, decide(problem));
  EXPECT_THAT(workers, ::testing::UnorderedElementsAre(0, 12));
}

TEST(Gadget, ASigmoidsFlatFootDoesNotStarveAJobThatPaysLater) {
  const Cluster cluster = flat_cluster({1});
  std::vector<Job> jobs = {rigid_job(cluster, "late", 1), rigid_job(cluster, "poor", 1)};
  jobs[0].utility = {.kind = model::UtilityKind::kSigmoid, .sensitivity = 0.5, .expected = 100};
  jobs[0].weight = 50;
  jobs[0].progress.zeta = 10;
  jobs[1].utility = {.kind = model::UtilityKind::kLinear};
  jobs[1].weight = 0.01;
  SlotProblem problem = problem_of(cluster, jobs);
  for (ActiveJob& job : problem.jobs) {
    job.remaining_slots = 30;
  }
  EXPECT_THAT(workers_of(problem, decide(problem)), ElementsAre(1, 0));
  for (ActiveJob& job : problem.jobs) {
    job.remaining_slots = 8;  // it cannot get there any more
  }
  EXPECT_THAT(workers_of(problem, decide(problem)), ElementsAre(0, 1));
}

TEST(Gadget, ARunningRingIsKeptUnlessTheChangePaysForWhatItCosts) {
  const Cluster cluster = tree_cluster({.racks = 2, .servers_per_rack = 2, .gpus = 4});
  std::vector<Job> jobs = {elastic_job(cluster, "a", 1, 8)};
  jobs[0].progress.kind = model::ProgressKind::kPower;
  jobs[0].progress.exponent = 0.5;
  jobs[0].progress.reference = 1;
  jobs[0].utility.kind = model::UtilityKind::kLinear;
  SlotProblem problem = problem_of(cluster, jobs);
  const Embedding current = on_one_server(3, 4);
  problem.jobs[0].current = &current;
  jobs[0].progress.resize_s = 10;
  EXPECT_THAT(workers_of(problem, decide(problem)), ElementsAre(8));
  problem.jobs[0].remaining_slots = 1;
  jobs[0].progress.resize_s = 30;  // half a slot, of which there is one: sqrt(8) / 2 < sqrt(4)
  const Decision decision = decide(problem);
  ASSERT_EQ(decision.placements.size(), 1u);
  EXPECT_EQ(decision.placements[0].embedding, current);
}

TEST(Gadget, TheSameProblemTwiceHasTheSameAnswerAndRunningOnItChangesNothing) {
  const Cluster cluster = tree_cluster({.racks = 2, .servers_per_rack = 4, .gpus = 4, .server_bandwidth = 10, .uplink_bandwidth = 10});
  std::vector<Job> jobs;
  for (int i = 0; i < 6; ++i) {
    jobs.push_back(elastic_job(cluster, fmt::format("j{}", i), 1, 8));
    jobs.back().edge_bandwidth = {3.0 + i};
  }
  SlotProblem problem = problem_of(cluster, jobs);
  const Decision first = decide(problem);
  EXPECT_EQ(decide(problem).placements, first.placements);
  for (const Placement& placement : first.placements) {
    problem.jobs[placement.job.index()].current = &placement.embedding;
  }
  EXPECT_EQ(decide(problem).placements, first.placements);
}

TEST(Gadget, WithAgeingAGangOf64StartsUnderAStreamOfSmallJobs) {
  const Cluster cluster = tree_cluster({.racks = 2, .servers_per_rack = 8, .gpus = 4});
  model::Instance instance{cluster, {}, 60, 60, 1};
  Job big = rigid_job(cluster, "big", 64);
  big.utility.kind = model::UtilityKind::kLinear;
  big.work = 640;
  big.weight = 1.0 / 640;  // to have ended is worth as much for every job
  instance.jobs.push_back(big);
  for (int slot = 0; slot < instance.slots; ++slot) {
    for (int k = 0; k < 20; ++k) {
      Job small = rigid_job(cluster, fmt::format("s{}-{}", slot, k), 4);
      small.arrival_s = slot * instance.slot_s;
      small.utility.kind = model::UtilityKind::kLinear;
      small.work = 8;
      small.weight = 1.0 / 8;
      instance.jobs.push_back(small);
    }
  }
  const auto first_slot = [&](const PolicyOptions& options) {
    const PolicyRun run = run_policy(*make_gadget(options), instance, 1);
    EXPECT_THAT(run.violations, IsEmpty());
    for (const Decision& decision : run.decisions) {
      if (!decision.placements.empty() && decision.placements[0].job == model::JobId(0)) {
        return decision.slot;
      }
    }
    return std::int64_t{-1};
  };
  EXPECT_EQ(first_slot({}), -1);  // with a horizon, what counts is the utility at its end
  const std::int64_t started = first_slot({.ageing_per_s = 0.02});
  EXPECT_GE(started, 1);
  EXPECT_LE(started, 12);
}

}  // namespace
}  // namespace maypole::sched
