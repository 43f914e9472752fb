// SPDX-License-Identifier: Apache-2.0
#pragma once

// Checks decisions against the constraints of GADGET and the accounting of docs/scheduler.md, from their definitions alone: nothing here is
// shared with what makes decisions (no FreeCapacity, no Routes, none of slot_problem.cc), so that an error there cannot hide here.
//
//   (2)  min_workers <= workers <= max_workers        (6)  no job runs before it arrives
//   (3)  worker-slots within the budget               (7), ring: every edge is a directed path, from its worker's server to the next one's
//   (4)  no server holds more than its capacity       (8)  no link carries more than its bandwidth: all edges of all jobs summed
//   (5)  workers only on servers of the ring          (9)  one closed ring: it enters each of its servers exactly once
//
// and that a job reserves exactly its edge_bandwidth, keeps to its racks, does not run once it has ended, that the utility is what the
// accounting gives, and that no bound is below it. Every violation is one sentence.

#include "maypole/model/job.h"
#include "maypole/sched/decision.h"
#include "maypole/sched/slot_problem.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace maypole::sched {

/// All violations of one decision; empty where it keeps every constraint. Cost: O(sum of path lengths + servers).
[[nodiscard]] std::vector<std::string> check_decision(const SlotProblem& problem, const Decision& decision);

/// All violations of a whole run, decisions[k] being that of slot k: what check_decision finds, with progress, budgets and ends counted
/// from the decisions themselves, and slots that are missing or out of order.
[[nodiscard]] std::vector<std::string> check_run(const model::Instance& instance, std::span<const Decision> decisions);

/// Where and when a decision applies, and what is known of each job (null: it may not run, and `why_not` says why).
struct CheckedSlot {
  const model::Cluster* cluster = nullptr;
  std::int64_t slot = 0;
  double slot_s = 60;
  std::function<const ActiveJob*(model::JobId)> find;
  std::function<std::string(model::JobId)> why_not;
};
[[nodiscard]] std::vector<std::string> check_slot(const CheckedSlot& slot, const Decision& decision);

/// Progress that the accounting gives the job for a slot on that ring, counted without slot_problem.cc.
[[nodiscard]] double checked_progress(const ActiveJob& job, const model::Embedding& embedding, double slot_s);

}  // namespace maypole::sched
