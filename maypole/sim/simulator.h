// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs an instance through the controller in virtual time, slot after slot. A job is known to the first slot that starts at or after its
// arrival; one whose work is done within a slot ends at that moment, and what it held is free from the next slot on.
//
// With `skip_unchanged`, slots in which nothing arrives or ends and for which the policy promises the same placements are credited without
// asking it; idle time is jumped over. Results are the same bit for bit: the policy's random numbers depend on the slot's number alone.

#include "maypole/base/clock.h"
#include "maypole/model/job.h"
#include "maypole/sched/controller.h"

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace maypole::sim {

struct JobOutcome {
  std::string id;
  double arrival_s = 0;
  std::optional<double> started_s;
  std::optional<double> ended_s;
  double progress = 0;
  double utility = 0;
  double attained_s = 0;  // accelerator-seconds
  int resizes = 0;
  int preemptions = 0;
  double mean_active = 0;  // jobs in the system, itself included, while it was there (for finish-time fairness)
};

/// A slot, as the plots and the means see it.
struct SlotSample {
  std::int64_t slot = 0;
  double utility = 0;               // of all jobs, at its end
  int active = 0;                   // jobs that have arrived and not ended
  int embedded = 0;                 // of those, with workers
  double accelerators = 0;          // held at its start
  int rack_crossings = 0;           // ring edges that leave a rack
  double reserved_bytes_per_s = 0;  // summed over links
  bool decided = false;             // the policy was asked
  double seconds = 0;               // that its answer took
  double gain = 0;                  // the decision's utility
  std::optional<double> bound_lp;
  std::optional<double> gap;
};

/// Consecutive slots in which a job had the same number of workers.
struct WorkerSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;  // past the last
  int workers = 0;
};

struct Simulation {
  std::string policy;
  double slot_s = 60;
  std::vector<JobOutcome> jobs;                    // [job], as in the instance
  std::vector<SlotSample> slots;                   // idle ones that were jumped over are not there
  std::vector<std::vector<WorkerSpan>> timelines;  // [job]
  std::int64_t num_slots = 0;                      // that have passed
  std::int64_t violations = 0;
  std::vector<std::string> first_violations;  // the first few, with their slot
  std::int64_t limited = 0;                   // decisions cut by a limit of work
  std::string stopped;                        // why it ended early; empty where it did not
};

struct SimulationOptions {
  bool skip_unchanged = true;
  bool refuse_violations = false;
  /// Every slot in order, also those that were skipped; the controller still holds the state at the slot's start.
  std::function<void(const sched::SlotOutcome&)> on_slot = nullptr;
  /// Before a decision, for dumps.
  std::function<void(const sched::SlotProblem&)> before_decision = nullptr;
  /// Now and then: slots passed, jobs that have ended.
  std::function<void(std::int64_t, std::size_t)> on_progress = nullptr;
};

/// Errors (kInvalidArgument): a wrong instance; jobs out of order; an open horizon with a job that has neither work nor budget.
[[nodiscard]] absl::StatusOr<Simulation> simulate(const model::Instance& instance, std::unique_ptr<sched::Policy> policy,
                                                  const SimulationOptions& options, const base::Clock& clock);

}  // namespace maypole::sim
