// SPDX-License-Identifier: Apache-2.0
#pragma once

// What people compare policies by, from one run.

#include "maypole/model/job.h"
#include "maypole/sim/simulator.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace maypole::sim {

/// The p-quantile, p in [0, 1], linear between neighbours (the definition of numpy); nothing for no values.
[[nodiscard]] std::optional<double> quantile(std::vector<double> values, double p);

struct Metrics {
  double total_utility = 0;  // of all jobs' progress at the end
  std::size_t jobs = 0;
  std::size_t jobs_finished = 0;
  std::size_t jobs_never_started = 0;  // of those that had arrived
  // Completion time: from arrival to end, over finished jobs; nothing where none finished.
  std::optional<double> jct_mean_s, jct_p50_s, jct_p95_s, jct_p99_s;
  // From arrival to the first worker, over jobs that started.
  std::optional<double> queueing_mean_s, queueing_p95_s;
  std::optional<double> makespan_s;  // end of the last job; nothing where some job did not end
  /// Finish-time fairness (Themis): completion time over what the job would take with its share 1/n of the cluster, n being the jobs that
  /// were there meanwhile on average. Over finished jobs with work; 1 is fair, less is better than fair.
  std::optional<double> fairness_mean, fairness_max;
  double utilisation = 0;  // accelerator-seconds held / those of the cluster from the start to the horizon, or to the last job's end
  double gpu_hours = 0;
  std::int64_t resizes = 0;
  std::int64_t preemptions = 0;
  double resizes_per_job = 0;
  double preemptions_per_job = 0;
  double embedded_share = 0;                                             // jobs with workers / jobs there, mean over slots with jobs
  double rack_crossings_mean = 0;                                        // mean over slots with jobs
  double reserved_bytes_per_s_mean = 0;                                  // summed over links; mean over slots with jobs
  std::optional<double> decision_p50_s, decision_p99_s, decision_max_s;  // over slots that were decided
  std::int64_t decisions = 0;
  std::optional<double> gap_mean, gap_max;  // over decisions that state one
  std::int64_t violations = 0;
  std::int64_t limited = 0;
};

[[nodiscard]] Metrics metrics_of(const Simulation& simulation, const model::Instance& instance);

}  // namespace maypole::sim
