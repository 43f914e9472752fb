// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <utility>

namespace maypole::sched {
namespace {

using model::JobId;
using model::ServerId;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

model::Cluster two_servers() {
  model::ClusterParts parts;
  parts.resources = {"gpu"};
  parts.racks = {"r"};
  for (const char* id : {"a", "b"}) {
    model::Server server;
    server.id = id;
    server.rack = model::RackId(0);
    server.capacity.assign(1, 4);
    parts.servers.push_back(server);
  }
  return model::Cluster::make(parts).value();
}

model::Job job(const std::string& id, int workers) {
  model::Job made;
  made.id = id;
  made.workers = workers;
  made.max_workers = workers;
  made.demand.assign(1, 1);
  made.progress.zeta = 10;
  made.utility.kind = model::UtilityKind::kLinear;
  return made;
}

/// Answers what the test says.
class Scripted final : public Policy {
 public:
  using Script = std::function<std::vector<Placement>(const SlotProblem&)>;
  explicit Scripted(Script script, std::int64_t repeated = 0) : script_(std::move(script)), repeats_(repeated) {}
  [[nodiscard]] std::string name() const override { return "scripted"; }
  [[nodiscard]] Decision decide(const SlotProblem& problem, base::Rng& /*rng*/) override {
    Decision decision;
    decision.slot = problem.slot;
    decision.placements = script_(problem);
    for (const Placement& placement : decision.placements) {
      for (const ActiveJob& active : problem.jobs) {
        if (active.id == placement.job) {
          const bool resized = active.running() && active.current->ring != placement.embedding.ring;
          const double gained = slot_progress(active, model::shape_of(placement.embedding), resized, problem.slot_s);
          decision.utility += utility_gain(active, gained, problem.start_s());
        }
      }
    }
    return decision;
  }
  [[nodiscard]] std::int64_t repeats(const SlotProblem& /*problem*/, const Decision& /*decision*/) const override { return repeats_; }

 private:
  Script script_;
  std::int64_t repeats_;
};

/// `workers` on one server.
Placement on(JobId id, int server, int workers) {
  Placement placement;
  placement.job = id;
  placement.embedding.ring.assign(static_cast<std::size_t>(workers), ServerId(server));
  if (workers > 1) {
    placement.embedding.edges.resize(static_cast<std::size_t>(workers));
  }
  return placement;
}

struct World {
  base::ManualClock clock;
  Controller controller;
  explicit World(Scripted::Script script, std::int64_t repeated = 0, std::int64_t slots = 0)
      : controller(two_servers(), std::make_unique<Scripted>(std::move(script), repeated), {60, slots, 1, true}, clock) {}
};

TEST(Controller, AJobThatEndsWithinASlotEndsAtItsExactTime) {
  World world([](const SlotProblem& problem) { return std::vector{on(problem.jobs[0].id, 0, 2)}; });
  model::Job two = job("two", 2);
  two.work = 30;  // 20 a slot
  ASSERT_TRUE(world.controller.submit(two).ok());
  EXPECT_DOUBLE_EQ(world.controller.decide(0).decision.utility, 20);
  EXPECT_THAT(world.controller.end_slot(), IsEmpty());
  EXPECT_DOUBLE_EQ(world.controller.decide(1).decision.utility, 10);
  const std::vector<EndedJob> ended = world.controller.end_slot();
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_DOUBLE_EQ(ended[0].at_s, 90);
  const JobRecord& record = world.controller.record(JobId(0));
  EXPECT_EQ(record.phase, JobPhase::kFinished);
  EXPECT_DOUBLE_EQ(record.attained_s, 180);
  EXPECT_DOUBLE_EQ(record.worker_slots, 3);
  EXPECT_THAT(world.controller.active(), IsEmpty());
}

TEST(Controller, ABudgetEndsAJobWhenLessThanItsMinimumIsLeft) {
  World world(
      [](const SlotProblem& problem) { return std::vector{on(problem.jobs[0].id, 0, std::min(2, worker_limit(problem.jobs[0])))}; });
  model::Job limited = job("limited", 2);
  limited.budget = 3.5;
  ASSERT_TRUE(world.controller.submit(limited).ok());
  (void)world.controller.decide(0);
  EXPECT_THAT(world.controller.end_slot(), IsEmpty());
  (void)world.controller.decide(1);  // one worker: 1.5 worker-slots are left
  EXPECT_THAT(world.controller.end_slot(), SizeIs(1));
  EXPECT_DOUBLE_EQ(world.controller.record(JobId(0)).progress, 30);
  EXPECT_DOUBLE_EQ(*world.controller.record(JobId(0)).ended_s, 120);
}

TEST(Controller, AChangedRingCostsItsResizeTimeAndIsCounted) {
  World world([](const SlotProblem& problem) { return std::vector{on(problem.jobs[0].id, problem.slot == 0 ? 0 : 1, 2)}; });
  model::Job moving = job("moving", 2);
  moving.progress.resize_s = 15;
  moving.work = 40;
  ASSERT_TRUE(world.controller.submit(moving).ok());
  (void)world.controller.decide(0);
  (void)world.controller.end_slot();
  EXPECT_DOUBLE_EQ(world.controller.decide(1).decision.utility, 15);  // three quarters of a slot
  (void)world.controller.end_slot();
  EXPECT_EQ(world.controller.record(JobId(0)).resizes, 1);
  (void)world.controller.decide(2);
  const std::vector<EndedJob> ended = world.controller.end_slot();
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_DOUBLE_EQ(ended[0].at_s, 135);  // 5 of 20 per slot are left, and this ring stays
}

TEST(Controller, AJobWithoutWorkersAfterItHadSomeIsPreemptedAndKeepsItsProgress) {
  World world(
      [](const SlotProblem& problem) { return problem.slot == 1 ? std::vector<Placement>() : std::vector{on(problem.jobs[0].id, 0, 1)}; });
  ASSERT_TRUE(world.controller.submit(job("one", 1)).ok());
  for (int slot = 0; slot < 3; ++slot) {
    (void)world.controller.decide(slot);
    EXPECT_EQ(world.controller.record(JobId(0)).phase, slot == 1 ? JobPhase::kSuspended : JobPhase::kRunning);
    (void)world.controller.end_slot();
  }
  EXPECT_EQ(world.controller.record(JobId(0)).preemptions, 1);
  EXPECT_EQ(world.controller.record(JobId(0)).resizes, 0);
  EXPECT_DOUBLE_EQ(world.controller.record(JobId(0)).progress, 20);
}

TEST(Controller, ProgressAfterTheDeadlineIsLate) {
  World world([](const SlotProblem& problem) { return std::vector{on(problem.jobs[0].id, 0, 1)}; });
  model::Job due = job("due", 1);
  due.utility = {.kind = model::UtilityKind::kDeadline, .deadline_s = 60, .late = 0.5, .work = 20};
  ASSERT_TRUE(world.controller.submit(due).ok());
  EXPECT_DOUBLE_EQ(world.controller.decide(0).decision.utility, 0.5);
  (void)world.controller.end_slot();
  EXPECT_DOUBLE_EQ(world.controller.decide(1).decision.utility, 0.25);
  (void)world.controller.end_slot();
  EXPECT_DOUBLE_EQ(world.controller.record(JobId(0)).late_progress, 10);
}

TEST(Controller, APolicySeesJobsByArrivalWithTheirState) {
  std::vector<std::string> seen;
  double waiting = 0;
  World world(
      [&](const SlotProblem& problem) {
        seen.clear();
        for (const ActiveJob& active : problem.jobs) {
          seen.push_back(active.job->id);
        }
        waiting = problem.jobs[0].waiting_s;
        return std::vector<Placement>();
      },
      0, 10);
  model::Job late = job("late", 1);
  late.arrival_s = 50;
  model::Job early = job("early", 1);
  early.arrival_s = 20;
  ASSERT_TRUE(world.controller.submit(late).ok());
  ASSERT_TRUE(world.controller.submit(early).ok());
  EXPECT_DOUBLE_EQ(world.controller.pose(4).jobs[0].remaining_slots, 6);
  (void)world.controller.decide(1);
  EXPECT_THAT(seen, ElementsAre("early", "late"));
  EXPECT_DOUBLE_EQ(waiting, 40);
}

TEST(Controller, AJobThatCanNeverFitOrIsThereAlreadyIsRefused) {
  World world([](const SlotProblem&) { return std::vector<Placement>(); });
  model::Job large = job("large", 16);
  large.min_workers = 16;
  const absl::Status never = world.controller.submit(large).status();
  EXPECT_EQ(never.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(never.message()), HasSubstr("16"));
  ASSERT_TRUE(world.controller.submit(job("same", 1)).ok());
  EXPECT_THAT(std::string(world.controller.submit(job("same", 1)).status().message()), HasSubstr("there already"));
}

TEST(Controller, EventsWithinASlotCreditThePartThatHasPassed) {
  World world([](const SlotProblem& problem) {
    std::vector<Placement> placements;
    for (const ActiveJob& active : problem.jobs) {
      placements.push_back(on(active.id, active.id.value() % 2, 1));
    }
    return placements;
  });
  for (const char* id : {"ended", "cancelled", "measured"}) {
    ASSERT_TRUE(world.controller.submit(job(id, 1)).ok());
  }
  (void)world.controller.decide(0);
  world.controller.finished(JobId(0), 15);
  world.controller.cancelled(JobId(1), 30);
  world.controller.report_progress(JobId(2), 7);
  EXPECT_THAT(world.controller.end_slot(), IsEmpty());
  EXPECT_DOUBLE_EQ(world.controller.record(JobId(0)).progress, 2.5);
  EXPECT_DOUBLE_EQ(world.controller.record(JobId(0)).attained_s, 15);
  EXPECT_EQ(world.controller.record(JobId(1)).phase, JobPhase::kCancelled);
  EXPECT_DOUBLE_EQ(world.controller.record(JobId(1)).attained_s, 30);
  EXPECT_DOUBLE_EQ(world.controller.record(JobId(2)).progress, 7);
  EXPECT_THAT(world.controller.active(), ElementsAre(JobId(2)));
}

TEST(Controller, ADrainedServerHasNoCapacityUntilItIsRestored) {
  World world([](const SlotProblem&) { return std::vector<Placement>(); });
  world.controller.drain(ServerId(1));
  EXPECT_EQ(world.controller.cluster().server(ServerId(1)).capacity[model::ResourceId(0)], 0);
  EXPECT_TRUE(world.controller.submit(job("eight", 8)).ok());  // it fits the whole cluster, and may wait
  world.controller.restore(ServerId(1));
  EXPECT_EQ(world.controller.cluster().server(ServerId(1)).capacity[model::ResourceId(0)], 4);
}

TEST(Controller, TheStreamOfASlotDependsOnSeedAndSlotOnly) {
  EXPECT_EQ(slot_rng(3, 7).bits(), slot_rng(3, 7).bits());
  EXPECT_NE(slot_rng(3, 7).bits(), slot_rng(3, 8).bits());
  EXPECT_NE(slot_rng(3, 7).bits(), slot_rng(4, 7).bits());
}

TEST(Controller, RepeatingEndsWhenAJobComesOrABudgetRunsLow) {
  World world([](const SlotProblem& problem) { return std::vector{on(problem.jobs[0].id, 0, 2)}; }, 100);
  model::Job first = job("first", 2);
  first.budget = 9;
  first.max_workers = 4;
  ASSERT_TRUE(world.controller.submit(first).ok());
  (void)world.controller.decide(0);
  (void)world.controller.end_slot();
  EXPECT_EQ(world.controller.repeats_left(), 0);  // it started: that was a change
  (void)world.controller.decide(1);
  (void)world.controller.end_slot();  // 5 left: the limit is 4 still
  EXPECT_EQ(world.controller.repeats_left(), 100);
  EXPECT_THAT(world.controller.repeat(2).decision.placements, SizeIs(1));
  (void)world.controller.end_slot();  // 3 left: fewer than max_workers
  EXPECT_EQ(world.controller.repeats_left(), 0);
  (void)world.controller.decide(3);
  EXPECT_EQ(world.controller.repeats_left(), 100);
  ASSERT_TRUE(world.controller.submit(job("second", 1)).ok());
  EXPECT_EQ(world.controller.repeats_left(), 0);
}

TEST(Controller, ADecisionThatBreaksACapacityIsRefusedAndWhatRanGoesOn) {
  World world([](const SlotProblem& problem) {
    std::vector<Placement> placements = {on(problem.jobs[0].id, 0, 3)};
    if (problem.slot > 0) {
      placements.push_back(on(problem.jobs[1].id, 0, 3));
    }
    return placements;
  });
  ASSERT_TRUE(world.controller.submit(job("first", 3)).ok());
  ASSERT_TRUE(world.controller.submit(job("second", 3)).ok());
  EXPECT_FALSE(world.controller.decide(0).refused);
  (void)world.controller.end_slot();
  const SlotOutcome outcome = world.controller.decide(1);
  EXPECT_TRUE(outcome.refused);
  EXPECT_THAT(outcome.violations, Contains(HasSubstr("6 gpu used of 4")));
  EXPECT_THAT(outcome.decision.placements, ElementsAre(on(JobId(0), 0, 3)));
}

}  // namespace
}  // namespace maypole::sched
