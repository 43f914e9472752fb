// SPDX-License-Identifier: Apache-2.0
#include "maypole/sim/offered_load.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace maypole::sim {

namespace {

/// Fewest servers of the empty cluster that hold so many workers of the job, if all were as large as the largest.
int fewest_servers(const model::Job& job, int workers, const model::Cluster& cluster) {
  double largest = 1;
  for (const model::Server& server : cluster.parts().servers) {
    double fit = workers;
    for (std::size_t i = 0; i < cluster.num_resources(); ++i) {
      const auto r = model::ResourceId::from_index(i);
      if (job.demand[r] > 0) {
        fit = std::min(fit, std::floor(server.capacity[r] / job.demand[r] * (1 + 1e-9)));
      }
    }
    largest = std::max(largest, fit);
  }
  return static_cast<int>(std::ceil(workers / largest));
}

double needed_s(const model::Job& job, int workers, const model::Instance& instance) {
  double seconds = std::numeric_limits<double>::infinity();
  if (job.work) {
    const double rate =
        job.progress.per_slot({workers, fewest_servers(job, workers, instance.cluster), job.edge_bandwidth}, instance.slot_s);
    seconds = *job.work / rate * instance.slot_s;
  }
  if (job.budget) {
    seconds = std::min(seconds, *job.budget / workers * instance.slot_s);
  }
  return seconds;
}

}  // namespace

double fastest_s(const model::Job& job, const model::Instance& instance) {
  return std::min(needed_s(job, job.workers, instance), needed_s(job, job.max_workers, instance));
}

OfferedLoad offered_load(const model::Instance& instance) {
  OfferedLoad offered;
  model::Amounts needed(instance.cluster.num_resources(), 0);
  double first_s = std::numeric_limits<double>::infinity();
  double last_s = 0;
  const double horizon_s = instance.slots > 0 ? instance.slots * instance.slot_s : std::numeric_limits<double>::infinity();
  for (const model::Job& job : instance.jobs) {
    first_s = std::min(first_s, job.arrival_s);
    last_s = std::max(last_s, job.arrival_s);
    const double seconds = std::min(needed_s(job, job.workers, instance), std::max(0.0, horizon_s - job.arrival_s));
    if (!std::isfinite(seconds)) {
      ++offered.endless;
      continue;
    }
    offered.alone_s += seconds;
    for (std::size_t i = 0; i < needed.size(); ++i) {
      const auto r = model::ResourceId::from_index(i);
      needed[r] += job.workers * job.demand[r] * seconds;
    }
  }
  const double span_s = std::max(instance.slot_s, (instance.slots > 0 ? horizon_s : last_s) - first_s);
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const auto r = model::ResourceId::from_index(i);
    const double load = needed[r] > 0 ? needed[r] / (instance.cluster.total_capacity()[r] * span_s) : 0;
    if (load > offered.load) {
      offered.load = load;
      offered.resource = instance.cluster.resource(r);
    }
  }
  return offered;
}

}  // namespace maypole::sim
