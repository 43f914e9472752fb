// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of policies: small clusters and jobs, random ones, and a loop that runs a policy slot by slot.

#include "maypole/model/job.h"
#include "maypole/sched/policy.h"

#include <string>
#include <vector>

namespace maypole::sched {

/// Racks of servers under one core; every server has that many GPUs. Bandwidths in bytes per second, 0: no limit.
struct TreeShape {
  int racks = 1;
  int servers_per_rack = 4;
  double gpus = 4;
  double server_bandwidth = 0;
  double uplink_bandwidth = 0;
};
[[nodiscard]] model::Cluster tree_cluster(const TreeShape& shape);
/// Servers s0, s1, ... with these GPUs, in one rack, without links.
[[nodiscard]] model::Cluster flat_cluster(const std::vector<double>& gpus);
/// A tree of two or three levels, a general graph of servers and switches, or no links at all; one to three resources.
[[nodiscard]] model::Cluster random_cluster(base::Rng& rng);

/// A job of one GPU a worker (and nothing else) that can use `workers` only.
[[nodiscard]] model::Job rigid_job(const model::Cluster& cluster, const std::string& id, int workers);
[[nodiscard]] model::Job elastic_job(const model::Cluster& cluster, const std::string& id, int min_workers, int max_workers);
/// A job that passes check_job on this cluster.
[[nodiscard]] model::Job random_job(base::Rng& rng, const model::Cluster& cluster, int number, double slot_s, int slots);
[[nodiscard]] model::Instance random_instance(base::Rng& rng, int num_jobs, int slots);

/// One slot's problem of jobs that have all arrived and never ran.
[[nodiscard]] SlotProblem problem_of(const model::Cluster& cluster, const std::vector<model::Job>& jobs);
/// Workers of each job of problem_of().
[[nodiscard]] std::vector<int> workers_of(const SlotProblem& problem, const Decision& decision);

/// What became of a run.
struct PolicyRun {
  std::vector<Decision> decisions;
  std::vector<double> progress;         // [job], at the end
  std::vector<std::string> violations;  // of check_decision and repeats(), slot by slot, then of check_run
};
/// Runs the policy for instance.slots slots.
[[nodiscard]] PolicyRun run_policy(Policy& policy, const model::Instance& instance, std::uint64_t seed);

[[nodiscard]] std::unique_ptr<Policy> policy_named(const std::string& name, const PolicyOptions& options = {});

}  // namespace maypole::sched
