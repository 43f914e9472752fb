// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/contention.h"

#include <gtest/gtest.h>

#include <memory>

namespace maypole::overlap {
namespace {

TEST(Contention, IsFoundAgainFromIterationsThatItSlowed) {
  const auto weave = make_schedule("weave").value();
  const auto wfbp = make_schedule("wfbp").value();
  for (const double factor : {0.0, 0.13, 0.8}) {
    std::vector<MeasuredIteration> iterations;
    for (const Schedule* schedule : {weave.get(), wfbp.get()}) {
      MeasuredIteration iteration{.schedule = schedule,
                                  .groups = {{.bytes = 1, .ready_s = 4, .need_s = 0}, {.bytes = 2, .ready_s = 1, .need_s = 1}},
                                  .setting = {.forward_s = 2, .backward_s = 4, .phase = {0.1, 0.4}, .contention = factor, .workers = 2}};
      iteration.measured_s = simulate(*schedule, iteration.groups, iteration.setting).iteration_s;
      iteration.setting.contention = 0;
      iterations.push_back(iteration);
    }
    EXPECT_NEAR(fit_contention(iterations), factor, 1e-3);
  }
}

TEST(Contention, IsZeroWithoutMeasurements) { EXPECT_EQ(fit_contention({}), 0); }

}  // namespace
}  // namespace maypole::overlap
