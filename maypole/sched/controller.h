// SPDX-License-Identifier: Apache-2.0
#pragma once

// The controller: events and slots in, decisions out. It owns what is known of every job, poses each slot's problem to a policy, times and
// verifies the answer, and credits the slot. The simulator feeds it virtual time, the daemon real time; nothing else differs.
//
// A slot:  submit(), cancelled(), drain() ... -> decide(slot) -> [finished(), report_progress()] -> end_slot()
//
// Jobs are known by the order of their submission (JobId 0, 1, ...); a policy sees the active ones by (arrival, JobId).
// The policy draws from slot_rng(seed, slot), so a decision depends on nothing but its problem, the seed, and what the policy keeps.

#include "maypole/base/clock.h"
#include "maypole/base/rng.h"
#include "maypole/model/cluster.h"
#include "maypole/model/job.h"
#include "maypole/sched/decision.h"
#include "maypole/sched/job_record.h"
#include "maypole/sched/policy.h"
#include "maypole/sched/service_history.h"
#include "maypole/sched/slot_problem.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <deque>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace maypole::sched {

struct ControllerOptions {
  double slot_s = 60;
  std::int64_t slots = 0;  // the horizon, for policies that look ahead; 0: open
  std::uint64_t seed = 1;
  /// True: a decision that breaks a constraint is not applied; what ran goes on where it fits. False: it is applied and counted, for the
  /// study of policies that may break capacities (gadget-paper as published).
  bool refuse_violations = true;
};

/// The policy's stream of random numbers in that slot; independent of the instance's streams.
[[nodiscard]] base::Rng slot_rng(std::uint64_t seed, std::int64_t slot);

struct SlotOutcome {
  Decision decision;                    // as applied; utility is what its placements gain if nothing unforeseen happens
  std::vector<std::string> violations;  // of the policy's answer, a sentence each
  bool refused = false;
};

struct EndedJob {
  model::JobId job;
  double at_s = 0;
};

/// Not thread-safe: one thread owns it.
class Controller {
 public:
  /// The clock measures decisions and outlives the controller.
  Controller(model::Cluster cluster, std::unique_ptr<Policy> policy, const ControllerOptions& options, const base::Clock& clock);

  /// Takes a job. Errors (kInvalidArgument): what check_job() finds (a job that can never fit is refused with both numbers), an id that is
  /// known already.
  [[nodiscard]] absl::StatusOr<model::JobId> submit(model::Job job);
  /// The job ended by itself at that time, within the slot that runs. No effect on one that has ended.
  void finished(model::JobId job, double at_s);
  void cancelled(model::JobId job, double at_s);
  /// What the job itself has counted so far; it replaces what the model would credit for the slot that runs.
  void report_progress(model::JobId job, double progress);
  /// From the next decision on no worker runs there; its workers move or wait.
  void drain(model::ServerId server);
  void restore(model::ServerId server);

  /// What the policy would be asked for `slot` now; borrowed until the next call of anything else.
  [[nodiscard]] const SlotProblem& pose(std::int64_t slot);
  /// Decides the slot: slots go up, gaps are slots in which nothing ran.
  [[nodiscard]] SlotOutcome decide(std::int64_t slot);
  /// Credits the slot that was decided last; returns the jobs that ended in it, in the order of their ids.
  std::vector<EndedJob> end_slot();
  /// For how many more slots decide() would give the placements that every job has already: until then repeat() may take its place.
  /// Whatever changes the problem (a job that comes, goes or ends, a budget that runs low, a server) sets it to 0.
  [[nodiscard]] std::int64_t repeats_left() const { return repeats_left_; }
  /// decide() without asking the policy.
  [[nodiscard]] SlotOutcome repeat(std::int64_t slot);

  [[nodiscard]] std::size_t num_jobs() const { return records_.size(); }
  [[nodiscard]] const JobRecord& record(model::JobId job) const { return records_[job.index()]; }
  /// Jobs that have not ended, by (arrival, JobId).
  [[nodiscard]] const std::vector<model::JobId>& active() const { return active_; }
  /// With the capacity of drained servers at 0.
  [[nodiscard]] const model::Cluster& cluster() const { return available_; }
  [[nodiscard]] const Policy& policy() const { return *policy_; }

 private:
  void set_capacity();
  void end(model::JobId job, JobPhase phase, double at_s);
  void leave(model::JobId job, JobPhase phase, double at_s);
  void changed();
  [[nodiscard]] Decision kept(std::int64_t slot) const;
  void apply(SlotOutcome& outcome);

  model::Cluster whole_;
  model::Cluster available_;
  std::vector<bool> drained_;  // [server]
  std::unique_ptr<Policy> policy_;
  ControllerOptions options_;
  const base::Clock* clock_;

  std::deque<JobRecord> records_;  // [job]; a deque, so that what problem_ borrows stays
  std::unordered_set<std::string> ids_;
  std::vector<model::JobId> active_;
  ServiceHistory history_;  // of the jobs that have ended
  SlotProblem problem_;
  std::vector<Placement> placements_;  // of the slot that was decided last
  std::int64_t slot_ = -1;             // decided last
  bool open_ = false;                  // decided and not yet credited
  std::int64_t repeats_left_ = 0;
  std::int64_t unchanged_slots_ = 0;
};

}  // namespace maypole::sched
