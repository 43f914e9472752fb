// SPDX-License-Identifier: Apache-2.0
#include "maypole/sim/metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace maypole::sim {

namespace {

std::optional<double> mean(const std::vector<double>& values) {
  if (values.empty()) {
    return std::nullopt;
  }
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::optional<double> largest(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional<double>(*std::ranges::max_element(values));
}

/// Seconds that the job would take with the share 1/n of the cluster: as many workers as that holds, or one worker part of the time.
double fair_s(const model::Job& job, const model::Instance& instance, double n) {
  double share = job.max_workers;
  for (std::size_t i = 0; i < instance.cluster.num_resources(); ++i) {
    const auto r = model::ResourceId::from_index(i);
    if (job.demand[r] > 0) {
      share = std::min(share, instance.cluster.total_capacity()[r] / n / job.demand[r]);
    }
  }
  const int workers = std::max(job.min_workers, static_cast<int>(share));
  const double part = std::min(1.0, share / workers);
  const double rate = job.progress.per_slot({workers, 1, job.edge_bandwidth}, instance.slot_s) * part;
  return *job.work / rate * instance.slot_s;
}

void add_jobs(Metrics& metrics, const Simulation& simulation, const model::Instance& instance) {
  std::vector<double> jct;
  std::vector<double> queueing;
  std::vector<double> fairness;
  double attained_s = 0;
  double last_end_s = 0;
  const double passed_s = static_cast<double>(simulation.num_slots) * simulation.slot_s;
  for (std::size_t i = 0; i < simulation.jobs.size(); ++i) {
    const JobOutcome& job = simulation.jobs[i];
    metrics.total_utility += job.utility;
    metrics.resizes += job.resizes;
    metrics.preemptions += job.preemptions;
    attained_s += job.attained_s;
    if (job.started_s) {
      queueing.push_back(*job.started_s - job.arrival_s);
    } else if (job.arrival_s < passed_s) {
      ++metrics.jobs_never_started;
    }
    if (job.ended_s) {
      jct.push_back(*job.ended_s - job.arrival_s);
      last_end_s = std::max(last_end_s, *job.ended_s);
      if (instance.jobs[i].work && job.mean_active > 0) {
        fairness.push_back(jct.back() / fair_s(instance.jobs[i], instance, job.mean_active));
      }
    }
  }
  metrics.jobs = simulation.jobs.size();
  metrics.jobs_finished = jct.size();
  metrics.jct_mean_s = mean(jct);
  metrics.jct_p50_s = quantile(jct, 0.50);
  metrics.jct_p95_s = quantile(jct, 0.95);
  metrics.jct_p99_s = quantile(jct, 0.99);
  metrics.queueing_mean_s = mean(queueing);
  metrics.queueing_p95_s = quantile(queueing, 0.95);
  const bool all_ended = metrics.jobs > 0 && metrics.jobs_finished == metrics.jobs;
  if (all_ended) {
    metrics.makespan_s = last_end_s;
  }
  metrics.fairness_mean = mean(fairness);
  metrics.fairness_max = largest(fairness);
  const double time_s = all_ended && instance.slots == 0 ? last_end_s : passed_s;
  const double capacity = instance.cluster.total_capacity()[instance.cluster.accelerator()];
  metrics.utilisation = time_s > 0 && capacity > 0 ? attained_s / (capacity * time_s) : 0;
  metrics.gpu_hours = attained_s / 3600;
  const double jobs = std::max<double>(1, static_cast<double>(metrics.jobs));
  metrics.resizes_per_job = static_cast<double>(metrics.resizes) / jobs;
  metrics.preemptions_per_job = static_cast<double>(metrics.preemptions) / jobs;
}

void add_slots(Metrics& metrics, const Simulation& simulation) {
  std::vector<double> seconds;
  std::vector<double> gaps;
  for (const SlotSample& slot : simulation.slots) {
    metrics.embedded_share += static_cast<double>(slot.embedded) / slot.active;
    metrics.rack_crossings_mean += slot.rack_crossings;
    metrics.reserved_bytes_per_s_mean += slot.reserved_bytes_per_s;
    if (slot.decided) {
      seconds.push_back(slot.seconds);
    }
    if (slot.gap) {
      gaps.push_back(*slot.gap);
    }
  }
  const double slots = std::max<double>(1, static_cast<double>(simulation.slots.size()));
  metrics.embedded_share /= slots;
  metrics.rack_crossings_mean /= slots;
  metrics.reserved_bytes_per_s_mean /= slots;
  metrics.decisions = static_cast<std::int64_t>(seconds.size());
  metrics.decision_p50_s = quantile(seconds, 0.50);
  metrics.decision_p99_s = quantile(seconds, 0.99);
  metrics.decision_max_s = largest(seconds);
  metrics.gap_mean = mean(gaps);
  metrics.gap_max = largest(gaps);
}

}  // namespace

std::optional<double> quantile(std::vector<double> values, double p) {
  if (values.empty()) {
    return std::nullopt;
  }
  std::ranges::sort(values);
  const double position = p * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(position));
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - std::floor(position)) * (values[above] - values[below]);
}

Metrics metrics_of(const Simulation& simulation, const model::Instance& instance) {
  Metrics metrics;
  add_jobs(metrics, simulation, instance);
  add_slots(metrics, simulation);
  metrics.violations = simulation.violations;
  metrics.limited = simulation.limited;
  return metrics;
}

}  // namespace maypole::sim
