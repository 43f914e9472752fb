// SPDX-License-Identifier: Apache-2.0
#pragma once

// Workloads from files: our CSV, and the traces of Microsoft ITP, Philly, Pollux and Tiresias, each seen from its header. What a trace
// does not say is filled in, and `filling` says how: print it with every result. docs/formats.md holds the columns.
//
// Work is in GPU-seconds at the speed of the trace's worker count (Pollux: in samples); a slot of `slot_s` seconds gives `slot_s` times
// the speed, so jobs read for one slot length may not be run with another.

#include "maypole/model/job.h"

#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::formats {

struct WorkloadOptions {
  /// Traces: 1 to 2 x the worker count of the trace (Pollux: as far as it was measured), speed (w / count)^0.8, 30 s a resize. Our CSV
  /// names its own range; its speed then follows the same law around `workers`. Otherwise: that count or nothing (our CSV: linear).
  bool elastic = false;
  double slot_s = 60;
  /// What a job is worth, whatever the file says; none: as the file says, or linear. A deadline's `work`, and its `deadline_s` where the
  /// trace has one, are the job's own.
  std::optional<model::Utility> utility = {};
  /// Traces: what a finished job is worth, whatever its length (the utility is divided by its value at the job's work). Our CSV: the
  /// weight where that column is empty.
  double weight = 1;
  /// Only the first so many by arrival; 0: all.
  std::size_t most_jobs = 0;
  /// Pollux: the folder of measurements; empty: `measured` beside the trace's folder.
  std::string measured = {};
  /// Our CSV: where the files of its column `progress` lie; empty: beside the workload, and none where it is no file.
  std::string folder = {};
};

enum class WorkloadFormat { kOurs, kItp, kPhilly, kPollux, kTiresias };

struct Workload {
  WorkloadFormat format = WorkloadFormat::kOurs;
  std::vector<model::Job> jobs;  // by arrival, then as in the file; each fits the cluster (model::check_job)
  std::string filling;           // for people: all that was assumed
};

/// Errors name file, line and field: a row that is not what its column wants, two jobs of one name, times that look like milliseconds, a
/// job that can never fit the cluster.
[[nodiscard]] absl::StatusOr<Workload> read_workload(const std::string& path, const WorkloadOptions& options,
                                                     const model::Cluster& cluster);
/// The same from a text; Pollux needs options.measured.
[[nodiscard]] absl::StatusOr<Workload> parse_workload(std::string_view text, std::string_view file, const WorkloadOptions& options,
                                                      const model::Cluster& cluster);

/// A cluster for a trace that names none: servers of 8 GPUs, as many as hold 64 GPUs, the largest job, and the mean demand (GPU-seconds
/// over the time between first and last arrival) at 80 % use. Pollux: the published 16 servers of 4 GPUs. No links. `measured`: as in
/// WorkloadOptions.
struct SuggestedCluster {
  model::Cluster cluster;
  double mean_demand = 0;  // GPUs; 0 where it was not asked
  std::string filling;
};
[[nodiscard]] absl::StatusOr<SuggestedCluster> suggest_cluster(const std::string& path, const std::string& measured = {});

}  // namespace maypole::formats
