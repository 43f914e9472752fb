// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/workload_csv.h"

#include "maypole/base/status.h"
#include "maypole/formats/csv.h"
#include "maypole/formats/number.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace maypole::formats {

namespace {

using model::ProgressKind;
using model::UtilityKind;

// The most accelerators of one server.
double largest_server(const model::Cluster& cluster) {
  double largest = 0;
  for (const model::Server& server : cluster.parts().servers) {
    largest = std::max(largest, server.capacity[cluster.accelerator()]);
  }
  return largest;
}

// Worker-seconds at the job's own number of workers.
double worker_seconds(const model::Job& job, double gpus_per_worker, double gpus_per_server, double slot_s) {
  const model::ProgressModel& progress = job.progress;
  const bool linear_there =
      progress.kind == ProgressKind::kConstant || (progress.kind == ProgressKind::kPower && progress.reference == job.workers);
  if (linear_there) {
    return *job.work * (slot_s / progress.zeta);  // exact where zeta is the slot
  }
  const int per_server = std::max(1, static_cast<int>(gpus_per_server / gpus_per_worker));
  const int servers = (job.workers + per_server - 1) / per_server;
  return *job.work / progress.per_slot({job.workers, servers, job.edge_bandwidth}, slot_s) * slot_s * job.workers;
}

// What a unit of utility weighs when work counts in worker-seconds: a finished job stays worth what it was.
double weight_for(const model::Job& job, std::optional<double> work) {
  if (work == job.work) {
    return job.weight;
  }
  const double now = job.utility.value(*work);
  return now > 0 ? job.value(*job.work) / now : job.weight;
}

// Counts what a job loses, by the sentence that says it. `work`: in worker-seconds.
void count_losses(const model::Job& job, std::optional<double> work, const model::Cluster& cluster, double slot_s,
                  std::map<std::string, int>& losses) {
  for (std::size_t i = 0; i < cluster.num_resources(); ++i) {
    const model::ResourceId resource = model::ResourceId::from_index(i);
    if (resource != cluster.accelerator() && job.demand[resource] > 0) {
      ++losses[fmt::format("the {} per worker", cluster.resource(resource))];
    }
  }
  const UtilityKind kind = job.utility.kind;
  const bool has_parameters = kind == UtilityKind::kEnergy || kind == UtilityKind::kSigmoid || kind == UtilityKind::kDeadline;
  if (has_parameters) {
    ++losses[fmt::format("the parameters of the utility {} (a reader gives utility and parameters by --utility)", name_of(kind))];
  }
  if (work != job.work && !has_parameters && kind != UtilityKind::kLinear) {
    ++losses[fmt::format("what progress on the way is worth by the utility {}, as its unit changes (a finished job is worth the same)",
                         name_of(kind))];
  }
  if (!job.work && job.progress.kind == ProgressKind::kConstant && job.progress.zeta != slot_s) {
    ++losses["the progress of a worker, as there is no work to count it by (a reader takes a second of work a second)"];
  }
  if (job.budget) {
    ++losses["the budget"];
  }
  if (job.max_racks > 0) {
    ++losses["the limit of racks"];
  }
  if (job.progress.kind != ProgressKind::kConstant) {
    ++losses[fmt::format("the speed law '{}' (a reader takes a linear one, or with --elastic (w / workers)^0.8)",
                         name_of(job.progress.kind))];
  }
  if (job.progress.resize_s > 0) {
    ++losses["the cost of a resize (a reader takes none, or with --elastic 30 s)"];
  }
}

}  // namespace

absl::StatusOr<WorkloadCsv> workload_csv(std::span<const model::Job> jobs, const model::Cluster& cluster, double slot_s) {
  WorkloadCsv csv;
  csv.text = "job_id,arrival_s,min_workers,workers,max_workers,gpus_per_worker,work,edge_bandwidth,utility,weight\n";
  const double gpus_per_server = largest_server(cluster);
  std::map<std::string, int> losses;
  for (const model::Job& job : jobs) {
    const double gpus = job.demand[cluster.accelerator()];
    if (!(gpus > 0)) {
      return base::error(absl::StatusCode::kInvalidArgument, "job '{}' needs no {}: the column gpus_per_worker cannot hold that", job.id,
                         cluster.resource(cluster.accelerator()));
    }
    const std::optional<double> work = job.work ? std::optional(worker_seconds(job, gpus, gpus_per_server, slot_s)) : std::nullopt;
    csv.text += fmt::format("{},{},{},{},{},{},{},{},{},{}\n", csv_field(job.id), format_number(job.arrival_s), job.min_workers,
                            job.workers, job.max_workers, format_number(gpus), work ? format_number(*work) : "",
                            job.edge_bandwidth.limited() ? format_number(job.edge_bandwidth.bytes_per_second) : "",
                            name_of(job.utility.kind), format_number(weight_for(job, work)));
    count_losses(job, work, cluster, slot_s, losses);
  }
  for (const auto& [what, count] : losses) {
    csv.lost.push_back(fmt::format("{} of {} jobs", what, count));
  }
  return csv;
}

}  // namespace maypole::formats
