// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/exact.h"

#include "maypole/model/routes.h"
#include "maypole/sched/policies/exact_testing.h"
#include "maypole/sched/sched_testing.h"
#include "maypole/sched/schedule_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace maypole::sched {
namespace {

using model::Cluster;
using model::Job;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Decision decide(const SlotProblem& problem) {
  base::Rng rng(1);
  return Exact().decide(problem, rng);
}

TEST(ExactTest, SharesOneServerByMarginalUtility) {
  // sqrt(a) + 2 sqrt(b), a + b = 5: b = 4 a, so 1 and 4.
  const Cluster cluster = flat_cluster({5});
  std::vector<Job> jobs = {elastic_job(cluster, "a", 1, 5), elastic_job(cluster, "b", 1, 5)};
  jobs[1].weight = 2;
  const SlotProblem problem = problem_of(cluster, jobs);
  const Decision decision = decide(problem);
  EXPECT_THAT(workers_of(problem, decision), ElementsAre(1, 4));
  EXPECT_NEAR(decision.utility, 1 + 2 * 2, 1e-9);
  EXPECT_NEAR(*decision.bound, 5, 1e-4);
  EXPECT_FALSE(decision.limited);
}

TEST(ExactTest, TheLinkDecidesWhichJobMaySpan) {
  // Two servers of 2 GPUs on links of 10: each job's ring of 4 would cross both links once; b = 6 leaves room for one of them only.
  const Cluster cluster = tree_cluster({.racks = 1, .servers_per_rack = 2, .gpus = 2, .server_bandwidth = 10});
  std::vector<Job> jobs = {elastic_job(cluster, "a", 1, 3), elastic_job(cluster, "b", 1, 3)};
  for (Job& job : jobs) {
    job.edge_bandwidth = {6};
    job.utility.kind = model::UtilityKind::kLinear;
  }
  const SlotProblem problem = problem_of(cluster, jobs);
  // 3 + 1: the first spans, the second has the last place; 2 + 2 is worth the same.
  EXPECT_NEAR(decide(problem).utility, 4, 1e-9);
  jobs[0].min_workers = 3;
  jobs[1].min_workers = 3;
  EXPECT_NEAR(decide(problem_of(cluster, jobs)).utility, 3, 1e-9);
  jobs[0].edge_bandwidth = {11};  // can never span
  const SlotProblem one = problem_of(cluster, jobs);
  EXPECT_THAT(workers_of(one, decide(one)), ElementsAre(0, 3));
  jobs[1].edge_bandwidth = {10.5};
  EXPECT_THAT(decide(problem_of(cluster, jobs)).placements, IsEmpty());
}

TEST(ExactTest, AManyVisitedUplinkIsLoadedOnceByARingInRackOrder) {
  // Two racks of two servers with one GPU each: a ring of four in rack order crosses each uplink once each way. Uplinks of b are enough.
  const Cluster cluster = tree_cluster({.racks = 2, .servers_per_rack = 2, .gpus = 1, .server_bandwidth = 1, .uplink_bandwidth = 1});
  std::vector<Job> jobs = {rigid_job(cluster, "a", 4)};
  jobs[0].edge_bandwidth = {1};
  const SlotProblem problem = problem_of(cluster, jobs);
  const Decision decision = decide(problem);
  ASSERT_EQ(decision.placements.size(), 1u);
  EXPECT_EQ(model::rack_crossings(cluster, decision.placements[0].embedding.ring), 2);
  EXPECT_THAT(check_decision(problem, decision), IsEmpty());
}

TEST(ExactTest, KeepsARingWhoseResizeWouldCostMoreThanItBrings) {
  const Cluster cluster = flat_cluster({4});
  std::vector<Job> jobs = {elastic_job(cluster, "a", 1, 4)};
  jobs[0].progress.resize_s = 20;
  SlotProblem problem = problem_of(cluster, jobs);
  const model::Embedding current{{model::ServerId(0), model::ServerId(0), model::ServerId(0)}, {{}, {}, {}}, {}};
  problem.jobs[0].current = &current;
  // Of 60 s, 40 are left after a resize: 4 * 2/3 < 3.
  EXPECT_THAT(workers_of(problem, decide(problem)), ElementsAre(3));
  jobs[0].progress.resize_s = 10;  // 4 * 5/6 > 3
  EXPECT_THAT(workers_of(problem, decide(problem)), ElementsAre(4));
}

TEST(ExactTest, NothingToDoIsAnAnswer) {
  const Cluster cluster = flat_cluster({1});
  EXPECT_THAT(decide(problem_of(cluster, {})).placements, IsEmpty());
  std::vector<Job> jobs = {rigid_job(cluster, "a", 2)};
  const Decision decision = decide(problem_of(cluster, jobs));
  EXPECT_THAT(decision.placements, IsEmpty());
  EXPECT_EQ(*decision.bound, 0);
}

TEST(ExactTest, AgreesWithTheEnumerationOfAllRingsOnTinyCases) {
  base::Rng rng(4);
  int binding = 0;
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    const TinyCase tiny = random_tiny_case(rng);
    const SlotProblem problem = tiny.problem();
    const Decision decision = decide(problem);
    const double best = best_by_enumeration(problem);
    EXPECT_FALSE(decision.limited);
    EXPECT_NEAR(decision.utility, best, 2e-6 * best + 1e-12);
    EXPECT_THAT(check_decision(problem, decision), IsEmpty());
    EXPECT_GE(*decision.bound, best - 1e-9);
    EXPECT_LE(*decision.bound, decision.utility * (1 + 1e-5) + 1e-12);
    binding += best < best_without_links(problem) - 1e-9 ? 1 : 0;
  }
  EXPECT_GT(binding, 80);  // links matter in a good part of the cases
}

TEST(ExactTest, MostTightInstancesNeedAFewNodesAndTheOthersEndWithASmallProvenGap) {
  base::Rng rng(12);
  int proven = 0;
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    const TightCase tight = random_tight_case(rng);
    const SlotProblem problem = tight.problem();
    const Decision decision = Exact({.nodes = 30}).decide(problem, rng);
    EXPECT_THAT(check_decision(problem, decision), IsEmpty());
    EXPECT_EQ(decision.limited, *decision.gap > 2e-6);
    EXPECT_LE(*decision.gap, 0.03);
    proven += decision.limited ? 0 : 1;
  }
  EXPECT_GE(proven, 8);
}

}  // namespace
}  // namespace maypole::sched
