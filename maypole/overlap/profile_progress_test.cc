// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/profile_progress.h"

#include "maypole/base/status.h"
#include "maypole/overlap/iteration_simulator.h"
#include "maypole/overlap/paper_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace maypole::overlap {
namespace {

using ::testing::HasSubstr;

constexpr double kSlotSeconds = 60;

ProfiledJob job_of(const std::string& schedule, std::size_t workers) {
  ProfiledJob job;
  job.schedule = schedule;
  job.max_workers = workers;
  job.network = *named_network("10GbE");
  return job;
}

/// What the simulator says of the same ring, with no table between.
double simulated_s(const model::Profile& profile, const ProfiledJob& job, std::size_t workers, const EdgeCost& edge) {
  Network network = job.network;
  network.between_hosts = edge;
  IterationSetting setting = setting_of(profile, network, workers);
  setting.update = job.update;
  const FusionPlan plan = *plan_fusion(planned_tensors(profile), job.fusion);
  return simulate(**make_schedule(job.schedule), group_loads(profile, plan), setting).iteration_s;
}

TEST(ProfileProgress, RatesAreTheSimulatorsForEveryNumberOfWorkersAndEveryEdge) {
  for (const std::string model : {"resnet50", "bert-base"}) {
    const model::Profile profile = *paper_profile(model);
    for (const std::string schedule : {"sync", "wfbp", "dear", "weave"}) {
      ProfiledJob job = job_of(schedule, 8);
      job.network.contention_s_per_byte = 1e-10;
      const model::ProgressModel progress = *progress_of(profile, job);
      EXPECT_EQ(progress.kind, model::ProgressKind::kProfile);
      for (std::size_t workers = 1; workers <= 8; ++workers) {
        for (const double bits : {2e8, 1e9, 3.3e9, 1e10, 2.2e10, 6e10, 1e11, 4e11}) {
          const base::Bandwidth edge{bits / 8};
          const double expected_s = simulated_s(profile, job, workers, {job.network.between_hosts.alpha_s, 1 / edge.bytes_per_second});
          const double rate = progress.per_slot({static_cast<int>(workers), workers > 1 ? 2 : 1, edge}, kSlotSeconds);
          const double expected = kSlotSeconds * static_cast<double>(workers) / expected_s;
          EXPECT_NEAR(rate, expected, 0.005 * expected) << model << " " << schedule << " " << workers << " workers, " << bits << " bit/s";
        }
      }
    }
  }
}

TEST(ProfileProgress, WorkersOnOneServerUseItsOwnEdges) {
  const model::Profile profile = *paper_profile("resnet50");
  ProfiledJob job = job_of("weave", 4);
  const double expected_s = simulated_s(profile, job, 4, job.network.within_host);
  job.network.contention_s_per_byte = 1e-9;  // of bytes between servers
  const model::ProgressModel progress = *progress_of(profile, job);
  EXPECT_NEAR(progress.iteration_s({4, 1, {1e6}}), expected_s, 0.005 * expected_s) << "a reservation is for edges between servers";
}

TEST(ProfileProgress, AJobThatReservesNothingHasTheNetworksBandwidth) {
  const model::Profile profile = *paper_profile("resnet50");
  const ProfiledJob job = job_of("weave", 4);
  const model::ProgressModel progress = *progress_of(profile, job);
  EXPECT_DOUBLE_EQ(progress.iteration_s({4, 2, {}}), progress.iteration_s({4, 2, {1 / job.network.between_hosts.beta_s_per_byte}}));
}

TEST(ProfileProgress, ManyWorkersAreThinnedOutAndStayRight) {
  const model::Profile profile = *paper_profile("resnet50");
  const ProfiledJob job = job_of("dear", 100);
  const model::ProgressModel progress = *progress_of(profile, job);
  EXPECT_LT(progress.iterations.size(), 2000U);
  for (const std::size_t workers : {15U, 35U, 67U, 99U, 100U}) {
    const double expected_s = simulated_s(profile, job, workers, job.network.between_hosts);
    EXPECT_NEAR(progress.iteration_s({static_cast<int>(workers), 9, {}}), expected_s, 0.005 * expected_s) << workers;
  }
}

TEST(ProfileProgress, ShardedUpdatesArePartOfIt) {
  const model::Profile profile = [] {
    model::Profile made = *paper_profile("bert-base");
    made.update_s = 0.05;
    return made;
  }();
  ProfiledJob job = job_of("weave", 4);
  const double replicated_s = progress_of(profile, job)->iteration_s({4, 2, {}});
  job.update = UpdateMode::kSharded;
  const double sharded_s = progress_of(profile, job)->iteration_s({4, 2, {}});
  EXPECT_NEAR(sharded_s, simulated_s(profile, job, 4, job.network.between_hosts), 0.005 * sharded_s);
  EXPECT_NE(sharded_s, replicated_s);
}

TEST(ProfileProgress, RefusesWhatNoJobCanBe) {
  const model::Profile profile = *paper_profile("resnet50");
  const auto error = [&](const ProfiledJob& job) { return base::message(progress_of(profile, job).status()); };
  EXPECT_THAT(error(job_of("hurry", 2)), HasSubstr("hurry"));
  EXPECT_THAT(error(job_of("weave", 0)), HasSubstr("at least one worker"));
  ProfiledJob sharded = job_of("wfbp", 2);
  sharded.update = UpdateMode::kSharded;
  EXPECT_THAT(error(sharded), HasSubstr("schedule wfbp has no sharded updates"));
  ProfiledJob broken = job_of("weave", 2);
  broken.network.between_hosts.alpha_s = -1;
  EXPECT_THAT(error(broken), HasSubstr("start-up time"));
}

}  // namespace
}  // namespace maypole::overlap
