// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/trace.h"

#include "maypole/base/status.h"

#include <algorithm>
#include <array>

namespace maypole::formats {

namespace {

using base::error;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

struct Mark {
  WorkloadFormat format;
  std::vector<std::string_view> columns;
};

const std::vector<Mark>& marks() {
  static const std::vector<Mark> known = {
      {WorkloadFormat::kOurs,
       {"job_id", "arrival_s", "min_workers", "workers", "max_workers", "gpus_per_worker", "work", "edge_bandwidth", "utility", "weight"}},
      {WorkloadFormat::kItp, {"job_id", "submission_time", "duration", "num_gpu"}},
      {WorkloadFormat::kTiresias, {"job_id", "num_gpu", "submit_time", "duration"}},
      {WorkloadFormat::kPhilly, {"timestamp", "duration", "num_gpus"}},
      {WorkloadFormat::kPollux, {"name", "time", "application", "num_replicas", "batch_size"}},
  };
  return known;
}

}  // namespace

absl::StatusOr<WorkloadFormat> recognise(const CsvTable& table) {
  for (const Mark& mark : marks()) {
    if (table.has(mark.columns)) {
      for (const std::string& column : table.header) {
        if (mark.format == WorkloadFormat::kOurs && column != kProgressColumn &&
            std::ranges::find(mark.columns, column) == mark.columns.end()) {
          return error(kInvalid, "{}:1: {}: is no column of our workload: it has {}, and may have {}", table.file, column,
                       fmt::join(mark.columns, ","), kProgressColumn);
        }
      }
      return mark.format;
    }
  }
  if (table.column("arrival_s")) {
    std::vector<std::string_view> missing;
    for (const std::string_view name : marks().front().columns) {
      if (!table.column(name)) {
        missing.push_back(name);
      }
    }
    return error(kInvalid, "{}:1: the columns {} are missing: our workload has {}", table.file, fmt::join(missing, ", "),
                 fmt::join(marks().front().columns, ","));
  }
  if (table.column("num_switch") || table.column("ASW")) {
    return error(kInvalid, "{}:1: is a cluster: give it as --cluster", table.file);
  }
  return error(kInvalid, "{}:1: no workload format has the columns {}: ours has {}", table.file, fmt::join(table.header, ", "),
               fmt::join(marks().front().columns, ","));
}

void set_worth(const WorkloadOptions& options, model::Job& job) {
  const double work = job.work.value_or(1);
  model::Utility utility = options.utility.value_or(model::Utility{.kind = model::UtilityKind::kLinear});
  if (utility.kind == model::UtilityKind::kDeadline) {
    utility.work = work;
    utility.deadline_s = job.utility.deadline_s > 0 ? job.utility.deadline_s : utility.deadline_s;
  }
  job.utility = utility;
  const double finished = utility.value(work);
  job.weight = finished > 0 ? options.weight / finished : options.weight;
}

std::string worth_filling(const WorkloadOptions& options) {
  const model::UtilityKind kind = options.utility ? options.utility->kind : model::UtilityKind::kLinear;
  return fmt::format("utility {} of the progress, scaled so that a finished job is worth {}", name_of(kind), options.weight);
}

}  // namespace maypole::formats
