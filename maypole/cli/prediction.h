// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs that were measured, beside what the iteration simulator says of them: `maypole plan --fit r.json --check s.json`.
//
// A report of `maypole run --report` holds the schedule, the workers, the bytes of every group and the time of an iteration; with the
// profile of the same script and a network that is all the simulator needs to run the same iteration. What is fitted (contention) must
// come from other runs than those that are checked.

#include "maypole/model/profile.h"
#include "maypole/overlap/network_model.h"
#include "maypole/pipeline/report.h"

#include <absl/status/statusor.h>

#include <span>
#include <string>
#include <vector>

namespace maypole::cli {

struct MeasuredRun {
  std::string file;  // for errors and tables
  pipeline::Report report;
};
/// Reads a file of `maypole run --report`; errors name the file.
[[nodiscard]] absl::StatusOr<MeasuredRun> read_measured_run(const std::string& path);

struct Prediction {
  std::string file;
  std::string schedule;
  int workers = 1;
  double predicted_s = 0;
  double measured_s = 0;
};
/// Runs the iteration of the report in the simulator. Errors: a report of another model, or with an unknown schedule.
[[nodiscard]] absl::StatusOr<Prediction> predict(const model::Profile& profile, const overlap::Network& network, const MeasuredRun& run);

/// The contention, in seconds per byte, under which the simulator comes closest to the runs.
[[nodiscard]] absl::StatusOr<double> fit_contention_to(const model::Profile& profile, const overlap::Network& network,
                                                       std::span<const MeasuredRun> runs);

[[nodiscard]] std::string predictions_text(std::span<const Prediction> predictions);
/// A JSON array of {file, schedule, workers, predicted_s, measured_s}.
[[nodiscard]] std::string predictions_json(std::span<const Prediction> predictions);

}  // namespace maypole::cli
