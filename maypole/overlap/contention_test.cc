// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/contention.h"

#include <gtest/gtest.h>

#include <memory>

namespace maypole::overlap {
namespace {

TEST(Contention, IsFoundAgainFromIterationsThatItSlowed) {
  const auto weave = make_schedule("weave").value();
  const auto wfbp = make_schedule("wfbp").value();
  for (const double factor : {0.0, 0.05, 0.3}) {
    std::vector<MeasuredIteration> iterations;
    for (const Schedule* schedule : {weave.get(), wfbp.get()}) {
      MeasuredIteration iteration{
          .schedule = schedule,
          .groups = {{.bytes = 1, .ready_s = 4, .need_s = 0}, {.bytes = 2, .ready_s = 1, .need_s = 1}},
          .setting = {.forward_s = 2, .backward_s = 4, .phase = {0.1, 0.4}, .contention_s_per_byte = factor, .workers = 2}};
      iteration.measured_s = simulate(*schedule, iteration.groups, iteration.setting).iteration_s;
      iteration.setting.contention_s_per_byte = 0;
      iterations.push_back(iteration);
    }
    EXPECT_NEAR(fit_contention(iterations), factor, 1e-3);
  }
}

TEST(Contention, IsTheSamePerByteOnFasterAndSlowerLinks) {
  const auto weave = make_schedule("weave").value();
  std::vector<MeasuredIteration> iterations;
  for (const double s_per_byte : {0.1, 0.5}) {
    MeasuredIteration iteration{
        .schedule = weave.get(),
        .groups = {{.bytes = 1, .ready_s = 4, .need_s = 0}, {.bytes = 2, .ready_s = 1, .need_s = 1}},
        .setting = {.forward_s = 2, .backward_s = 4, .phase = {0, s_per_byte}, .contention_s_per_byte = 0.06, .workers = 2}};
    iteration.measured_s = simulate(*weave, iteration.groups, iteration.setting).iteration_s;
    iterations.push_back(iteration);
  }
  EXPECT_NEAR(fit_contention(iterations), 0.06, 1e-4);
}

TEST(Contention, IsTheLeastWhereTheLinkAloneDecides) {
  const auto sync = make_schedule("sync").value();
  const MeasuredIteration iteration{.schedule = sync.get(),
                                    .groups = {{.bytes = 10, .ready_s = 1, .need_s = 0}},
                                    .setting = {.forward_s = 1, .backward_s = 1, .phase = {0, 1}, .workers = 2},
                                    .measured_s = 30};
  EXPECT_EQ(fit_contention(std::span(&iteration, 1)), 0);
}

TEST(Contention, IsZeroWithoutMeasurements) { EXPECT_EQ(fit_contention({}), 0); }

}  // namespace
}  // namespace maypole::overlap
