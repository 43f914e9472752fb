// SPDX-License-Identifier: Apache-2.0
#include "maypole/model/job.h"

#include "maypole/base/status.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <vector>

namespace maypole::model {

namespace {

using base::error;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
// More workers than this are a mistake, and policies keep tables over a job's workers.
constexpr int kMostWorkers = 100'000;
// Relative: the same amount in other units differs in its last bits.
constexpr double kFitTolerance = 1e-9;

bool finite_positive(double value) { return value > 0 && std::isfinite(value); }
bool finite_not_negative(double value) { return value >= 0 && std::isfinite(value); }

absl::Status check_utility(const Job& job) {
  const Utility& utility = job.utility;
  if (!finite_not_negative(job.weight)) {
    return error(kInvalid, "job '{}' has weight {}: give a finite number of at least 0", job.id, job.weight);
  }
  if (utility.kind == UtilityKind::kEnergy && !finite_not_negative(utility.cost)) {
    return error(kInvalid, "job '{}' has utility.cost {}: give a finite number of at least 0", job.id, utility.cost);
  }
  if (utility.kind == UtilityKind::kSigmoid && !finite_positive(utility.sensitivity)) {
    return error(kInvalid, "job '{}' has utility.sensitivity {}: give a finite number above 0", job.id, utility.sensitivity);
  }
  if (utility.kind == UtilityKind::kSigmoid && !std::isfinite(utility.expected)) {
    return error(kInvalid, "job '{}' has utility.expected {}: give a finite progress", job.id, utility.expected);
  }
  if (utility.kind == UtilityKind::kDeadline) {
    if (!finite_positive(utility.work)) {
      return error(kInvalid, "job '{}' has utility.work {}: give the progress that is due, above 0", job.id, utility.work);
    }
    if (!finite_not_negative(utility.deadline_s)) {
      return error(kInvalid, "job '{}' has utility.deadline_s {}: give seconds of at least 0", job.id, utility.deadline_s);
    }
    if (!(utility.late >= 0 && utility.late <= 1)) {
      return error(kInvalid, "job '{}' has utility.late {}: give a share between 0 and 1", job.id, utility.late);
    }
  }
  return absl::OkStatus();
}

absl::Status check_iterations(const Job& job) {
  const ProgressModel& model = job.progress;
  if (model.iterations.empty()) {
    return error(kInvalid, "job '{}' has no simulated iterations: give progress.iterations", job.id);
  }
  for (const double value : {model.bandwidth.bytes_per_second, model.local_bandwidth.bytes_per_second}) {
    if (!finite_not_negative(value)) {
      return error(kInvalid, "job '{}' has a bandwidth of {} in progress: give a finite number of at least 0", job.id, value);
    }
  }
  const auto place = [](const IterationPoint& point) { return std::tuple(point.spread, point.workers, point.s_per_byte); };
  for (std::size_t i = 0; i < model.iterations.size(); ++i) {
    const IterationPoint& point = model.iterations[i];
    if (point.workers < 1 || !finite_not_negative(point.s_per_byte) || !finite_positive(point.iteration_s)) {
      return error(kInvalid, "job '{}' has a bad progress.iterations[{}] (workers {}, s_per_byte {}, iteration_s {})", job.id, i,
                   point.workers, point.s_per_byte, point.iteration_s);
    }
    if (i > 0 && place(point) <= place(model.iterations[i - 1])) {
      return error(kInvalid, "job '{}' has progress.iterations[{}] twice or out of order: sort by spread, workers and s_per_byte", job.id,
                   i);
    }
    const bool first = i == 0 || point.workers != model.iterations[i - 1].workers || point.spread != model.iterations[i - 1].spread;
    if (first && point.s_per_byte != 0) {
      return error(kInvalid, "job '{}' lacks an iteration of {} workers at s_per_byte 0 before progress.iterations[{}]", job.id,
                   point.workers, i);
    }
  }
  return absl::OkStatus();
}

absl::Status check_progress(const Job& job) {
  const ProgressModel& model = job.progress;
  if (!finite_not_negative(model.resize_s)) {
    return error(kInvalid, "job '{}' has progress.resize_s {}: give seconds of at least 0", job.id, model.resize_s);
  }
  switch (model.kind) {
    case ProgressKind::kConstant:
    case ProgressKind::kPower:
      if (!finite_positive(model.zeta)) {
        return error(kInvalid, "job '{}' has progress.zeta {}: give the progress per slot and worker, above 0", job.id, model.zeta);
      }
      if (!(model.exponent > 0 && model.exponent <= 1)) {
        return error(kInvalid, "job '{}' has progress.exponent {}: give a number above 0 and at most 1", job.id, model.exponent);
      }
      if (!finite_positive(model.reference)) {
        return error(kInvalid, "job '{}' has progress.reference {}: give a number of workers above 0", job.id, model.reference);
      }
      return absl::OkStatus();
    case ProgressKind::kRing:
    case ProgressKind::kOverlap:
      for (const double value : {model.gradient_bytes, model.reduce_bytes_per_s, model.forward_s, model.backward_s, model.latency_s,
                                 model.bandwidth.bytes_per_second, model.local_bandwidth.bytes_per_second}) {
        if (!finite_not_negative(value)) {
          return error(kInvalid, "job '{}' has a cost of {} in progress: give finite numbers of at least 0", job.id, value);
        }
      }
      if (!(model.forward_s + model.backward_s > 0)) {
        return error(kInvalid, "job '{}' has no compute time: give progress.forward_s and progress.backward_s above 0", job.id);
      }
      return absl::OkStatus();
    case ProgressKind::kProfile:
      return check_iterations(job);
    case ProgressKind::kTable:
      if (model.points.empty()) {
        return error(kInvalid, "job '{}' has an empty table: give progress.points", job.id);
      }
      for (std::size_t i = 0; i < model.points.size(); ++i) {
        const RatePoint& point = model.points[i];
        if (point.workers < 1 || point.servers < 1 || !finite_positive(point.rate)) {
          return error(kInvalid, "job '{}' has a bad point in progress.points (workers {}, servers {}, rate {}): all must be above 0",
                       job.id, point.workers, point.servers, point.rate);
        }
        if (i > 0 && std::pair(point.servers, point.workers) <= std::pair(model.points[i - 1].servers, model.points[i - 1].workers)) {
          return error(kInvalid, "job '{}' has the point (workers {}, servers {}) twice or out of order: sort by servers, then workers",
                       job.id, point.workers, point.servers);
        }
      }
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace

int num_servers(std::span<const ServerId> ring) {
  std::vector<ServerId> servers(ring.begin(), ring.end());
  std::ranges::sort(servers);
  return static_cast<int>(std::ranges::unique(servers).begin() - servers.begin());
}

RingShape shape_of(const Embedding& embedding) { return {embedding.workers(), num_servers(embedding.ring), embedding.bandwidth}; }

double empty_server_workers(const Job& job, const Cluster& cluster, const Server& server) {
  double fit = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < cluster.num_resources(); ++i) {
    const ResourceId r = ResourceId::from_index(i);
    if (job.demand[r] > 0) {
      fit = std::min(fit, std::floor(server.capacity[r] / job.demand[r] * (1 + kFitTolerance)));
    }
  }
  return fit;
}

std::int64_t empty_cluster_workers(const Job& job, const Cluster& cluster, std::int64_t limit) {
  std::int64_t workers = 0;
  for (const Server& server : cluster.parts().servers) {
    const double fit = empty_server_workers(job, cluster, server);
    if (fit >= static_cast<double>(limit - workers)) {
      return limit;
    }
    workers += static_cast<std::int64_t>(fit);
  }
  return workers;
}

absl::Status check_job_alone(const Job& job, const Cluster& cluster) {
  if (job.id.empty()) {
    return error(kInvalid, "a job has an empty id: give it a name");
  }
  if (!finite_not_negative(job.arrival_s)) {
    return error(kInvalid, "job '{}' arrives at {} s: give a time of at least 0", job.id, job.arrival_s);
  }
  if (job.min_workers < 1 || job.workers < job.min_workers || job.max_workers < job.workers) {
    return error(kInvalid, "job '{}' has min_workers {}, workers {}, max_workers {}: give 1 <= min_workers <= workers <= max_workers",
                 job.id, job.min_workers, job.workers, job.max_workers);
  }
  if (job.max_workers > kMostWorkers) {
    return error(kInvalid, "job '{}' has max_workers {}: give at most {}", job.id, job.max_workers, kMostWorkers);
  }
  if (job.demand.size() != cluster.num_resources()) {
    return error(kInvalid, "job '{}' names {} resources, the cluster has {}", job.id, job.demand.size(), cluster.num_resources());
  }
  bool any = false;
  for (std::size_t i = 0; i < cluster.num_resources(); ++i) {
    const ResourceId r = ResourceId::from_index(i);
    if (!finite_not_negative(job.demand[r])) {
      return error(kInvalid, "job '{}' needs {} of {} per worker: give a finite amount of at least 0", job.id, job.demand[r],
                   cluster.resource(r));
    }
    any = any || job.demand[r] > 0;
  }
  if (!any) {
    return error(kInvalid, "job '{}' needs nothing per worker: give it at least one resource, such as gpu: 1", job.id);
  }
  if (!finite_not_negative(job.edge_bandwidth.bytes_per_second)) {
    return error(kInvalid, "job '{}' has edge_bandwidth {}: give a finite rate, or none", job.id, job.edge_bandwidth.bytes_per_second);
  }
  if (job.work && !finite_positive(*job.work)) {
    return error(kInvalid, "job '{}' has work {}: give a finite amount above 0, or none", job.id, *job.work);
  }
  if (job.budget && !finite_positive(*job.budget)) {
    return error(kInvalid, "job '{}' has budget {}: give worker-slots above 0, or none", job.id, *job.budget);
  }
  if (job.max_racks < 0 || !finite_not_negative(job.max_racks_s)) {
    return error(kInvalid, "job '{}' has racks {}@{}: give numbers of at least 0", job.id, job.max_racks, job.max_racks_s);
  }
  MAYPOLE_RETURN_IF_ERROR(check_utility(job));
  return check_progress(job);
}

absl::Status check_job_fits(const Job& job, const Cluster& cluster) {
  const std::int64_t fit = empty_cluster_workers(job, cluster, job.min_workers);
  if (fit >= job.min_workers) {
    return absl::OkStatus();
  }
  if (fit == 0) {
    for (std::size_t i = 0; i < cluster.num_resources(); ++i) {
      const ResourceId r = ResourceId::from_index(i);
      double largest = 0;
      for (const Server& server : cluster.parts().servers) {
        largest = std::max(largest, server.capacity[r]);
      }
      if (job.demand[r] > largest) {
        return error(kInvalid, "job '{}' can never run: each worker needs {:g} {}, the largest server has {:g}", job.id, job.demand[r],
                     cluster.resource(r), largest);
      }
    }
    return error(kInvalid, "job '{}' can never run: no server holds all that one worker needs at once", job.id);
  }
  return error(kInvalid, "job '{}' can never run: it needs at least {} workers, the empty cluster holds {}", job.id, job.min_workers, fit);
}

absl::Status check_bandwidth_fits(const Job& job, const Cluster& cluster) {
  if (!job.edge_bandwidth.limited() || cluster.num_links() == 0) {
    return absl::OkStatus();
  }
  // Every link on the way of a ring's edge carries at least the edge's rate, so a ring stays within nodes that such links join.
  std::vector<std::size_t> group(cluster.num_nodes());
  std::iota(group.begin(), group.end(), std::size_t{0});
  const auto leader = [&](std::size_t node) {
    while (group[node] != node) {
      node = group[node] = group[group[node]];
    }
    return node;
  };
  for (const Link& link : cluster.parts().links) {
    const double rate = link.bandwidth.bytes_per_second * (1 + kFitTolerance);
    if (!link.bandwidth.limited() || rate >= job.edge_bandwidth.bytes_per_second) {
      group[leader(link.from.index())] = leader(link.to.index());
    }
  }
  std::vector<double> workers(cluster.num_nodes());
  for (std::size_t i = 0; i < cluster.num_servers(); ++i) {
    const ServerId id = ServerId::from_index(i);
    workers[leader(Cluster::node(id).index())] += empty_server_workers(job, cluster, cluster.server(id));
  }
  const double most = std::ranges::max(workers);
  if (most >= job.min_workers) {
    return absl::OkStatus();
  }
  return error(kInvalid,
               "job '{}' can never run: it needs at least {} workers, and servers joined by links of {} hold {:.0f}: give it less "
               "bandwidth or fewer workers",
               job.id, job.min_workers, base::format_bandwidth(job.edge_bandwidth), most);
}

absl::Status check_job(const Job& job, const Cluster& cluster) {
  MAYPOLE_RETURN_IF_ERROR(check_job_alone(job, cluster));
  return check_job_fits(job, cluster);
}

absl::Status check_instance(const Instance& instance) {
  if (!finite_positive(instance.slot_s)) {
    return error(kInvalid, "the slot is {} s long: give a time above 0", instance.slot_s);
  }
  if (instance.slots < 0) {
    return error(kInvalid, "the horizon is {} slots: give a number above 0, or none", instance.slots);
  }
  std::unordered_set<std::string_view> ids;
  for (const Job& job : instance.jobs) {
    MAYPOLE_RETURN_IF_ERROR(check_job(job, instance.cluster));
    if (!ids.insert(job.id).second) {
      return error(kInvalid, "job '{}' is there twice: give each its own id", job.id);
    }
  }
  return absl::OkStatus();
}

}  // namespace maypole::model
