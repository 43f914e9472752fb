// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/schedule.h"
#include "maypole/base/test_seed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace maypole::overlap {

void PrintTo(const Action& action, std::ostream* out) { *out << (action.phase == Phase::kReduceScatter ? "RS" : "AG") << action.group; }

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Action rs(std::size_t group) { return {Phase::kReduceScatter, group}; }
Action ag(std::size_t group) { return {Phase::kAllGather, group}; }

constexpr GroupProgress kReady{.ready = true};
constexpr GroupProgress kReducing{.ready = true, .reduce_started = true};
constexpr GroupProgress kReduced{.ready = true, .reduce_started = true, .reduce_done = true};
constexpr GroupProgress kGathering{.ready = true, .reduce_started = true, .reduce_done = true, .gather_started = true};

struct Moment {
  std::vector<GroupProgress> groups;
  bool backward_done = false;
  bool step_called = false;
  UpdateMode update = UpdateMode::kReplicated;
};

std::vector<Action> next(std::string_view schedule, const Moment& moment) {
  return make_schedule(schedule).value()->next({moment.groups, moment.backward_done, moment.step_called, moment.update});
}

TEST(Schedule, UnknownNameListsTheNamesThereAre) {
  const auto result = make_schedule("fifo");
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("sync, wfbp, dear, weave"));
}

TEST(Schedule, SyncStartsNothingDuringBackward) {
  EXPECT_THAT(next("sync", {{kReady, kReady}}), IsEmpty());
  EXPECT_THAT(next("sync", {{kReady, kReady}, true}), ElementsAre(rs(1), rs(0)));
  EXPECT_THAT(next("sync", {{kReducing, kReduced}, true}), ElementsAre(ag(1)));
}

TEST(Schedule, WfbpReducesAndGathersGroupsBackToBack) {
  EXPECT_THAT(next("wfbp", {{{}, kReady, kReady}}), ElementsAre(rs(2)));
  EXPECT_THAT(next("wfbp", {{{}, kReady, kReducing}}), IsEmpty());
  EXPECT_THAT(next("wfbp", {{{}, kReady, kReduced}}), ElementsAre(ag(2)));
  EXPECT_THAT(next("wfbp", {{{}, kReady, kGathering}}), ElementsAre(rs(1)));
}

TEST(Schedule, ReduceScatterNeverOvertakesALaterGroup) {
  for (const char* name : {"wfbp", "dear", "weave"}) {
    EXPECT_THAT(next(name, {{kReady, {}}}), IsEmpty()) << name;
  }
}

TEST(Schedule, DearWaitsForEveryReduceScatterAndForStep) {
  EXPECT_THAT(next("dear", {{kReducing, kReduced}, true, true}), IsEmpty());
  EXPECT_THAT(next("dear", {{kReduced, kReduced}, true, false}), IsEmpty());
  EXPECT_THAT(next("dear", {{kReduced, kReduced}, true, true}), ElementsAre(ag(0), ag(1)));
}

TEST(Schedule, WeaveGathersWhileNoReduceScatterWaits) {
  EXPECT_THAT(next("weave", {{{}, kReady, kReduced}}), ElementsAre(rs(1)));
  EXPECT_THAT(next("weave", {{{}, kReducing, kReduced}}), ElementsAre(ag(2)));
  EXPECT_THAT(next("weave", {{kReduced, kReduced, kGathering}, true, true}), ElementsAre(ag(0), ag(1)));
}

TEST(Schedule, ShardedUpdatesGatherNothingBeforeStep) {
  for (const char* name : {"dear", "weave"}) {
    EXPECT_THAT(next(name, {{kReduced, kReduced}, true, false, UpdateMode::kSharded}), IsEmpty()) << name;
    EXPECT_THAT(next(name, {{kReduced, kReduced}, true, true, UpdateMode::kSharded}), ElementsAre(ag(0), ag(1))) << name;
  }
}

/// Drives a schedule through an iteration in which gradients come and operations end in random order.
struct RandomRun {
  std::vector<Action> started;
  bool finished = false;
};

RandomRun run_at_random(const Schedule& schedule, UpdateMode update, std::mt19937& random) {
  Moment moment{std::vector<GroupProgress>(1 + random() % 6)};
  moment.update = update;
  RandomRun run;
  for (int turn = 0; turn < 2000; ++turn) {
    const auto actions = schedule.next({moment.groups, moment.backward_done, moment.step_called, update});
    const std::size_t taken = actions.empty() ? 0 : random() % (actions.size() + 1);
    for (std::size_t k = 0; k < taken; ++k) {
      GroupProgress& group = moment.groups[actions[k].group];
      bool& flag = actions[k].phase == Phase::kReduceScatter ? group.reduce_started : group.gather_started;
      EXPECT_FALSE(flag);
      EXPECT_TRUE(actions[k].phase == Phase::kReduceScatter ? group.ready : group.reduce_done);
      EXPECT_TRUE(actions[k].phase == Phase::kReduceScatter || update == UpdateMode::kReplicated || moment.step_called);
      flag = true;
      run.started.push_back(actions[k]);
    }
    GroupProgress& group = moment.groups[random() % moment.groups.size()];
    group.reduce_done |= group.reduce_started && random() % 2 == 0;
    group.gather_done |= group.gather_started && random() % 2 == 0;
    group.ready = true;
    const bool all_ready = std::all_of(moment.groups.begin(), moment.groups.end(), [](const auto& g) { return g.ready; });
    moment.step_called |= moment.backward_done && random() % 4 == 0;
    moment.backward_done |= all_ready;
    run.finished = std::all_of(moment.groups.begin(), moment.groups.end(), [](const auto& g) { return g.gather_done; });
    if (run.finished) {
      break;
    }
  }
  return run;
}

TEST(Schedule, EveryGroupIsReducedInPlanOrderAndGatheredOnceWhateverTheTiming) {
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const char* name : {"sync", "wfbp", "dear", "weave"}) {
    const auto schedule = make_schedule(name).value();
    for (const UpdateMode update : {UpdateMode::kReplicated, UpdateMode::kSharded}) {
      if (update == UpdateMode::kSharded && !schedule->traits().allows_sharded) {
        continue;
      }
      for (int trial = 0; trial < 200; ++trial) {
        const RandomRun run = run_at_random(*schedule, update, random);
        ASSERT_TRUE(run.finished) << name;
        std::vector<std::size_t> reduced;
        for (const Action& action : run.started) {
          if (action.phase == Phase::kReduceScatter) {
            reduced.push_back(action.group);
          }
        }
        ASSERT_EQ(run.started.size(), 2 * reduced.size());
        ASSERT_TRUE(std::is_sorted(reduced.rbegin(), reduced.rend()));
      }
    }
  }
}

TEST(Schedule, NamesAndTraitsFitTheFrontEnd) {
  for (const char* name : {"sync", "wfbp", "dear", "weave"}) {
    const auto schedule = make_schedule(name).value();
    EXPECT_EQ(schedule->name(), name);
    EXPECT_NE(schedule->traits().gradients_after_backward, schedule->traits().allows_sharded);
    EXPECT_EQ(schedule->traits().barrier_in_step, std::string(name) == "dear");
  }
}

}  // namespace
}  // namespace maypole::overlap
