// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/schedule_checker.h"

#include "maypole/sched/sched_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace maypole::sched {
namespace {

using model::Cluster;
using model::Embedding;
using model::Instance;
using model::Job;
using model::JobId;
using model::LinkId;
using model::ServerId;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

/// Two racks of two servers with two GPUs each; one job of two workers on s0 and s1, right in every respect.
class ScheduleChecker : public ::testing::Test {
 protected:
  ScheduleChecker() {
    jobs_.push_back(elastic_job(cluster_, "a", 2, 4));
    jobs_[0].edge_bandwidth = {6};
    jobs_.push_back(elastic_job(cluster_, "b", 1, 4));
    jobs_[1].edge_bandwidth = {6};
    problem_ = problem_of(cluster_, jobs_);
    place(0, {0, 1}, {{"s0-r0", "r0-s1"}, {"s1-r0", "r0-s0"}});
    decision_.utility = std::sqrt(2.0);
  }

  void place(int job, const std::vector<int>& ring, const std::vector<std::vector<std::string>>& edges) {
    Embedding embedding;
    for (const int server : ring) {
      embedding.ring.emplace_back(server);
    }
    for (const std::vector<std::string>& edge : edges) {
      std::vector<LinkId>& path = embedding.edges.emplace_back();
      for (const std::string& link : edge) {
        path.push_back(*cluster_.find_link(link));
      }
    }
    embedding.bandwidth = jobs_[static_cast<std::size_t>(job)].edge_bandwidth;
    decision_.placements.push_back({JobId(job), embedding});
  }
  Embedding& first() { return decision_.placements[0].embedding; }
  [[nodiscard]] std::vector<std::string> violations() const { return check_decision(problem_, decision_); }

  Cluster cluster_ = tree_cluster({.racks = 2, .servers_per_rack = 2, .gpus = 2, .server_bandwidth = 10, .uplink_bandwidth = 10});
  std::vector<Job> jobs_;
  SlotProblem problem_;
  Decision decision_;
};

TEST_F(ScheduleChecker, FindsNothingInARightDecision) { EXPECT_THAT(violations(), IsEmpty()); }

TEST_F(ScheduleChecker, NamesAServerThatHoldsTooMuch) {
  jobs_[0].demand[cluster_.accelerator()] = 3;
  EXPECT_THAT(violations(), ElementsAre("server s0: 3 gpu used of 2 in slot 0", "server s1: 3 gpu used of 2 in slot 0"));
}

TEST_F(ScheduleChecker, AddsUpAllEdgesOfAllJobsOnALink) {
  place(1, {0, 1}, {{"s0-r0", "r0-s1"}, {"s1-r0", "r0-s0"}});
  decision_.utility *= 2;
  EXPECT_THAT(violations(), Contains(StartsWith("link s0-r0: 12 bytes/s reserved of 10")));
}

TEST_F(ScheduleChecker, WantsWorkersBetweenMinimumAndMaximum) {
  first() = {{ServerId(0)}, {}, {}};
  decision_.utility = 1;
  EXPECT_THAT(violations(), ElementsAre(HasSubstr("1 workers in slot 0, not between 2 and 4")));
}

TEST_F(ScheduleChecker, FollowsEveryEdgeAlongItsLinks) {
  first().edges[0] = {*cluster_.find_link("r0-s1"), *cluster_.find_link("s0-r0")};
  first().edges[1].pop_back();
  EXPECT_THAT(violations(), ElementsAre("job a: edge 0 breaks at link r0-s1 in slot 0: it leaves r0, the path has come to s0",
                                        "job a: edge 1 ends at r0 in slot 0, its next worker is on s0"));
}

TEST_F(ScheduleChecker, RefusesAPathThatPassesANodeTwice) {
  const auto link = [&](const char* id) { return *cluster_.find_link(id); };
  first().edges[0] = {link("s0-r0"), link("r0-core"), link("core-r0"), link("r0-s1")};
  EXPECT_THAT(violations(), ElementsAre("job a: edge 0 passes r0 twice in slot 0"));
}

TEST_F(ScheduleChecker, WantsOneEdgeAWorkerAndNoneForASingleOne) {
  first().edges.pop_back();
  EXPECT_THAT(violations(), ElementsAre("job a: 1 edges for 2 workers in slot 0, a ring has 2"));
}

TEST_F(ScheduleChecker, RefusesARingThatComesBackToAServer) {
  jobs_[0].edge_bandwidth = first().bandwidth = {1};
  const std::vector<LinkId> forth = first().edges[0];
  const std::vector<LinkId> back = first().edges[1];
  first() = {{ServerId(0), ServerId(1), ServerId(0), ServerId(1)}, {forth, back, forth, back}, {1}};
  decision_.utility = 2;
  EXPECT_THAT(violations(), ElementsAre(HasSubstr("enters server s0 2 times"), HasSubstr("enters server s1 2 times")));
}

TEST_F(ScheduleChecker, WantsTheReservationThatTheJobAsksFor) {
  first().bandwidth = {1};
  EXPECT_THAT(violations(), ElementsAre(HasSubstr("reserves 1 bytes/s per edge in slot 0, it asks for 6")));
}

TEST_F(ScheduleChecker, CountsTheBudget) {
  jobs_[0].budget = 7;
  problem_.jobs[0].worker_slots = 6;
  EXPECT_THAT(violations(), ElementsAre("job a: 8 worker-slots used of 7 after slot 0"));
}

TEST_F(ScheduleChecker, KnowsWhenAJobArrives) {
  jobs_[0].arrival_s = 1;
  EXPECT_THAT(violations(), ElementsAre(HasSubstr("before it arrives at 1 s")));
}

TEST_F(ScheduleChecker, KeepsJobsToTheirRacksUnlessTheyWereLetOutBefore) {
  first() = {{}, {}, {}};
  decision_.placements.clear();
  jobs_[0].max_racks = 1;
  jobs_[0].max_racks_s = 100;
  place(0, {0, 2}, {{"s0-r0", "r0-core", "core-r1", "r1-s2"}, {"s2-r1", "r1-core", "core-r0", "r0-s0"}});
  EXPECT_THAT(violations(), ElementsAre("job a: on 2 racks in slot 0, at most 1 are allowed"));
  problem_.jobs[0].waiting_s = 100;
  EXPECT_THAT(violations(), IsEmpty());
  problem_.jobs[0].waiting_s = 0;
  const Embedding current = first();
  problem_.jobs[0].current = &current;
  EXPECT_THAT(violations(), IsEmpty());
}

TEST_F(ScheduleChecker, RecomputesTheUtilityAndWantsBoundsAboveIt) {
  decision_.utility = 1.5;
  decision_.bound = 1.4;
  decision_.bound_lp = 1.3;
  EXPECT_THAT(violations(), ElementsAre(HasSubstr("utility is given as 1.5, the accounting makes it 1.414"),
                                        HasSubstr("the bound 1.4 is below"), HasSubstr("the LP bound 1.3 is below")));
}

TEST_F(ScheduleChecker, HoldsBoundsAndGapAgainstThePolicysOwnObjective) {
  decision_.utility = std::sqrt(2);
  decision_.objective = 3;
  decision_.bound = 4;
  decision_.bound_lp = 5;
  decision_.gap = 0.25;
  EXPECT_THAT(violations(), IsEmpty());
  decision_.bound = 2;  // above the utility, which is no excuse
  decision_.gap = 0;
  EXPECT_THAT(violations(), ElementsAre("slot 0: the bound 2 is below the objective 3"));
  decision_.bound = 4;
  EXPECT_THAT(violations(), ElementsAre("slot 0: gap is given as 0, bound and objective make it 0.25"));
  decision_.objective = 1;
  decision_.gap = 0.75;
  EXPECT_THAT(violations(), ElementsAre(HasSubstr("the objective 1 is below the utility 1.41")));
}

TEST_F(ScheduleChecker, SubtractsTheCostOfAResize) {
  jobs_[0].progress.resize_s = 15;
  const Embedding current{{ServerId(2), ServerId(3)}, {}, {6}};
  problem_.jobs[0].current = &current;
  decision_.utility = std::sqrt(2 * 0.75);
  EXPECT_THAT(violations(), IsEmpty());
}

TEST_F(ScheduleChecker, RefusesUnknownAndDoubledJobs) {
  decision_.placements.push_back(decision_.placements[0]);
  decision_.placements.push_back({JobId(9), first()});
  EXPECT_THAT(violations(), ElementsAre("job a is placed twice in slot 0", HasSubstr("job number 9 runs although it is not active")));
}

/// One server of four GPUs; a job of work 5 and zeta 1 that runs on two of them.
class RunChecker : public ::testing::Test {
 protected:
  RunChecker() {
    instance_.jobs.push_back(elastic_job(instance_.cluster, "a", 1, 4));
    instance_.jobs[0].work = 5;
    double progress = 0;
    for (int slot = 0; slot < 4; ++slot) {
      Decision& decision = decisions_.emplace_back();
      decision.slot = slot;
      if (progress < 5) {
        const double next = std::min(5.0, progress + 2);
        decision.placements.push_back({JobId(0), {{ServerId(0), ServerId(0)}, {{}, {}}, {}}});
        decision.utility = std::sqrt(next) - std::sqrt(progress);
        progress = next;
      }
    }
  }

  Instance instance_{flat_cluster({4}), {}, 60, 4, 1};
  std::vector<Decision> decisions_;
};

TEST_F(RunChecker, FindsNothingInARightRun) { EXPECT_THAT(check_run(instance_, decisions_), IsEmpty()); }

TEST_F(RunChecker, CountsProgressAndKnowsTheEnd) {
  decisions_[3].placements = decisions_[2].placements;
  EXPECT_THAT(check_run(instance_, decisions_), ElementsAre("job a runs after its end in slot 3"));
}

TEST_F(RunChecker, CountsTheBudgetOverSlots) {
  instance_.jobs[0].budget = 5;
  EXPECT_THAT(check_run(instance_, decisions_), ElementsAre("job a: 6 worker-slots used of 5 after slot 2"));
}

TEST_F(RunChecker, WantsALineForEverySlot) {
  decisions_.erase(decisions_.begin() + 3);
  EXPECT_THAT(check_run(instance_, decisions_), ElementsAre("the decisions end after 3 slots, the horizon has 4"));
  decisions_[2].slot = 3;
  EXPECT_THAT(check_run(instance_, decisions_), Contains("slot 3 comes where slot 2 is due"));
}

}  // namespace
}  // namespace maypole::sched
