// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/explain.h"

#include "maypole/base/test_seed.h"
#include "maypole/sched/sched_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace maypole::sched {
namespace {

using model::Cluster;
using model::Job;
using model::ServerId;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

Explanation explained(const SlotProblem& problem, const std::string& policy, const PolicyOptions& options = {}) {
  base::Rng rng(1);
  return explain(problem, policy_named(policy, options)->decide(problem, rng), policy);
}

TEST(Explain, SaysWhichAmountAWaitingJobLacksAndWhenItWillStart) {
  const Cluster cluster = flat_cluster({4, 4});
  std::vector<Job> jobs = {rigid_job(cluster, "a", 5), rigid_job(cluster, "b", 4), rigid_job(cluster, "c", 6)};
  jobs[0].work = 50;  // ten slots of five workers
  jobs[1].work = 40;
  const Explanation explanation = explained(problem_of(cluster, jobs), "fifo");
  EXPECT_EQ(explanation.jobs[0].reason, Reason::kAtMaximum);
  const JobExplanation& b = explanation.jobs[1];
  EXPECT_EQ(b.reason, Reason::kWaitsForAmount);
  EXPECT_EQ(b.why, "It waits for 4 workers: 4 gpu are needed, 3 are free in the whole cluster.");
  EXPECT_EQ(b.place, 1);
  EXPECT_EQ(b.start_s, 600);
  EXPECT_THAT(b.help, HasSubstr("1 more gpu"));
  EXPECT_THAT(b.help, HasSubstr("at most 3 workers, which would fit now"));
  EXPECT_EQ(explanation.jobs[2].place, 2);
  EXPECT_EQ(explanation.jobs[2].start_s, 1200);  // when b has ended too
  EXPECT_EQ(summary_of(explanation), "3 jobs: 1 at_maximum, 2 waits_for_amount");
}

TEST(Explain, TheEstimatedStartOfFifoIsTheStart) {
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  base::Rng rng(seed);
  int compared = 0;
  for (int trial = 0; trial < 50; ++trial) {
    model::Instance instance{flat_cluster({4, 4, 2}), {}, 60, 400, 1};
    for (int i = 0; i < 8; ++i) {
      Job job = rigid_job(instance.cluster, "j" + std::to_string(i), static_cast<int>(rng.uniform_int(1, 8)));
      job.work = static_cast<double>(rng.uniform_int(1, 60));
      instance.jobs.push_back(job);
    }
    const PolicyRun run = run_policy(*policy_named("fifo", {.topology_aware = true}), instance, 1);
    const Explanation explanation = explained(problem_of(instance.cluster, instance.jobs), "fifo", {.topology_aware = true});
    for (std::size_t i = 0; i < instance.jobs.size(); ++i) {
      if (!waits(explanation.jobs[i].reason)) {
        continue;
      }
      std::int64_t start = 0;
      while (std::ranges::find(run.decisions[static_cast<std::size_t>(start)].placements, model::JobId::from_index(i), &Placement::job) ==
             run.decisions[static_cast<std::size_t>(start)].placements.end()) {
        ++start;
      }
      EXPECT_EQ(explanation.jobs[i].start_s, static_cast<double>(start) * 60);
      ++compared;
    }
  }
  EXPECT_GT(compared, 50);
}

TEST(Explain, SaysThatTheTotalIsEnoughButTheShapeIsNot) {
  const Cluster cluster = flat_cluster({7, 7, 8});
  std::vector<Job> jobs = {rigid_job(cluster, "pair", 2)};
  jobs[0].demand[cluster.accelerator()] = 8;
  const Explanation explanation = explained(problem_of(cluster, jobs), "gadget");
  EXPECT_EQ(explanation.jobs[0].reason, Reason::kWaitsForShape);
  EXPECT_THAT(explanation.jobs[0].why, HasSubstr("one worker needs 8 gpu on one server, and s0 comes nearest with 7 to spare"));
  EXPECT_EQ(explanation.jobs[0].start_s, std::nullopt);
}

/// Two racks of two servers with two GPUs; a heavy job holds the links between the servers of rack 0.
class ExplainLinks : public ::testing::Test {
 protected:
  ExplainLinks() {
    jobs_ = {elastic_job(cluster_, "heavy", 2, 2), elastic_job(cluster_, "other", 2, 4)};
    jobs_[0].edge_bandwidth = {8};
    jobs_[1].edge_bandwidth = {5};
  }
  void place(std::size_t job, std::vector<ServerId> ring) {
    RingPlacer placer(cluster_, RingStyle::kTopology);
    decision_.placements.push_back({model::JobId::from_index(job), placer.embed(jobs_[job], std::move(ring))});
  }
  Explanation explanation() {
    problem_ = problem_of(cluster_, jobs_);
    return explain(problem_, decision_, "drf");
  }

  Cluster cluster_ = tree_cluster({.racks = 2, .servers_per_rack = 2, .gpus = 2, .server_bandwidth = 10, .uplink_bandwidth = 4});
  std::vector<Job> jobs_;
  SlotProblem problem_;
  Decision decision_;
};

TEST_F(ExplainLinks, NamesTheLinkThatKeepsAJobFromGrowing) {
  place(0, {ServerId(0), ServerId(1)});
  place(1, {ServerId(2), ServerId(2), ServerId(3), ServerId(3)});
  jobs_[1].max_workers = 6;
  const JobExplanation other = explanation().jobs[1];
  EXPECT_EQ(other.reason, Reason::kNoBandwidthForMore);
  EXPECT_EQ(other.one_more.blocker.kind, BlockerKind::kBandwidth);
  EXPECT_DOUBLE_EQ(other.one_more.blocker.needed, 5);
  EXPECT_NEAR(other.one_more.utility, std::sqrt(5.0) - std::sqrt(4.0), 1e-12);
  EXPECT_THAT(other.where, StartsWith("s2 x2, s3 x2: 2 servers, 1 rack, 0 crossings between racks"));
}

TEST_F(ExplainLinks, NamesTheLinkThatKeepsAJobOut) {
  place(0, {ServerId(0), ServerId(1)});
  jobs_[1].demand[cluster_.accelerator()] = 1;
  jobs_.push_back(elastic_job(cluster_, "filler", 4, 4));
  place(2, {ServerId(2), ServerId(2), ServerId(3), ServerId(3)});
  const JobExplanation other = explanation().jobs[1];
  EXPECT_EQ(other.reason, Reason::kWaitsForBandwidth);
  EXPECT_EQ(other.blocker.name, "s0-r0");
  EXPECT_DOUBLE_EQ(other.blocker.needed, 5);
  EXPECT_DOUBLE_EQ(other.blocker.free, 2);
}

TEST_F(ExplainLinks, KnowsThatOnlyTheRackLimitKeepsAJobOut) {
  jobs_[0].edge_bandwidth = {};
  jobs_[1].edge_bandwidth = {};
  jobs_[1].min_workers = jobs_[1].workers = 4;
  jobs_[1].max_racks = 1;
  jobs_[1].max_racks_s = 600;
  place(0, {ServerId(0), ServerId(2)});
  const JobExplanation other = explanation().jobs[1];
  EXPECT_EQ(other.reason, Reason::kWaitsForRacks);
  EXPECT_THAT(other.help, HasSubstr("more of waiting, after which any number of racks will do"));
  EXPECT_EQ(other.start_s, 600);
}

TEST(Explain, KnowsABudgetThatIsTooSmallForARigidPolicy) {
  const Cluster cluster = flat_cluster({8});
  std::vector<Job> jobs = {elastic_job(cluster, "a", 1, 4)};
  jobs[0].budget = 6;
  SlotProblem problem = problem_of(cluster, jobs);
  problem.jobs[0].worker_slots = 4;
  EXPECT_EQ(explained(problem, "fifo").jobs[0].reason, Reason::kWaitsForBudget);
  EXPECT_EQ(explained(problem, "drf").jobs[0].reason, Reason::kAtBudget);
}

TEST(Explain, EveryJobOfEveryDecisionHasOneReasonAndTheCountsAddUp) {
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  base::Rng rng(seed);
  for (int trial = 0; trial < 40; ++trial) {
    const model::Instance instance = random_instance(rng, 14, 1);
    const SlotProblem problem = problem_of(instance.cluster, instance.jobs);
    for (const std::string& policy : policy_names()) {
      if (policy == "exact" && trial % 10 != 0) {
        continue;  // it takes a thousand times as long as the others
      }
      base::Rng draws(trial);
      const Decision decision = policy_named(policy, {.exact_nodes = 5})->decide(problem, draws);
      const Explanation explanation = explain(problem, decision, policy);
      ASSERT_EQ(explanation.jobs.size(), problem.jobs.size());
      int sum = 0;
      for (const auto& [reason, count] : explanation.counts) {
        sum += count;
      }
      EXPECT_EQ(sum, static_cast<int>(problem.jobs.size()));
      std::size_t running = 0;
      for (const JobExplanation& job : explanation.jobs) {
        running += waits(job.reason) ? 0 : 1;
        EXPECT_EQ(waits(job.reason), job.workers == 0);
        EXPECT_EQ(waits(job.reason), job.place > 0);
        EXPECT_THAT(job.why, Not(IsEmpty()));
        EXPECT_THAT(text_of(job), StartsWith(job.id));
        // What is said of room is true: a worker that fits was tried, and what blocks it lacks something.
        const bool lacks = job.blocker.kind == BlockerKind::kAmount || job.blocker.kind == BlockerKind::kShape;
        EXPECT_TRUE(!lacks || job.blocker.needed > job.blocker.free) << text_of(job);
      }
      EXPECT_EQ(running, decision.placements.size());
    }
  }
}

}  // namespace
}  // namespace maypole::sched
