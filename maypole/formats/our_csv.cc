// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/status.h"
#include "maypole/formats/job_fields.h"
#include "maypole/formats/trace.h"

#include <fmt/format.h>

#include <algorithm>

namespace maypole::formats {

namespace {

// What the options say, else the row.
model::Utility utility_of(const CsvRow& row, const WorkloadOptions& options, double work) {
  const std::string& name = row.text("utility");
  const std::optional<model::UtilityKind> kind = name.empty() ? model::UtilityKind::kLinear : utility_kind(name);
  if (!kind) {
    row.problem("utility", fmt::format("there is no kind '{}': give one of {}", name, utility_kinds()));
    return {};
  }
  model::Utility utility = options.utility.value_or(model::Utility{.kind = *kind});
  if (!options.utility &&
      (*kind == model::UtilityKind::kEnergy || *kind == model::UtilityKind::kSigmoid || *kind == model::UtilityKind::kDeadline)) {
    row.problem("utility",
                fmt::format("'{}' has parameters, which no column holds: give it with them as --utility, or use an instance", name));
  }
  if (utility.kind == model::UtilityKind::kDeadline) {
    utility.work = work;
  }
  return utility;
}

model::ProgressModel progress_in(const CsvRow& row, const std::string& folder, const std::string& file) {
  absl::StatusOr<model::ProgressModel> read = read_progress_file(folder, file);
  if (!read.ok()) {
    row.problem(kProgressColumn, base::message(read.status()));
    return {};
  }
  return *std::move(read);
}

}  // namespace

Trace read_our_csv(const CsvTable& table, const WorkloadOptions& options, const model::Cluster& cluster, Problems& problems) {
  Trace trace;
  trace.name = "Maypole CSV";
  trace.from_first_arrival = false;
  const bool has_progress = table.column(kProgressColumn).has_value();
  bool profiled = false;
  for (std::size_t i = 0; i < table.rows.size() && problems.ok(); ++i) {
    const CsvRow row(table, i, problems);
    TracedJob& traced = trace.jobs.emplace_back();
    traced.line = row.line();
    model::Job& job = traced.job;
    job.id = row.name("job_id");
    job.arrival_s = row.number("arrival_s", 0);
    job.min_workers = row.integer("min_workers", 1);
    job.workers = row.integer("workers", 1);
    job.max_workers = row.integer("max_workers", 1);
    job.demand.assign(cluster.num_resources(), 0);
    job.demand[cluster.accelerator()] = row.positive("gpus_per_worker");
    job.work = row.optional_positive("work");
    job.edge_bandwidth.bytes_per_second = row.text("edge_bandwidth").empty() ? 0 : row.number("edge_bandwidth", 0);
    job.utility = utility_of(row, options, job.work.value_or(1));
    job.weight = row.text("weight").empty() ? options.weight : row.number("weight", 0);
    job.progress.zeta = options.slot_s;
    if (const std::string file = has_progress ? row.text(kProgressColumn) : ""; !file.empty()) {
      profiled = true;
      job.progress = progress_in(row, options.folder, file);
    } else if (options.elastic) {
      job.progress.kind = model::ProgressKind::kPower;
      job.progress.reference = job.workers;
      job.progress.exponent = kElasticExponent;
      job.progress.resize_s = kElasticResizeS;
    }
  }
  trace.filling.emplace_back(options.elastic ? "speed (w / workers)^0.8, 30 s a resize"
                                             : "speed linear in the workers, resizes cost nothing");
  trace.filling.emplace_back(profiled ? "work in worker-seconds, where a progress model is given in its unit" : "work in worker-seconds");
  return trace;
}

}  // namespace maypole::formats
