// SPDX-License-Identifier: Apache-2.0
#pragma once

// Why every job of a decision has what it has: a function of the problem and the decision, so that it can be asked at any time, also of a
// dumped decision. It looks at what is left of servers and links, and tries one worker more, or a first ring, itself; of the policy it
// knows only what its name promises (rigid or elastic, and its order). Every job has exactly one reason.

#include "maypole/sched/blocker.h"
#include "maypole/sched/decision.h"
#include "maypole/sched/slot_problem.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace maypole::sched {

enum class Reason {
  // It runs, and has no more because:
  kAtMaximum,      // it has its max_workers
  kAtBudget,       // its budget allows no more
  kAtRequest,      // the policy is rigid
  kNoRoomForMore,  // no server has room for one more worker
  kNoBandwidthForMore,
  kNoRackForMore,
  kMoreBringsNothing,
  kMoreNotChosen,  // one more would fit and bring something; the policy weighs otherwise (resize cost, other jobs)
  // It waits, because:
  kWaitsForAmount,  // all servers together have too little
  kWaitsForShape,   // together enough, on no server at once
  kWaitsForBandwidth,
  kWaitsForRacks,
  kWaitsForBudget,  // what is left of its budget is less than the policy may give
  kWaitsForTurn,    // a ring would fit; the policy gives it none in this slot
};
inline constexpr int kNumReasons = 14;
/// Stable, for JSON: "at_maximum", "waits_for_shape", ...
[[nodiscard]] std::string_view name_of(Reason reason);
[[nodiscard]] bool waits(Reason reason);

/// What one more worker would bring in this slot.
struct OneMore {
  bool allowed = false;  // by max_workers and budget
  bool fits = false;
  double utility = 0;  // of the slot, beyond what it has now, a change of its ring not charged
  Blocker blocker;     // where it is allowed and does not fit
};

/// One job. The names of the fields are those of its JSON.
struct JobExplanation {
  model::JobId job;
  std::string id;
  int workers = 0;
  Reason reason = Reason::kWaitsForTurn;
  std::string why;    // this many, or none
  std::string where;  // its ring, and why here; empty where it waits
  std::string why_not_more;
  OneMore one_more;
  Blocker blocker;                // what keeps a waiting job out
  int place = 0;                  // in the order of those that wait, from 1; 0 where it runs
  std::optional<double> start_s;  // of a waiting job: estimated, seconds since the start of time
  std::string help;               // what would let a waiting job start sooner
};

struct Explanation {
  std::int64_t slot = 0;
  std::string policy;
  std::vector<JobExplanation> jobs;            // as in problem.jobs
  std::vector<std::pair<Reason, int>> counts;  // of each reason that occurs; they add up to the number of jobs
};

/// Cost: a search for a place per job; O(jobs x servers) where the cluster is full.
[[nodiscard]] Explanation explain(const SlotProblem& problem, const Decision& decision, const std::string& policy);

/// For people: a few lines about one job.
[[nodiscard]] std::string text_of(const JobExplanation& job);
/// "40 jobs: 31 at_maximum, 9 waits_for_amount".
[[nodiscard]] std::string summary_of(const Explanation& explanation);

}  // namespace maypole::sched
