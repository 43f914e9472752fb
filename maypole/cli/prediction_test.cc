// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/prediction.h"

#include "maypole/model/status_testing.h"
#include "maypole/overlap/iteration_simulator.h"
#include "maypole/overlap/paper_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::cli {
namespace {

/// A run whose measured time is what the simulator says under some contention.
struct Case {
  model::Profile profile = overlap::paper_profile("resnet50").value();
  overlap::Network network = overlap::named_network("10GbE").value();
  MeasuredRun run;
};

Case case_of(const char* schedule, double contention_s_per_byte) {
  Case c;
  const overlap::FusionPlan plan = overlap::plan_fusion(overlap::planned_tensors(c.profile), {}).value();
  overlap::Network slowed = c.network;
  slowed.contention_s_per_byte = contention_s_per_byte;
  c.run.file = "r.json";
  c.run.report.schedule = schedule;
  c.run.report.update = "replicated";
  c.run.report.world_size = 2;
  c.run.report.iteration_s = overlap::simulate(c.profile, slowed, 2, *overlap::make_schedule(schedule).value(), plan).iteration_s;
  for (const overlap::Group& group : plan.groups) {
    c.run.report.groups.push_back({.bytes = group.range.size() * 4});
  }
  return c;
}

TEST(Prediction, RunsTheGroupsOfTheReport) {
  for (const char* schedule : {"wfbp", "dear", "weave"}) {
    const Case c = case_of(schedule, 0);
    const Prediction prediction = predict(c.profile, c.network, c.run).value();
    EXPECT_NEAR(prediction.predicted_s, prediction.measured_s, 1e-9) << schedule;
    EXPECT_EQ(prediction.workers, 2);
  }
}

TEST(Prediction, ContentionIsFittedToRuns) {
  const Case c = case_of("weave", 3e-10);
  const Case other = case_of("wfbp", 3e-10);
  const std::vector<MeasuredRun> runs = {c.run, other.run};
  overlap::Network network = c.network;
  network.contention_s_per_byte = fit_contention_to(c.profile, network, runs).value();
  EXPECT_NEAR(network.contention_s_per_byte, 3e-10, 1e-12);
  EXPECT_NEAR(predict(c.profile, network, c.run)->predicted_s, c.run.report.iteration_s, 1e-4);
}

TEST(Prediction, ARunOfAnotherModelIsRefused) {
  Case c = case_of("weave", 0);
  c.run.report.groups.pop_back();
  c.run.report.groups.pop_back();
  EXPECT_THAT(predict(c.profile, c.network, c.run), model::FailsWith("r.json: its groups hold"));
}

}  // namespace
}  // namespace maypole::cli
