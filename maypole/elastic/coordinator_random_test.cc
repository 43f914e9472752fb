// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/rng.h"
#include "maypole/elastic/coordinator_testing.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace maypole::elastic {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Random kills, freezes, cut links, refusals and resizes: the run either trains with the number that is wanted, or has failed and says so.
TEST(CoordinatorRandomTest, AnySequenceOfEventsLeadsToARunThatTrainsOrHasFailed) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    ScriptedRun run(options(1, 3, 6, 10));
    run.begin(3);
    for (int event = 0; event < 40 && !run.failure; ++event) {
      std::vector<int> alive;
      for (const int worker : run.started) {
        if (!run.ended.contains(worker) && std::ranges::find(run.killed, worker) == run.killed.end()) {
          alive.push_back(worker);
        }
      }
      ASSERT_FALSE(alive.empty());
      const int some = alive[static_cast<std::size_t>(rng.uniform_int(0, static_cast<std::int64_t>(alive.size()) - 1))];
      switch (rng.uniform_int(0, 5)) {
        case 0:
          run.end(some);
          break;
        case 1:
          run.resize(static_cast<int>(rng.uniform_int(1, 6)));
          break;
        case 2:
          run.ready(some);
          break;
        case 3:
          run.stop(rng.uniform() < 0.5 ? "a link was cut" : "");
          break;
        case 4:
          run.enter();
          break;
        default:
          run.pass(milliseconds(250));
          break;
      }
    }
    // Now everybody does what a healthy worker does.
    for (int i = 0; i < 20 && !run.failure; ++i) {
      for (const int worker : std::set<int>(run.started)) {
        if (!run.ended.contains(worker)) {
          run.ready(worker);
        }
      }
      run.pass(seconds(11));
      run.stop();
      run.enter();
    }
    if (!run.failure) {
      EXPECT_EQ(run.members().size(), static_cast<std::size_t>(run.coordinator.num_workers()));
      EXPECT_GE(run.members().size(), 1U);
      EXPECT_LE(run.members().size(), 6U);
      EXPECT_EQ(run.answers.size(), run.request) << "every request is answered exactly once";
    }
  }
}

}  // namespace
}  // namespace maypole::elastic
