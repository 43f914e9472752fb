// SPDX-License-Identifier: Apache-2.0

// Every policy under the controller, on random clusters, with random events: jobs come and are cancelled, servers are drained and return,
// progress is reported. The checker must find nothing, and the books must balance.

#include "maypole/base/clock.h"
#include "maypole/sched/controller.h"
#include "maypole/sched/sched_testing.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

namespace maypole::sched {
namespace {

using ::testing::IsEmpty;

class ControllerProperty : public ::testing::TestWithParam<std::string> {};

TEST_P(ControllerProperty, NoDecisionBreaksAConstraintWhateverHappens) {
  const char* given = std::getenv("MAYPOLE_TEST_SEED");
  const std::uint64_t first = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  const bool slow = GetParam() == "exact";  // the integer program takes its time, the more jobs have come
  const std::uint64_t last = given != nullptr || slow ? first : 6;
  const int slots = slow ? 15 : 40;
  PolicyOptions options;
  options.exact_nodes = 5;  // what it does after that does not matter here
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(fmt::format("MAYPOLE_TEST_SEED={}", seed));
    base::Rng rng(seed, "property");
    const model::Cluster cluster = random_cluster(rng);
    const base::ManualClock clock;
    Controller controller(cluster, make_policy(GetParam(), options).value(), {60, 0, seed, true}, clock);
    double progress = 0;
    for (int slot = 0; slot < slots; ++slot) {
      const double now_s = 60.0 * slot;
      for (auto coming = rng.uniform_int(0, 2); coming > 0; --coming) {
        model::Job job = random_job(rng, cluster, slot * 10 + static_cast<int>(coming), 60, 40);
        job.arrival_s = now_s;
        EXPECT_TRUE(controller.submit(std::move(job)).ok());
      }
      const auto server = model::ServerId(static_cast<int>(rng.uniform_int(0, static_cast<std::int64_t>(cluster.num_servers()) - 1)));
      if (rng.uniform() < 0.1) {
        controller.drain(server);
      } else if (rng.uniform() < 0.2) {
        controller.restore(server);
      }
      const SlotOutcome outcome = controller.decide(slot);
      ASSERT_THAT(outcome.violations, IsEmpty()) << "slot " << slot;
      if (!outcome.decision.placements.empty()) {
        const model::JobId some = outcome.decision.placements.front().job;
        if (rng.uniform() < 0.1) {
          controller.cancelled(some, now_s + 30);
        } else if (rng.uniform() < 0.2) {
          controller.report_progress(some, controller.record(some).progress + rng.uniform(0, 10));
        }
      }
      (void)controller.end_slot();
      double sum = 0;
      for (std::size_t i = 0; i < controller.num_jobs(); ++i) {
        const JobRecord& record = controller.record(model::JobId::from_index(i));
        sum += record.progress;
        EXPECT_LE(record.progress, record.job.work.value_or(1e300));
        EXPECT_LE(record.worker_slots, record.job.budget.value_or(1e300) + 1e-9);
        EXPECT_EQ(record.current.has_value(), record.phase == JobPhase::kRunning);
      }
      EXPECT_GE(sum, progress);
      progress = sum;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, ControllerProperty, ::testing::ValuesIn(policy_names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace maypole::sched
