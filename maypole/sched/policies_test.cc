// SPDX-License-Identifier: Apache-2.0

// What holds for every policy, and small cases of each that can be solved by hand.

#include "maypole/base/test_seed.h"
#include "maypole/sched/policy.h"
#include "maypole/sched/sched_testing.h"
#include "maypole/sched/schedule_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace maypole::sched {
namespace {

using model::Cluster;
using model::Job;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Policies, KeepEveryConstraintInEverySlotOnRandomClusters) {
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  base::Rng rng(seed);
  for (int trial = 0; trial < 60; ++trial) {
    const model::Instance instance = random_instance(rng, 12, 16);
    for (const std::string& name : policy_names()) {
      if (name == "exact" && trial % 6 != 0) {
        continue;  // it takes a thousand times as long as the others
      }
      PolicyOptions options;
      options.topology_aware = trial % 2 == 1;
      options.las_threshold_s = trial % 3 == 0 ? -1 : 300;
      options.exact_nodes = 5;
      const std::unique_ptr<Policy> policy = policy_named(name, options);
      EXPECT_THAT(run_policy(*policy, instance, seed).violations, IsEmpty()) << name << ", trial " << trial;
    }
  }
}

TEST(Policies, GiveTheSameDecisionsForTheSameProblemsAndSeed) {
  base::Rng rng(3);
  const model::Instance instance = random_instance(rng, 15, 20);
  for (const std::string& name : policy_names()) {
    const PolicyOptions options{.exact_nodes = 20};
    const PolicyRun one = run_policy(*policy_named(name, options), instance, 5);
    const PolicyRun other = run_policy(*policy_named(name, options), instance, 5);
    ASSERT_EQ(one.decisions.size(), other.decisions.size());
    for (std::size_t k = 0; k < one.decisions.size(); ++k) {
      EXPECT_EQ(one.decisions[k].placements, other.decisions[k].placements) << name;
    }
  }
}

TEST(Policies, AnUnknownNameIsRefusedWithTheNamesThatExist) {
  const auto policy = make_policy("fifoo", {});
  ASSERT_FALSE(policy.ok());
  EXPECT_THAT(std::string(policy.status().message()), ::testing::HasSubstr("fifo"));
}

TEST(Fifo, GivesWorkersInOrderOfArrivalAndLetsLaterJobsPassOneThatDoesNotFit) {
  const Cluster cluster = flat_cluster({4, 4});
  const std::vector<Job> jobs = {rigid_job(cluster, "a", 5), rigid_job(cluster, "b", 4), rigid_job(cluster, "c", 3)};
  const SlotProblem problem = problem_of(cluster, jobs);
  base::Rng rng(1);
  EXPECT_THAT(workers_of(problem, policy_named("fifo")->decide(problem, rng)), ElementsAre(5, 0, 3));
}

TEST(Fifo, LetsRunningJobsKeepTheirRingsWhoeverArrivedBefore) {
  const Cluster cluster = flat_cluster({4, 4});
  const std::vector<Job> jobs = {rigid_job(cluster, "a", 5), rigid_job(cluster, "b", 4)};
  SlotProblem problem = problem_of(cluster, jobs);
  const model::Embedding current{{model::ServerId(1), model::ServerId(1), model::ServerId(1), model::ServerId(1)}, {{}, {}, {}, {}}, {}};
  problem.jobs[1].current = &current;
  base::Rng rng(1);
  const Decision decision = policy_named("fifo")->decide(problem, rng);
  ASSERT_EQ(decision.placements.size(), 1u);
  EXPECT_EQ(decision.placements[0].embedding, current);
}

TEST(Fifo, TwoWorkersOfEightGpusWaitOnNodesWithSevenSevenEightAndAOneNodeJobStarts) {
  const Cluster cluster = flat_cluster({7, 7, 8});
  std::vector<Job> jobs = {rigid_job(cluster, "pair", 2), rigid_job(cluster, "single", 1)};
  for (Job& job : jobs) {
    job.demand[cluster.accelerator()] = 8;
  }
  const SlotProblem problem = problem_of(cluster, jobs);
  base::Rng rng(1);
  EXPECT_THAT(workers_of(problem, policy_named("fifo")->decide(problem, rng)), ElementsAre(0, 1));
}

TEST(Fifo, AJobWhoseLeftBudgetIsSmallerThanItsWorkersGetsNothing) {
  const Cluster cluster = flat_cluster({8});
  std::vector<Job> jobs = {elastic_job(cluster, "a", 1, 4)};
  jobs[0].budget = 6;
  SlotProblem problem = problem_of(cluster, jobs);
  problem.jobs[0].worker_slots = 4;
  base::Rng rng(1);
  EXPECT_THAT(workers_of(problem, policy_named("fifo")->decide(problem, rng)), ElementsAre(0));
}

/// Runs that job on those servers, each named once per worker.
model::Embedding on(const std::vector<int>& servers) {
  model::Embedding embedding;
  for (const int server : servers) {
    embedding.ring.emplace_back(server);
  }
  embedding.edges.resize(servers.size() > 1 ? servers.size() : 0);
  return embedding;
}

TEST(Srtf, TakesThePlaceOfTheJobThatHasMostLeft) {
  const Cluster cluster = flat_cluster({4, 4});
  std::vector<Job> jobs = {rigid_job(cluster, "long", 4), rigid_job(cluster, "longer", 4), rigid_job(cluster, "short", 4)};
  jobs[0].work = 100;
  jobs[1].work = 200;
  jobs[2].work = 10;
  SlotProblem problem = problem_of(cluster, jobs);
  const model::Embedding first = on({0, 0, 0, 0});
  const model::Embedding second = on({1, 1, 1, 1});
  problem.jobs[0].current = &first;
  problem.jobs[1].current = &second;
  base::Rng rng(1);
  const Decision decision = policy_named("srtf")->decide(problem, rng);
  EXPECT_THAT(workers_of(problem, decision), ElementsAre(4, 0, 4));
  EXPECT_EQ(decision.placements[0].embedding, first);  // nobody moves who need not
  problem.jobs[1].progress = 195;
  EXPECT_THAT(workers_of(problem, policy_named("srtf")->decide(problem, rng)), ElementsAre(0, 4, 4));
}

TEST(Srtf, PreemptsNobodyForAJobThatWouldNotFitEvenThen) {
  const Cluster cluster = flat_cluster({4, 4});
  std::vector<Job> jobs = {rigid_job(cluster, "a", 3), rigid_job(cluster, "b", 3), rigid_job(cluster, "pair", 2)};
  jobs[0].work = 5;
  jobs[1].work = 100;
  jobs[2].work = 10;
  jobs[2].demand[cluster.accelerator()] = 4;
  SlotProblem problem = problem_of(cluster, jobs);
  const model::Embedding first = on({0, 0, 0});
  const model::Embedding second = on({1, 1, 1});
  problem.jobs[0].current = &first;
  problem.jobs[1].current = &second;
  base::Rng rng(1);
  EXPECT_THAT(workers_of(problem, policy_named("srtf")->decide(problem, rng)), ElementsAre(3, 3, 0));
}

TEST(Srtf, OnOneServerOfOneGpuItIsTheOptimalOrder) {
  // Mean completion time on one machine is least in the order of remaining time; all orders of three jobs are tried.
  const Cluster cluster = flat_cluster({1});
  model::Instance instance{cluster, {}, 60, 20, 1};
  std::vector<int> work = {5, 2, 3};
  for (const int w : work) {
    Job job = rigid_job(cluster, "j" + std::to_string(w), 1);
    job.work = w;
    instance.jobs.push_back(job);
  }
  const PolicyRun run = run_policy(*policy_named("srtf"), instance, 1);
  EXPECT_THAT(run.violations, IsEmpty());
  int sum_of_ends = 0;
  std::vector<int> end(3, 0);
  for (const Decision& decision : run.decisions) {
    for (const Placement& placement : decision.placements) {
      end[placement.job.index()] = static_cast<int>(decision.slot) + 1;
    }
  }
  for (const int slot : end) {
    sum_of_ends += slot;
  }
  int best = 1000;
  std::ranges::sort(work);
  do {
    best = std::min(best, work[0] + (work[0] + work[1]) + (work[0] + work[1] + work[2]));
  } while (std::ranges::next_permutation(work).found);
  EXPECT_EQ(sum_of_ends, best);
}

TEST(Las, PutsJobsThatHaveAttainedLessThanTheThresholdFirstAndThenGoesByArrival) {
  const Cluster cluster = flat_cluster({4});
  const std::vector<Job> jobs = {rigid_job(cluster, "served", 2), rigid_job(cluster, "fresh", 2), rigid_job(cluster, "newest", 2)};
  SlotProblem problem = problem_of(cluster, jobs);
  problem.jobs[0].attained_s = 1000;
  problem.jobs[1].attained_s = 900;
  base::Rng rng(1);
  EXPECT_THAT(workers_of(problem, policy_named("las", {.las_threshold_s = 950})->decide(problem, rng)), ElementsAre(0, 2, 2));
  EXPECT_THAT(workers_of(problem, policy_named("las", {.las_threshold_s = 100})->decide(problem, rng)), ElementsAre(2, 0, 2));
  EXPECT_THAT(workers_of(problem, policy_named("las", {.las_threshold_s = 5000})->decide(problem, rng)), ElementsAre(2, 2, 0));
}

TEST(Las, WithoutAThresholdTwoEqualJobsTakeTurns) {
  const Cluster cluster = flat_cluster({2});
  model::Instance instance{cluster, {rigid_job(cluster, "a", 2), rigid_job(cluster, "b", 2)}, 60, 6, 1};
  const PolicyRun run = run_policy(*policy_named("las", {.las_threshold_s = -1}), instance, 1);
  EXPECT_THAT(run.violations, IsEmpty());
  EXPECT_THAT(run.progress, ElementsAre(6, 6));
}

TEST(Las, RunsTheFirstQueueToTheThresholdWithoutTakingTurns) {
  const Cluster cluster = flat_cluster({2});
  model::Instance instance{cluster, {rigid_job(cluster, "a", 2), rigid_job(cluster, "b", 2)}, 60, 4, 1};
  const std::unique_ptr<Policy> las = policy_named("las", {.las_threshold_s = 240});  // two slots of two GPUs
  const PolicyRun run = run_policy(*las, instance, 1);
  std::vector<int> order;
  for (const Decision& decision : run.decisions) {
    order.push_back(decision.placements.at(0).job.value());
  }
  EXPECT_THAT(order, ElementsAre(0, 0, 1, 1));
}

}  // namespace
}  // namespace maypole::sched
