// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_paper_slot.h"

#include "maypole/sched/free_capacity.h"

#include <algorithm>
#include <limits>

namespace maypole::sched {

PaperSlot make_paper_slot(const SlotProblem& problem) {
  PaperSlot slot;
  slot.problem = &problem;
  const model::Cluster& cluster = *problem.cluster;
  const FreeCapacity empty(cluster);
  for (const ActiveJob& active : problem.jobs) {
    const model::Job& job = *active.job;
    PaperJob made;
    made.active = &active;
    made.min_size = job.min_workers;
    made.max_size = worker_limit(active);
    made.gain.assign(static_cast<std::size_t>(made.max_size) + 1, 0);
    for (int k = made.min_size; k <= made.max_size; ++k) {
      const int most_servers = job.progress.depends_on_workers_only() ? 1 : std::min(k, static_cast<int>(cluster.num_servers()));
      for (int servers = 1; servers <= most_servers; ++servers) {
        const double progress = slot_progress(active, {k, servers, job.edge_bandwidth}, false, problem.slot_s);
        double& gain = made.gain[static_cast<std::size_t>(k)];
        gain = std::max(gain, utility_gain(active, progress, problem.start_s()));
        slot.best_gain = std::max(slot.best_gain, gain);
      }
    }
    made.demand.assign(cluster.num_resources(), 0);
    for (std::size_t r = 0; r < job.demand.size(); ++r) {
      made.demand[r] = job.demand[model::ResourceId::from_index(r)];
    }
    made.bandwidth = job.edge_bandwidth.limited() ? job.edge_bandwidth.bytes_per_second : 0;
    for (std::size_t s = 0; s < cluster.num_servers(); ++s) {
      made.host.push_back(empty.workers_that_fit(model::ServerId::from_index(s), job.demand, 1) > 0);
    }
    slot.jobs.push_back(std::move(made));
  }
  return slot;
}

double link_capacity(const model::Cluster& cluster, model::LinkId link) {
  const base::Bandwidth bandwidth = cluster.link(link).bandwidth;
  return bandwidth.limited() ? bandwidth.bytes_per_second : std::numeric_limits<double>::infinity();
}

}  // namespace maypole::sched
