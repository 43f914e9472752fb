// SPDX-License-Identifier: Apache-2.0

// What `gadget-blind` learns from jobs that have ended, and what that is good for.

#include "maypole/base/clock.h"
#include "maypole/sched/controller.h"
#include "maypole/sched/policies/gadget_service_index.h"
#include "maypole/sched/sched_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

namespace maypole::sched {
namespace {

using gadget::ServiceIndex;
using model::Cluster;
using model::Job;
using model::JobId;

double index_of(const ServiceHistory& history, double service_s) {
  SlotProblem problem;
  problem.history = &history;
  return ServiceIndex(problem)(service_s);
}

TEST(ServiceHistory, CountsWhoCameToABinAndWhoEndedInIt) {
  ServiceHistory history;
  history.add(5, /*ended=*/true);    // in [4, 8)
  history.add(3, /*ended=*/false);   // in [2, 4)
  history.add(0.5, /*ended=*/true);  // in [0, 1)
  using Bin = ServiceHistory::Bin;
  EXPECT_EQ(history.bins()[0], (Bin{1, 2.5}));
  EXPECT_EQ(history.bins()[1], (Bin{0, 2}));
  EXPECT_EQ(history.bins()[2], (Bin{0, 3}));
  EXPECT_EQ(history.bins()[3], (Bin{1, 1}));
  EXPECT_EQ(history.bins()[4], Bin{});
}

TEST(ServiceIndex, OfLengthsThatVaryLittleRisesWithServiceAndOfLongTailsFalls) {
  ServiceHistory equal;
  ServiceHistory tail;
  for (int k = 0; k < 1000; ++k) {
    equal.add(10'000, true);
    tail.add(100.0 * 1000 / (k + 1), true);  // beyond x lies the share 100 / x
  }
  EXPECT_GT(index_of(equal, 5000), 1.2 * index_of(equal, 500));
  EXPECT_GT(index_of(equal, 9000), 2 * index_of(equal, 500));
  EXPECT_NEAR(index_of(equal, 0), 1e-4, 2e-5) << "of a new job it is one over the length that all have";
  EXPECT_LT(index_of(tail, 2000), 0.2 * index_of(tail, 200));
  EXPECT_LT(index_of({}, 2000), 0.2 * index_of({}, 200)) << "where nothing has been seen, who has had least comes first";
}

TEST(GadgetBlind, DecidesTheSameWhateverTheLengthsThatItMayNotSee) {
  const Cluster cluster = flat_cluster({4, 2});
  std::vector<Job> jobs;
  for (int k = 0; k < 8; ++k) {
    Job& job = jobs.emplace_back(rigid_job(cluster, fmt::format("j{}", k), 1 + k % 3));
    job.utility.kind = model::UtilityKind::kLinear;
    job.work = 1000 * (k + 1);
  }
  const SlotProblem problem = problem_of(cluster, jobs);
  base::Rng rng(1);
  const Decision first = policy_named("gadget-blind")->decide(problem, rng);
  for (int k = 0; k < 8; ++k) {
    jobs[static_cast<std::size_t>(k)].work = 1000 * (8 - k);
  }
  rng = base::Rng(1);
  EXPECT_EQ(policy_named("gadget-blind")->decide(problem, rng).placements, first.placements);
}

struct Served {
  double mean_s = 0;  // completion time
  int preemptions = 0;
};

/// Bursts of jobs of one GPU on four, one every six hours, in the order given. Slots of five minutes.
Served serve(const std::string& policy, const PolicyOptions& options, const std::vector<double>& burst_s) {
  constexpr int kBursts = 12;
  const base::SteadyClock clock;
  Controller controller(flat_cluster({4}), policy_named(policy, options), {.slot_s = 300, .slots = 0, .seed = 1}, clock);
  int submitted = 0;
  for (std::int64_t slot = 0; submitted < kBursts || !controller.active().empty(); ++slot) {
    if (slot % 72 == 0 && submitted < kBursts) {
      for (std::size_t k = 0; k < burst_s.size(); ++k) {
        Job job = rigid_job(controller.cluster(), fmt::format("b{}-{}", submitted, k), 1);
        job.arrival_s = static_cast<double>(slot) * 300;
        job.utility.kind = model::UtilityKind::kLinear;
        job.progress.zeta = 300;
        job.work = burst_s[k];
        EXPECT_TRUE(controller.submit(job).ok());
      }
      ++submitted;
    }
    if (!controller.active().empty()) {
      EXPECT_THAT(controller.decide(slot).violations, ::testing::IsEmpty());
      (void)controller.end_slot();
    }
  }
  Served served;
  for (std::size_t k = 0; k < controller.num_jobs(); ++k) {
    const JobRecord& record = controller.record(JobId::from_index(k));
    served.mean_s += (*record.ended_s - record.job.arrival_s) / static_cast<double>(controller.num_jobs());
    served.preemptions += record.preemptions;
  }
  return served;
}

TEST(GadgetBlind, RunsJobsThroughWhereTheyAreAllAlikeAndTakesTurnsWhereFewAreVeryLong) {
  const std::vector<double> alike(20, 3600);
  std::vector<double> mixed(18, 600);
  mixed.insert(mixed.begin() + 6, 2, 9 * 3600);
  const Served fifo = serve("fifo", {}, alike);
  const Served las = serve("las", {.las_threshold_s = -1}, alike);
  const Served ours = serve("gadget-blind", {}, alike);
  EXPECT_GT(las.mean_s, 1.2 * fifo.mean_s) << "turns cost much here";
  EXPECT_LE(ours.mean_s, 1.02 * fifo.mean_s);
  EXPECT_LE(ours.preemptions, 12);  // of 240 jobs: in the first bursts it has seen nothing yet
  const Served fifo_mixed = serve("fifo", {}, mixed);
  const Served las_mixed = serve("las", {.las_threshold_s = -1}, mixed);
  const Served ours_mixed = serve("gadget-blind", {}, mixed);
  EXPECT_GT(fifo_mixed.mean_s, 1.5 * las_mixed.mean_s) << "to let all run through costs much here";
  EXPECT_LE(ours_mixed.mean_s, 1.05 * las_mixed.mean_s);
  RecordProperty("alike", fmt::format("fifo {:.0f}, las {:.0f}, ours {:.0f} s, {} preemptions", fifo.mean_s, las.mean_s, ours.mean_s,
                                      ours.preemptions));
  RecordProperty("mixed", fmt::format("fifo {:.0f}, las {:.0f}, ours {:.0f} s", fifo_mixed.mean_s, las_mixed.mean_s, ours_mixed.mean_s));
}

}  // namespace
}  // namespace maypole::sched
