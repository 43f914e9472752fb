// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/free_capacity.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace maypole::sched {

FreeCapacity::FreeCapacity(const model::Cluster& cluster) : cluster_(&cluster) {
  for (const model::Server& server : cluster.parts().servers) {
    amounts_.push_back(server.capacity);
  }
  for (const model::Link& link : cluster.parts().links) {
    bandwidth_.push_back(link.bandwidth.limited() ? link.bandwidth.bytes_per_second : std::numeric_limits<double>::infinity());
  }
}

int FreeCapacity::workers_that_fit(model::ServerId server, const model::Amounts& demand, int limit) const {
  const model::Amounts& free = amounts_[server];
  double fit = limit;
  for (std::size_t i = 0; i < demand.size(); ++i) {
    const auto r = model::ResourceId::from_index(i);
    if (demand[r] > 0) {
      // Slack relative to the whole server: what a sum of demands may be off by.
      const double slack = kFitTolerance * cluster_->server(server).capacity[r];
      fit = std::min(fit, std::floor((free[r] + slack) / demand[r]));
    }
  }
  return std::max(0, static_cast<int>(fit));
}

bool FreeCapacity::fits(const model::Job& job, const model::Embedding& embedding) const {
  std::vector<model::ServerId> servers = embedding.ring;
  std::ranges::sort(servers);
  for (std::size_t first = 0; first < servers.size();) {
    std::size_t last = first;
    while (last < servers.size() && servers[last] == servers[first]) {
      ++last;
    }
    const int workers = static_cast<int>(last - first);
    if (workers_that_fit(servers[first], job.demand, workers) < workers) {
      return false;
    }
    first = last;
  }
  if (!embedding.bandwidth.limited()) {
    return true;
  }
  std::vector<model::LinkId> links;
  for (const std::vector<model::LinkId>& edge : embedding.edges) {
    links.insert(links.end(), edge.begin(), edge.end());
  }
  std::ranges::sort(links);
  for (std::size_t first = 0; first < links.size();) {
    std::size_t last = first;
    while (last < links.size() && links[last] == links[first]) {
      ++last;
    }
    const double load = static_cast<double>(last - first) * embedding.bandwidth.bytes_per_second;
    const model::Link& link = cluster_->link(links[first]);
    if (load > bandwidth_[links[first]] + kFitTolerance * link.bandwidth.bytes_per_second) {
      return false;
    }
    first = last;
  }
  return true;
}

void FreeCapacity::take(const model::Job& job, const model::Embedding& embedding) { add(job, embedding, -1); }
void FreeCapacity::give_back(const model::Job& job, const model::Embedding& embedding) { add(job, embedding, 1); }

void FreeCapacity::add(const model::Job& job, const model::Embedding& embedding, double sign) {
  for (const model::ServerId server : embedding.ring) {
    for (std::size_t i = 0; i < job.demand.size(); ++i) {
      const auto r = model::ResourceId::from_index(i);
      amounts_[server][r] += sign * job.demand[r];
    }
  }
  for (const std::vector<model::LinkId>& edge : embedding.edges) {
    for (const model::LinkId link : edge) {
      bandwidth_[link] += sign * embedding.bandwidth.bytes_per_second;
    }
  }
}

}  // namespace maypole::sched
