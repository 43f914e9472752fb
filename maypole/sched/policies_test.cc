// SPDX-License-Identifier: Apache-2.0

// What holds for every policy, and small cases of each that can be solved by hand.

#include "maypole/sched/policy.h"
#include "maypole/sched/sched_testing.h"
#include "maypole/sched/schedule_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace maypole::sched {
namespace {

using model::Cluster;
using model::Job;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Policies, KeepEveryConstraintInEverySlotOnRandomClusters) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  base::Rng rng(seed);
  for (int trial = 0; trial < 60; ++trial) {
    const model::Instance instance = random_instance(rng, 12, 16);
    for (const std::string& name : policy_names()) {
      PolicyOptions options;
      options.topology_aware = trial % 2 == 1;
      options.las_threshold_s = trial % 3 == 0 ? -1 : 300;
      const std::unique_ptr<Policy> policy = policy_named(name, options);
      EXPECT_THAT(run_policy(*policy, instance, seed).violations, IsEmpty()) << name << ", trial " << trial;
    }
  }
}

TEST(Policies, GiveTheSameDecisionsForTheSameProblemsAndSeed) {
  base::Rng rng(3);
  const model::Instance instance = random_instance(rng, 15, 20);
  for (const std::string& name : policy_names()) {
    const PolicyRun one = run_policy(*policy_named(name), instance, 5);
    const PolicyRun other = run_policy(*policy_named(name), instance, 5);
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

}  // namespace
}  // namespace maypole::sched
