// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/status.h"
#include "maypole/formats/pollux_measurements.h"
#include "maypole/formats/trace.h"

#include <algorithm>
#include <map>

namespace maypole::formats {

namespace {

constexpr double kMostWorkers = 4096;

// The applications of a workload, each read once.
class Applications {
 public:
  explicit Applications(std::string folder) : folder_(std::move(folder)) {}

  const PolluxMeasurements* get(const CsvRow& row) {
    const std::string name = row.name("application");
    if (name.find('/') != std::string::npos || name.starts_with('.')) {
      row.problem("application", fmt::format("'{}' is no name of a folder of measurements", name));
      return nullptr;
    }
    const auto known = read_.find(name);
    if (known != read_.end()) {
      return &known->second;
    }
    absl::StatusOr<PolluxMeasurements> measured = read_pollux_measurements(folder_ + "/" + name);
    if (!measured.ok()) {
      row.problem("application",
                  fmt::format("{}: give the folder that holds {}/placements.csv by --measured", base::message(measured.status()), name));
      return nullptr;
    }
    return &read_.emplace(name, *std::move(measured)).first->second;
  }

 private:
  std::string folder_;
  std::map<std::string, PolluxMeasurements> read_;
};

}  // namespace

Trace read_pollux_trace(const CsvTable& table, const WorkloadOptions& options, const model::Cluster& cluster, Problems& problems) {
  Trace trace;
  trace.name = "Pollux";
  Applications applications(options.measured);
  // Tables are the same for all jobs of one application and batch.
  std::map<std::pair<const PolluxMeasurements*, double>, std::vector<model::RatePoint>> tables;
  for (std::size_t i = 0; i < table.rows.size() && problems.ok(); ++i) {
    const CsvRow row(table, i, problems);
    const PolluxMeasurements* measured = applications.get(row);
    const double batch = row.positive("batch_size");
    const int workers = row.integer("num_replicas", 1);
    if (batch < workers || workers > kMostWorkers) {
      row.problem("num_replicas", fmt::format("{} workers for a batch of {}: each needs one sample at least", workers, batch));
    }
    if (!problems.ok()) {
      break;
    }
    TracedJob& traced = trace.jobs.emplace_back();
    traced.line = row.line();
    model::Job& job = traced.job;
    job.id = row.name("name");
    job.arrival_s = row.number("time", 0);
    job.workers = workers;
    job.min_workers = options.elastic ? 1 : workers;
    job.max_workers = options.elastic ? std::max(workers, measured->most_workers(batch)) : workers;
    job.demand.assign(cluster.num_resources(), 0);
    job.demand[cluster.accelerator()] = 1;
    job.work = measured->samples(batch);
    job.progress.kind = model::ProgressKind::kTable;
    std::vector<model::RatePoint>& points = tables[{measured, batch}];
    if (points.empty()) {
      points = measured->rates(batch);
    }
    job.progress.points = points;
    job.progress.resize_s = options.elastic ? kElasticResizeS : 0;
    set_worth(options, job);
  }
  trace.filling.emplace_back("work in samples: the last iteration of validation-<batch> x batch, between measured batches on a log scale");
  trace.filling.emplace_back(
      "speed: batch / measured step time at batch / workers samples a worker, the mean over placements on as many servers "
      "(larger than measured: gradients accumulate; smaller: the smallest measured)");
  trace.filling.emplace_back(options.elastic ? "elastic: 1 worker to as many as were measured with a full smallest batch, 30 s a resize"
                                             : "rigid: num_replicas workers of one GPU, or none");
  trace.filling.emplace_back("batch sizes are fixed; no edge bandwidth");
  trace.filling.push_back(worth_filling(options));
  return trace;
}

}  // namespace maypole::formats
