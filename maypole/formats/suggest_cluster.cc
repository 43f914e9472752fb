// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/status.h"
#include "maypole/formats/cluster_tree.h"
#include "maypole/formats/workload.h"

#include <algorithm>
#include <cmath>

namespace maypole::formats {

namespace {

absl::StatusOr<model::Cluster> plain_servers(int count, double gpus) {
  ClusterNames names;
  generate_tree({.racks = 1, .servers_per_rack = count, .capacity = {{"gpu", gpus}}, .bandwidth = {}}).add_to(names, false);
  return names.make("the suggested cluster");
}

}  // namespace

absl::StatusOr<SuggestedCluster> suggest_cluster(const std::string& path, const std::string& measured) {
  constexpr double kGpusPerServer = 8;
  constexpr double kLeastGpus = 64;
  constexpr double kAnyJobFits = 1e9;
  MAYPOLE_ASSIGN_OR_RETURN(const model::Cluster vast, plain_servers(1, kAnyJobFits));
  MAYPOLE_ASSIGN_OR_RETURN(const Workload workload, read_workload(path, {.measured = measured}, vast));
  if (workload.format == WorkloadFormat::kPollux) {
    MAYPOLE_ASSIGN_OR_RETURN(model::Cluster cluster, plain_servers(16, 4));
    return SuggestedCluster{std::move(cluster), 0, "cluster: the published 16 servers of 4 GPUs, links not modelled"};
  }
  double gpu_seconds = 0;
  double largest = 0;
  for (const model::Job& job : workload.jobs) {
    const double gpus = job.demand[vast.accelerator()];
    gpu_seconds += job.work.value_or(0) * gpus;
    largest = std::max(largest, job.workers * gpus);
  }
  const double span = workload.jobs.back().arrival_s - workload.jobs.front().arrival_s;
  const double demand = span > 0 ? gpu_seconds / span : 0;
  const double servers = std::ceil(std::max({kLeastGpus, largest, demand / 0.8}) / kGpusPerServer);
  if (servers > 100'000) {
    return base::error(absl::StatusCode::kInvalidArgument, "the jobs ask for {:.0f} servers of 8 GPUs: give a cluster with --cluster",
                       servers);
  }
  MAYPOLE_ASSIGN_OR_RETURN(model::Cluster cluster, plain_servers(static_cast<int>(servers), kGpusPerServer));
  return SuggestedCluster{
      std::move(cluster), demand,
      fmt::format("cluster: {} servers of 8 GPUs, for a mean demand of {:.0f} GPUs at 80 % use, a largest job of {:.0f}, and {:.0f} GPUs "
                  "at least; links not modelled",
                  servers, demand, largest, kLeastGpus)};
}

}  // namespace maypole::formats
