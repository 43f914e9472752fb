// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/offline.h"

#include "maypole/base/status.h"
#include "maypole/sched/policies/exact_testing.h"
#include "maypole/sched/sched_testing.h"
#include "maypole/sched/schedule_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace maypole::sched {
namespace {

using model::Cluster;
using model::Instance;
using model::Job;
using ::testing::IsEmpty;

OfflineOptimum solved(const Instance& instance) {
  absl::StatusOr<OfflineOptimum> optimum = solve_offline(instance);
  EXPECT_TRUE(optimum.ok()) << base::message(optimum.status());
  return optimum.ok() ? *optimum : OfflineOptimum{};
}

TEST(OfflineTest, SavesABudgetForNoOneAndLeavesTheServerToAJobThatComesLater) {
  // One GPU, two slots. `early` may use either slot; `late` arrives for the second and is worth more: one slot each.
  const Cluster cluster = flat_cluster({1});
  Instance instance{cluster, {elastic_job(cluster, "early", 1, 1), elastic_job(cluster, "late", 1, 1)}, 60, 2, 1};
  instance.jobs[1].arrival_s = 60;
  instance.jobs[1].weight = 3;
  EXPECT_NEAR(solved(instance).utility, 1 + 3, 1e-12);
}

TEST(OfflineTest, LooksAheadWhereGreedDoesNot) {
  // A sigmoid with a flat foot: 2 slots of the one GPU lift `steep` to about 10, one lifts it to almost nothing; `flat` gains 1 a slot.
  const Cluster cluster = flat_cluster({1});
  Instance instance{cluster, {elastic_job(cluster, "steep", 1, 1), elastic_job(cluster, "flat", 1, 1)}, 60, 2, 1};
  instance.jobs[0].weight = 10;
  instance.jobs[0].utility = {.kind = model::UtilityKind::kSigmoid, .sensitivity = 20, .expected = 1.5};
  instance.jobs[1].utility.kind = model::UtilityKind::kLinear;
  const OfflineOptimum optimum = solved(instance);
  EXPECT_NEAR(optimum.utility, 10, 0.01);
  EXPECT_EQ(optimum.decisions[0].placements[0].job, model::JobId(0));
  EXPECT_EQ(optimum.decisions[1].placements[0].job, model::JobId(0));
}

TEST(OfflineTest, ABudgetOfWorkerSlotsIsSpreadWhereItIsWorthMost) {
  const Cluster cluster = flat_cluster({4});
  Instance instance{cluster, {elastic_job(cluster, "a", 1, 4), elastic_job(cluster, "b", 1, 4)}, 60, 2, 1};
  instance.jobs[0].budget = 5;
  instance.jobs[0].weight = 10;
  // a: 5 of the 8 worker-slots, b: the other 3.
  EXPECT_NEAR(solved(instance).utility, 10 * std::sqrt(5) + std::sqrt(3), 1e-9);
}

TEST(OfflineTest, SaysWhatItCannotDo) {
  const Cluster cluster = flat_cluster({4});
  Instance instance{cluster, {elastic_job(cluster, "a", 1, 4)}, 60, 0, 1};
  EXPECT_EQ(solve_offline(instance).status().code(), absl::StatusCode::kInvalidArgument);
  instance.slots = 2;
  EXPECT_EQ(solve_offline(instance, {.joint_choices = 3}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(solve_offline(instance, {.steps = 3}).status().code(), absl::StatusCode::kResourceExhausted);
  instance.jobs[0].max_racks = 1;
  instance.jobs[0].max_racks_s = 10;
  EXPECT_EQ(solve_offline(instance).status().code(), absl::StatusCode::kUnimplemented);
}

// The best over all sequences of all rings: nothing merged, nothing remembered.
double best_by_sequences(const Instance& instance, std::vector<ActiveJob> jobs, std::vector<model::Embedding> held, int slot) {
  if (slot == instance.slots) {
    return 0;
  }
  SlotProblem problem;
  problem.cluster = &instance.cluster;
  problem.slot_s = instance.slot_s;
  std::vector<std::vector<TinyOption>> options;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    jobs[j].current = held[j].ring.empty() ? nullptr : &held[j];
    const bool done = jobs[j].job->work && jobs[j].progress >= *jobs[j].job->work * (1 - 1e-9);
    problem.slot = slot;
    options.push_back(jobs[j].job->arrival_s <= problem.start_s() && !done ? all_options(problem, jobs[j]) : std::vector<TinyOption>{});
  }
  const Cluster& cluster = instance.cluster;
  double best = 0;
  std::vector<const TinyOption*> chosen(jobs.size(), nullptr);
  const std::function<void(std::size_t)> choose = [&](std::size_t j) {
    for (std::size_t s = 0; s < cluster.num_servers(); ++s) {
      double load = 0;
      for (std::size_t i = 0; i < j; ++i) {
        load += chosen[i] != nullptr ? chosen[i]->counts[s] * jobs[i].job->demand[cluster.accelerator()] : 0;
      }
      if (load > cluster.parts().servers[s].capacity[cluster.accelerator()] + 1e-9) {
        return;
      }
    }
    for (std::size_t l = 0; l < cluster.num_links(); ++l) {
      double load = 0;
      for (std::size_t i = 0; i < j; ++i) {
        load += chosen[i] != nullptr ? chosen[i]->loads[l] : 0;
      }
      const base::Bandwidth bandwidth = cluster.link(model::LinkId::from_index(l)).bandwidth;
      if (bandwidth.limited() && load > bandwidth.bytes_per_second + 1e-7) {
        return;
      }
    }
    if (j < jobs.size()) {
      choose(j + 1);
      for (const TinyOption& option : options[j]) {
        chosen[j] = &option;
        choose(j + 1);
      }
      chosen[j] = nullptr;
      return;
    }
    double gain = 0;
    std::vector<ActiveJob> next = jobs;
    std::vector<model::Embedding> rings(jobs.size());
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (chosen[i] != nullptr) {
        const model::Embedding& ring = chosen[i]->embedding;
        const bool resized = jobs[i].running() && jobs[i].current->ring != ring.ring;
        const double progress = slot_progress(jobs[i], model::shape_of(ring), resized, instance.slot_s);
        gain += utility_gain(jobs[i], progress, problem.start_s());
        next[i].progress += progress;
        next[i].worker_slots += ring.workers();
        rings[i] = ring;
      }
    }
    best = std::max(best, gain + best_by_sequences(instance, next, rings, slot + 1));
  };
  choose(0);
  return best;
}

TEST(OfflineTest, AgreesWithTheEnumerationOfAllSequencesOnTinyCases) {
  base::Rng rng(31);
  int solvable = 0;
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE(round);
    TinyCase tiny = random_tiny_case(rng);
    if (tiny.cluster.num_servers() > 3) {
      continue;
    }
    tiny.jobs.resize(std::min<std::size_t>(tiny.jobs.size(), 2));
    for (Job& job : tiny.jobs) {
      job.max_workers = std::min(job.max_workers, 2);
      job.workers = job.max_workers;
      job.arrival_s = static_cast<double>(rng.uniform_int(0, 1)) * 30;  // the second slot is the first that begins after it
      if (rng.uniform() < 0.5) {
        job.budget = static_cast<double>(rng.uniform_int(job.min_workers, 3));
      }
      if (rng.uniform() < 0.3) {
        job.work = 2.5;
      }
    }
    const Instance instance{tiny.cluster, tiny.jobs, 60, 2, 1};
    const absl::StatusOr<OfflineOptimum> optimum = solve_offline(instance);
    if (!optimum.ok()) {
      EXPECT_EQ(optimum.status().code(), absl::StatusCode::kUnimplemented) << base::message(optimum.status());
      continue;
    }
    ++solvable;
    std::vector<ActiveJob> jobs = problem_of(instance.cluster, instance.jobs).jobs;
    const double best = best_by_sequences(instance, jobs, std::vector<model::Embedding>(jobs.size()), 0);
    EXPECT_NEAR(optimum->utility, best, 1e-9 * (1 + best));
    double sum = 0;
    for (const Decision& decision : optimum->decisions) {
      sum += decision.utility;
    }
    EXPECT_NEAR(sum, optimum->utility, 1e-9 * (1 + best));
    EXPECT_THAT(check_run(instance, optimum->decisions), IsEmpty());
  }
  EXPECT_GT(solvable, 40);
}

}  // namespace
}  // namespace maypole::sched
