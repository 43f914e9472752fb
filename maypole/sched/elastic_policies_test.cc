// SPDX-License-Identifier: Apache-2.0

// drf and optimus, in cases that can be solved by hand or by trying everything.

#include "maypole/base/test_seed.h"
#include "maypole/sched/policy.h"
#include "maypole/sched/sched_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace maypole::sched {
namespace {

using model::Cluster;
using model::Embedding;
using model::Job;
using model::ServerId;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int> decided(const std::string& policy, const SlotProblem& problem) {
  base::Rng rng(1);
  return workers_of(problem, policy_named(policy)->decide(problem, rng));
}

Embedding on(const std::vector<int>& servers) {
  Embedding embedding;
  for (const int server : servers) {
    embedding.ring.emplace_back(server);
  }
  embedding.edges.resize(servers.size() > 1 ? servers.size() : 0);
  return embedding;
}

/// All ways to give each job from its minimum to its maximum, at most `total` together.
void for_all_counts(const std::vector<Job>& jobs, int total, const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> counts(jobs.size(), 0);
  const std::function<void(std::size_t, int)> choose = [&](std::size_t i, int left) {
    if (i == jobs.size()) {
      visit(counts);
      return;
    }
    for (counts[i] = jobs[i].min_workers; counts[i] <= std::min(left, jobs[i].max_workers); ++counts[i]) {
      choose(i + 1, left - counts[i]);
    }
  };
  choose(0, total);
}

TEST(Drf, SolvesTheExampleOfItsPaper) {
  model::ClusterParts parts;
  parts.resources = {"cpu", "memory"};
  model::Amounts capacity;
  capacity.push_back(9);
  capacity.push_back(18);
  parts.servers = {{"s0", {}, capacity}};
  const Cluster cluster = *Cluster::make(parts);
  std::vector<Job> jobs = {elastic_job(cluster, "a", 1, 9), elastic_job(cluster, "b", 1, 9)};
  jobs[0].demand[model::ResourceId(0)] = 1;
  jobs[0].demand[model::ResourceId(1)] = 4;
  jobs[1].demand[model::ResourceId(0)] = 3;
  jobs[1].demand[model::ResourceId(1)] = 1;
  EXPECT_THAT(decided("drf", problem_of(cluster, jobs)), ElementsAre(3, 2));
}

TEST(Drf, AWeightOfTwoIsTwiceTheShare) {
  const Cluster cluster = flat_cluster({6, 6});
  std::vector<Job> jobs = {elastic_job(cluster, "a", 1, 12), elastic_job(cluster, "b", 1, 12)};
  jobs[1].weight = 2;
  EXPECT_THAT(decided("drf", problem_of(cluster, jobs)), ElementsAre(4, 8));
}

TEST(Drf, AJobGivesItsSurplusBackForAnothersMinimum) {
  const Cluster cluster = flat_cluster({10});
  const std::vector<Job> jobs = {elastic_job(cluster, "a", 5, 10), elastic_job(cluster, "b", 1, 1)};
  SlotProblem problem = problem_of(cluster, jobs);
  const Embedding current = on(std::vector<int>(10, 0));
  problem.jobs[0].current = &current;
  EXPECT_THAT(decided("drf", problem), ElementsAre(9, 1));
}

TEST(Drf, NobodyMovesWhoKeepsItsWorkers) {
  const Cluster cluster = flat_cluster({4, 4, 4});
  const std::vector<Job> jobs = {elastic_job(cluster, "new", 1, 4), elastic_job(cluster, "a", 1, 4), elastic_job(cluster, "b", 1, 4)};
  SlotProblem problem = problem_of(cluster, jobs);
  const Embedding first = on({0, 1, 1, 2});
  const Embedding second = on({2, 2, 0, 0});
  problem.jobs[1].current = &first;
  problem.jobs[2].current = &second;
  base::Rng rng(1);
  const Decision decision = policy_named("drf")->decide(problem, rng);
  ASSERT_THAT(workers_of(problem, decision), ElementsAre(4, 4, 4));
  EXPECT_EQ(decision.placements[1].embedding, first);
  EXPECT_EQ(decision.placements[2].embedding, second);
}

TEST(Drf, MovesRunningJobsOnlyWhereOneWouldStarveOtherwise) {
  const Cluster cluster = flat_cluster({4, 4});
  std::vector<Job> jobs = {elastic_job(cluster, "a", 2, 2), elastic_job(cluster, "b", 2, 2), elastic_job(cluster, "big", 1, 1)};
  jobs[2].demand[cluster.accelerator()] = 4;
  SlotProblem problem = problem_of(cluster, jobs);
  const Embedding first = on({0, 0});
  const Embedding second = on({1, 1});
  problem.jobs[0].current = &first;
  problem.jobs[1].current = &second;
  EXPECT_THAT(decided("drf", problem), ElementsAre(2, 2, 1));
}

TEST(Drf, OnOneResourceItIsMaxMinFair) {
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  base::Rng rng(seed);
  for (int trial = 0; trial < 100; ++trial) {
    const int gpus = static_cast<int>(rng.uniform_int(4, 9));
    const Cluster cluster = flat_cluster({static_cast<double>(gpus)});
    std::vector<Job> jobs;
    for (int i = 0; i < 4; ++i) {
      jobs.push_back(elastic_job(cluster, "j" + std::to_string(i), 1, static_cast<int>(rng.uniform_int(1, 6))));
    }
    std::vector<int> best;
    for_all_counts(jobs, gpus, [&](std::vector<int> counts) {
      std::ranges::sort(counts);
      best = std::max(best, counts);
    });
    std::vector<int> workers = decided("drf", problem_of(cluster, jobs));
    std::ranges::sort(workers);
    EXPECT_EQ(workers, best);
  }
}

TEST(Optimus, GivesWorkersWhereTheyShortenTheSumOfRemainingTimesMost) {
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  base::Rng rng(seed);
  for (int trial = 0; trial < 100; ++trial) {
    const int gpus = static_cast<int>(rng.uniform_int(4, 9));
    const Cluster cluster = flat_cluster({static_cast<double>(gpus)});
    std::vector<Job> jobs;
    for (int i = 0; i < 4; ++i) {
      Job& job = jobs.emplace_back(elastic_job(cluster, "j" + std::to_string(i), 1, static_cast<int>(rng.uniform_int(1, 6))));
      job.work = rng.uniform(1, 50);
      job.progress.kind = model::ProgressKind::kPower;
      job.progress.exponent = rng.uniform(0.4, 1);
    }
    const auto sum = [&](const std::vector<int>& counts) {
      double slots = 0;
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        slots += *jobs[i].work / jobs[i].progress.per_slot({counts[i], 1, {}}, 60);
      }
      return slots;
    };
    double best = std::numeric_limits<double>::infinity();
    for_all_counts(jobs, gpus, [&](const std::vector<int>& counts) { best = std::min(best, sum(counts)); });
    EXPECT_NEAR(sum(decided("optimus", problem_of(cluster, jobs))), best, 1e-9 * best);
  }
}

TEST(Optimus, GivesNoWorkerThatShortensNothing) {
  const Cluster cluster = flat_cluster({8});
  std::vector<Job> jobs = {elastic_job(cluster, "a", 1, 8)};
  jobs[0].work = 1000;
  jobs[0].progress.kind = model::ProgressKind::kTable;
  jobs[0].progress.points = {{1, 1, 1.0}, {2, 1, 1.8}, {4, 1, 1.8}};
  EXPECT_THAT(decided("optimus", problem_of(cluster, jobs)), ElementsAre(2));
}

TEST(Optimus, StartsTheShortestFirstWhereNotAllCanStart) {
  const Cluster cluster = flat_cluster({4});
  std::vector<Job> jobs = {elastic_job(cluster, "long", 3, 4), elastic_job(cluster, "short", 3, 4)};
  jobs[0].work = 100;
  jobs[1].work = 10;
  EXPECT_THAT(decided("optimus", problem_of(cluster, jobs)), ElementsAre(0, 4));
}

TEST(Optimus, EndsAllJobsOfARunSoonerThanOneWorkerEach) {
  const Cluster cluster = flat_cluster({4, 4});
  model::Instance instance{cluster, {}, 60, 40, 1};
  for (int i = 0; i < 3; ++i) {
    Job job = elastic_job(cluster, "j" + std::to_string(i), 1, 8);
    job.work = 40;
    instance.jobs.push_back(job);
  }
  const PolicyRun run = run_policy(*policy_named("optimus"), instance, 1);
  EXPECT_THAT(run.violations, IsEmpty());
  EXPECT_THAT(run.progress, ElementsAre(40, 40, 40));
  std::int64_t last = 0;
  for (const Decision& decision : run.decisions) {
    last = decision.placements.empty() ? last : decision.slot;
  }
  EXPECT_LE(last, 15);  // 120 units of work on 8 GPUs
}

}  // namespace
}  // namespace maypole::sched
