// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/sched_testing.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/sched/schedule_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace maypole::sched {

namespace {

using model::Amounts;
using model::Cluster;
using model::ClusterParts;
using model::Job;
using model::NodeId;
using model::RackId;
using model::ResourceId;

Amounts amounts(const std::vector<double>& values) {
  Amounts result;
  for (const double value : values) {
    result.push_back(value);
  }
  return result;
}

Cluster made(ClusterParts parts) {
  absl::StatusOr<Cluster> cluster = Cluster::make(std::move(parts));
  if (!cluster.ok()) {
    base::check_failed(__FILE__, __LINE__, "a cluster of the tests", base::message(cluster.status()));
  }
  return *std::move(cluster);
}

void join(ClusterParts& parts, std::size_t a, std::size_t b, double rate) {
  const auto name = [&](std::size_t n) {
    return n < parts.servers.size() ? parts.servers[n].id : parts.switches[n - parts.servers.size()].id;
  };
  parts.links.push_back({name(a) + "-" + name(b), NodeId::from_index(a), NodeId::from_index(b), {rate}});
  parts.links.push_back({name(b) + "-" + name(a), NodeId::from_index(b), NodeId::from_index(a), {rate}});
}

int draw(base::Rng& rng, int low, int high) { return static_cast<int>(rng.uniform_int(low, high)); }

}  // namespace

Cluster tree_cluster(const TreeShape& shape) {
  ClusterParts parts;
  parts.resources = {"gpu"};
  const auto racks = static_cast<std::size_t>(shape.racks);
  const auto per_rack = static_cast<std::size_t>(shape.servers_per_rack);
  for (std::size_t s = 0; s < racks * per_rack; ++s) {
    parts.servers.push_back({fmt::format("s{}", s), RackId::from_index(s / per_rack), amounts({shape.gpus})});
  }
  for (std::size_t r = 0; r < racks; ++r) {
    parts.racks.push_back(fmt::format("r{}", r));
    parts.switches.push_back({fmt::format("r{}", r), RackId::from_index(r)});
  }
  parts.switches.push_back({"core", RackId()});
  const std::size_t servers = parts.servers.size();
  for (std::size_t s = 0; s < servers; ++s) {
    join(parts, s, servers + s / per_rack, shape.server_bandwidth);
  }
  for (std::size_t r = 0; r < racks; ++r) {
    join(parts, servers + r, servers + racks, shape.uplink_bandwidth);
  }
  return made(std::move(parts));
}

Cluster flat_cluster(const std::vector<double>& gpus) {
  ClusterParts parts;
  parts.resources = {"gpu"};
  parts.racks = {"r0"};
  for (std::size_t s = 0; s < gpus.size(); ++s) {
    parts.servers.push_back({fmt::format("s{}", s), RackId(0), amounts({gpus[s]})});
  }
  return made(std::move(parts));
}

Cluster random_cluster(base::Rng& rng) {
  ClusterParts parts;
  const int resources = draw(rng, 1, 3);
  parts.resources = {"gpu", "cpu", "memory"};
  parts.resources.resize(static_cast<std::size_t>(resources));
  const int racks = draw(rng, 1, 4);
  for (int r = 0; r < racks; ++r) {
    parts.racks.push_back(fmt::format("r{}", r));
    parts.switches.push_back({fmt::format("r{}", r), RackId(r)});
  }
  const int servers = draw(rng, 1, 14);
  for (int s = 0; s < servers; ++s) {
    Amounts capacity;
    capacity.push_back(1 << draw(rng, 0, 3));
    for (int r = 1; r < resources; ++r) {
      capacity.push_back(draw(rng, 1, 40) * 0.7);
    }
    parts.servers.push_back({fmt::format("s{}", s), RackId(draw(rng, 0, racks - 1)), capacity});
  }
  const int kind = draw(rng, 0, 3);
  if (kind == 0) {
    return made(std::move(parts));  // no links
  }
  const auto num_servers = static_cast<std::size_t>(servers);
  const auto rate = [&] { return rng.uniform() < 0.1 ? 0 : rng.uniform(1, 12); };
  const bool pods = kind == 2;
  const auto first_core = num_servers + parts.switches.size();
  parts.switches.push_back({"core", RackId()});
  if (pods) {
    parts.switches.push_back({"pod0", RackId()});
    parts.switches.push_back({"pod1", RackId()});
    join(parts, first_core + 1, first_core, rate());
    join(parts, first_core + 2, first_core, rate());
  }
  for (std::size_t s = 0; s < num_servers; ++s) {
    join(parts, s, num_servers + parts.servers[s].rack.index(), rate());
  }
  for (std::size_t r = 0; r < parts.racks.size(); ++r) {
    join(parts, num_servers + r, pods ? first_core + 1 + r % 2 : first_core, rate());
  }
  if (kind == 3) {  // a general graph: links of one direction between any two nodes
    for (int extra = draw(rng, 1, 12); extra > 0; --extra) {
      const int nodes = static_cast<int>(num_servers + parts.switches.size());
      const int a = draw(rng, 0, nodes - 1);
      const int b = draw(rng, 0, nodes - 1);
      if (a != b) {
        parts.links.push_back({fmt::format("extra{}", extra), NodeId(a), NodeId(b), {rate()}});
      }
    }
  }
  return made(std::move(parts));
}

Job rigid_job(const Cluster& cluster, const std::string& id, int workers) {
  Job job = elastic_job(cluster, id, workers, workers);
  return job;
}

Job elastic_job(const Cluster& cluster, const std::string& id, int min_workers, int max_workers) {
  Job job;
  job.id = id;
  job.min_workers = min_workers;
  job.workers = max_workers;
  job.max_workers = max_workers;
  job.demand.assign(cluster.num_resources(), 0);
  job.demand[cluster.accelerator()] = 1;
  return job;
}

Job random_job(base::Rng& rng, const Cluster& cluster, int number, double slot_s, int slots) {
  while (true) {
    Job job;
    job.id = fmt::format("j{}", number);
    job.arrival_s = draw(rng, 0, slots / 2) * slot_s;
    job.min_workers = draw(rng, 1, 3);
    job.workers = job.min_workers + draw(rng, 0, 4);
    job.max_workers = job.workers + draw(rng, 0, 6);
    job.demand.push_back(draw(rng, 0, 3));
    for (std::size_t r = 1; r < cluster.num_resources(); ++r) {
      job.demand.push_back(rng.uniform() < 0.3 ? 0 : draw(rng, 1, 10) * 0.3);
    }
    if (rng.uniform() < 0.7) {
      job.edge_bandwidth = {rng.uniform(0.5, 6)};
    }
    if (rng.uniform() < 0.7) {
      job.work = rng.uniform(5, 200);
    }
    if (rng.uniform() < 0.5) {
      job.budget = rng.uniform(3, 60);
    }
    job.weight = rng.uniform() < 0.05 ? 0 : rng.uniform(0.5, 5);
    job.utility.kind = static_cast<model::UtilityKind>(draw(rng, 0, 5));
    job.utility.cost = 0.001;
    job.utility.sensitivity = rng.uniform(0.01, 0.9);
    job.utility.expected = rng.uniform(10, 100);
    job.utility.deadline_s = rng.uniform(0, slots * slot_s);
    job.utility.late = rng.uniform();
    job.utility.work = rng.uniform(5, 200);
    job.progress.kind = rng.uniform() < 0.5 ? model::ProgressKind::kConstant : model::ProgressKind::kPower;
    job.progress.zeta = rng.uniform(0.5, 4);
    job.progress.exponent = rng.uniform(0.5, 1);
    job.progress.resize_s = rng.uniform() < 0.5 ? 0 : slot_s / 3;
    if (rng.uniform() < 0.3) {
      job.max_racks = draw(rng, 1, 2);
      job.max_racks_s = rng.uniform() < 0.5 ? 0 : 3 * slot_s;
    }
    if (model::check_job(job, cluster).ok()) {
      return job;
    }
  }
}

model::Instance random_instance(base::Rng& rng, int num_jobs, int slots) {
  model::Instance instance{random_cluster(rng), {}, 60, slots, 1};
  for (int i = 0; i < num_jobs; ++i) {
    instance.jobs.push_back(random_job(rng, instance.cluster, i, instance.slot_s, slots));
  }
  std::ranges::stable_sort(instance.jobs, {}, &Job::arrival_s);
  return instance;
}

SlotProblem problem_of(const Cluster& cluster, const std::vector<Job>& jobs) {
  SlotProblem problem;
  problem.cluster = &cluster;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    ActiveJob& job = problem.jobs.emplace_back();
    job.id = model::JobId::from_index(i);
    job.job = &jobs[i];
    job.remaining_slots = std::numeric_limits<double>::infinity();
  }
  return problem;
}

std::vector<int> workers_of(const SlotProblem& problem, const Decision& decision) {
  std::vector<int> workers(problem.jobs.size(), 0);
  for (const Placement& placement : decision.placements) {
    workers[placement.job.index()] = placement.embedding.workers();
  }
  return workers;
}

PolicyRun run_policy(Policy& policy, const model::Instance& instance, std::uint64_t seed) {
  PolicyRun run;
  base::Rng rng(seed, policy.name());
  std::vector<ActiveJob> states(instance.jobs.size());
  std::vector<std::optional<model::Embedding>> currents(instance.jobs.size());
  const ResourceId accelerator = instance.cluster.accelerator();
  std::int64_t promised = 0;
  std::int64_t unchanged = 0;
  std::vector<std::pair<std::int32_t, int>> jobs_before;
  for (std::size_t i = 0; i < states.size(); ++i) {
    states[i].id = model::JobId::from_index(i);
    states[i].job = &instance.jobs[i];
  }
  for (std::int64_t slot = 0; slot < instance.slots; ++slot) {
    SlotProblem problem;
    problem.cluster = &instance.cluster;
    problem.slot = slot;
    problem.slot_s = instance.slot_s;
    for (std::size_t i = 0; i < states.size(); ++i) {
      ActiveJob& state = states[i];
      const Job& job = *state.job;
      const bool ended = (job.work && state.progress >= *job.work * (1 - 1e-12)) || worker_limit(state) == 0;
      if (job.arrival_s <= problem.start_s() && !ended) {
        state.current = currents[i] ? &*currents[i] : nullptr;
        state.remaining_slots = static_cast<double>(instance.slots - slot);
        problem.jobs.push_back(state);
      }
    }
    std::vector<std::pair<std::int32_t, int>> jobs;
    for (const ActiveJob& job : problem.jobs) {
      jobs.emplace_back(job.id.value(), worker_limit(job));
    }
    unchanged = jobs == jobs_before ? unchanged + 1 : 0;
    problem.unchanged_slots = unchanged;
    Decision decision = policy.decide(problem, rng);
    // What the policy promised to repeat it must decide again, as long as the jobs and their limits are the same.
    if (promised > 0 && jobs == jobs_before && decision.placements != run.decisions.back().placements) {
      run.violations.push_back(fmt::format("slot {} differs from what {} promised to repeat", slot, policy.name()));
    }
    promised = jobs == jobs_before ? promised - 1 : 0;
    promised = std::max(promised, policy.repeats(problem, decision));
    jobs_before = std::move(jobs);
    for (std::string& violation : check_decision(problem, decision)) {
      run.violations.push_back(std::move(violation));
    }
    std::vector<std::optional<model::Embedding>> next(states.size());
    for (const ActiveJob& active : problem.jobs) {
      states[active.id.index()].waiting_s += instance.slot_s;
    }
    for (const Placement& placement : decision.placements) {
      ActiveJob& state = states[placement.job.index()];
      const model::Embedding& ring = placement.embedding;
      state.current = currents[placement.job.index()] ? &*currents[placement.job.index()] : nullptr;
      const bool resized = state.running() && state.current->ring != ring.ring;
      const double progress = slot_progress(state, model::shape_of(ring), resized, instance.slot_s);
      const bool late = state.job->utility.kind == model::UtilityKind::kDeadline && problem.start_s() >= state.job->utility.deadline_s;
      state.progress += progress;
      state.late_progress += late ? progress : 0;
      state.worker_slots += ring.workers();
      state.attained_s += ring.workers() * state.job->demand[accelerator] * instance.slot_s;
      state.waiting_s = 0;
      next[placement.job.index()] = ring;
    }
    currents = std::move(next);
    run.decisions.push_back(std::move(decision));
  }
  for (std::string& violation : check_run(instance, run.decisions)) {
    run.violations.push_back(std::move(violation));
  }
  for (const ActiveJob& state : states) {
    run.progress.push_back(state.progress);
  }
  return run;
}

std::unique_ptr<Policy> policy_named(const std::string& name, const PolicyOptions& options) {
  absl::StatusOr<std::unique_ptr<Policy>> policy = make_policy(name, options);
  MAYPOLE_CHECK(policy.ok());
  return *std::move(policy);
}

}  // namespace maypole::sched
