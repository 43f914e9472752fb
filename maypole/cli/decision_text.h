// SPDX-License-Identifier: Apache-2.0
#pragma once

// Decisions between the scheduler's ids and the names of files (`--decisions`), and a dumped decision: all that a policy was asked, so that
// it can be asked again.

#include "maypole/cli/policy_spec.h"
#include "maypole/formats/decision_line.h"
#include "maypole/model/job.h"
#include "maypole/sched/decision.h"
#include "maypole/sched/job_record.h"
#include "maypole/sched/slot_problem.h"

#include <absl/status/statusor.h>

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace maypole::cli {

[[nodiscard]] formats::DecisionLine to_line(const sched::Decision& decision, std::span<const model::Job> jobs,
                                            const model::Cluster& cluster);
/// Errors name the job, server or link that the instance does not have.
[[nodiscard]] absl::StatusOr<std::vector<sched::Decision>> to_decisions(const std::vector<formats::DecisionLine>& lines,
                                                                        const model::Instance& instance);

/// One slot's question, with all it borrows.
struct DecisionDump {
  PolicySpec policy;
  model::Instance instance;              // the cluster as it was, and the active jobs in the policy's order
  std::vector<model::JobId> ids;         // [position in instance.jobs]: the id that the policy saw
  std::deque<sched::JobRecord> records;  // the same
  std::vector<double> waiting_s;         // the same
  double remaining_slots = 0;
  std::int64_t slot = 0;
  std::int64_t unchanged_slots = 0;
  sched::ServiceHistory history;
  formats::DecisionLine decision;  // the answer that was given
  std::string note;
  sched::Work work;

  /// Borrows from this dump.
  [[nodiscard]] sched::SlotProblem problem() const;
};

/// The question, written down before it is asked: what it borrows changes with the answer.
[[nodiscard]] std::string question_json(const sched::SlotProblem& problem, const PolicySpec& policy, const model::Instance& instance);
/// The file of `--dump-decision`: a question and the answer to it.
[[nodiscard]] std::string dump_json(const std::string& question, const sched::Decision& answer, const model::Instance& instance);
/// Errors name file and field.
[[nodiscard]] absl::StatusOr<DecisionDump> read_dump(const std::string& path);

}  // namespace maypole::cli
