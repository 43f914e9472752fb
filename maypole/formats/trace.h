// SPDX-License-Identifier: Apache-2.0
#pragma once

// The readers behind workload.h, one a format, from a table to jobs in the file's order.

#include "maypole/formats/csv.h"
#include "maypole/formats/workload.h"

#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <vector>

namespace maypole::formats {

/// A job and the row it comes from.
struct TracedJob {
  model::Job job;
  int line = 0;
};

struct Trace {
  WorkloadFormat format = WorkloadFormat::kOurs;
  std::vector<TracedJob> jobs;
  std::string name;                  // for people: `Microsoft ITP`
  std::vector<std::string> filling;  // sentences without a full stop
  bool from_first_arrival = true;    // times are to be counted from there
  bool own_deadlines = false;        // the utilities' deadlines are times of the trace, too
};

/// The columns that each format must have; the first format whose mark they are is taken.
[[nodiscard]] absl::StatusOr<WorkloadFormat> recognise(const CsvTable& table);

/// Our CSV. It may have one column more: the file of a job's progress model, beside the workload; its work is then in that model's unit.
inline constexpr std::string_view kProgressColumn = "progress";
[[nodiscard]] Trace read_our_csv(const CsvTable& table, const WorkloadOptions& options, const model::Cluster& cluster, Problems& problems);
/// ITP, Philly, Tiresias: a number of GPUs for a duration.
[[nodiscard]] Trace read_duration_trace(const CsvTable& table, WorkloadFormat format, const WorkloadOptions& options,
                                        const model::Cluster& cluster, Problems& problems);
[[nodiscard]] Trace read_pollux_trace(const CsvTable& table, const WorkloadOptions& options, const model::Cluster& cluster,
                                      Problems& problems);

/// Speed of an elastic job: (w / reference)^kElasticExponent, and the time that a resize costs.
inline constexpr double kElasticExponent = 0.8;
inline constexpr double kElasticResizeS = 30;

/// Gives a trace's job its utility and weight; `work` and `workers` must be set.
void set_worth(const WorkloadOptions& options, model::Job& job);
/// The sentences about it.
[[nodiscard]] std::string worth_filling(const WorkloadOptions& options);

}  // namespace maypole::formats
