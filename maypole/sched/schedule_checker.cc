// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/schedule_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

namespace maypole::sched {

namespace {

using model::Cluster;
using model::Embedding;
using model::Job;
using model::LinkId;
using model::NodeId;
using model::RackId;
using model::ResourceId;
using model::ServerId;

// Relative slack for sums of doubles, wider than what any policy allows itself.
constexpr double kSumTolerance = 1e-7;
constexpr double kUtilityTolerance = 1e-6;

std::size_t distinct_racks(const Cluster& cluster, const std::vector<ServerId>& ring) {
  std::set<RackId> racks;
  for (const ServerId server : ring) {
    racks.insert(cluster.server(server).rack);
  }
  return racks.size();
}

class SlotCheck {
 public:
  SlotCheck(const CheckedSlot& slot, const Decision& decision) : slot_(slot), cluster_(*slot.cluster), decision_(decision) {}

  std::vector<std::string> run() {
    if (decision_.slot != slot_.slot) {
      report("the decision is for slot {}, not for slot {}", decision_.slot, slot_.slot);
    }
    std::set<model::JobId> seen;
    double utility = 0;
    for (const Placement& placement : decision_.placements) {
      const ActiveJob* job = slot_.find(placement.job);
      if (job == nullptr) {
        report("{} in slot {}", slot_.why_not(placement.job), slot_.slot);
      } else if (!seen.insert(placement.job).second) {
        report("job {} is placed twice in slot {}", job->job->id, slot_.slot);
      } else if (ring_is_known(*job, placement.embedding)) {
        check_job(*job, placement.embedding);
        check_ring(*job->job, placement.embedding);
        add_loads(*job->job, placement.embedding);
        utility += gain(*job, checked_progress(*job, placement.embedding, slot_.slot_s));
      }
    }
    check_loads();
    check_values(utility);
    return std::move(violations_);
  }

 private:
  template <typename... Args>
  void report(fmt::format_string<Args...> format, Args&&... args) {
    violations_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  bool ring_is_known(const ActiveJob& job, const Embedding& embedding) {
    if (embedding.ring.empty()) {
      report("job {} is placed without workers in slot {}", job.job->id, slot_.slot);
      return false;
    }
    const bool servers = std::ranges::all_of(embedding.ring, [&](ServerId s) { return s.valid() && s.index() < cluster_.num_servers(); });
    bool links = true;
    for (const std::vector<LinkId>& edge : embedding.edges) {
      links = links && std::ranges::all_of(edge, [&](LinkId link) { return link.valid() && link.index() < cluster_.num_links(); });
    }
    if (!servers || !links) {
      report("job {} names a {} that does not exist in slot {}", job.job->id, servers ? "link" : "server", slot_.slot);
    }
    return servers && links;
  }

  void check_job(const ActiveJob& active, const Embedding& embedding) {
    const Job& job = *active.job;
    const auto workers = static_cast<int>(embedding.ring.size());
    if (workers < job.min_workers || workers > job.max_workers) {
      report("job {}: {} workers in slot {}, not between {} and {}", job.id, workers, slot_.slot, job.min_workers, job.max_workers);
    }
    const double start_s = static_cast<double>(slot_.slot) * slot_.slot_s;
    if (job.arrival_s > start_s + 1e-9 * std::max(1.0, start_s)) {
      report("job {}: runs in slot {}, which begins at {} s, before it arrives at {} s", job.id, slot_.slot, start_s, job.arrival_s);
    }
    if (job.budget && active.worker_slots + workers > *job.budget + kSumTolerance * std::max(1.0, *job.budget)) {
      report("job {}: {} worker-slots used of {} after slot {}", job.id, active.worker_slots + workers, *job.budget, slot_.slot);
    }
    const bool limit_holds = job.max_racks > 0 && (job.max_racks_s == 0 || active.waiting_s < job.max_racks_s);
    if (limit_holds) {
      // A ring that was let across more racks need not come back.
      const std::size_t had = active.current != nullptr ? distinct_racks(cluster_, active.current->ring) : 0;
      const std::size_t allowed = std::max(static_cast<std::size_t>(job.max_racks), had);
      const std::size_t racks = distinct_racks(cluster_, embedding.ring);
      if (racks > allowed) {
        report("job {}: on {} racks in slot {}, at most {} are allowed", job.id, racks, slot_.slot, allowed);
      }
    }
  }

  void check_ring(const Job& job, const Embedding& embedding) {
    const std::size_t workers = embedding.ring.size();
    std::map<ServerId, int> entries;
    for (std::size_t k = 0; k < workers; ++k) {
      if (embedding.ring[k] != embedding.ring[(k + 1) % workers]) {
        ++entries[embedding.ring[(k + 1) % workers]];
      }
    }
    for (const auto& [server, times] : entries) {
      if (times > 1) {
        report("job {}: its ring enters server {} {} times in slot {}, at most once is a ring", job.id, cluster_.server(server).id, times,
               slot_.slot);
      }
    }
    if (!entries.empty() && embedding.bandwidth != job.edge_bandwidth) {
      report("job {}: reserves {} bytes/s per edge in slot {}, it asks for {}", job.id, embedding.bandwidth.bytes_per_second, slot_.slot,
             job.edge_bandwidth.bytes_per_second);
    }
    const std::size_t wanted = workers == 1 ? 0 : workers;
    if (embedding.edges.size() != wanted) {
      report("job {}: {} edges for {} workers in slot {}, a ring has {}", job.id, embedding.edges.size(), workers, slot_.slot, wanted);
      return;
    }
    for (std::size_t k = 0; k < wanted; ++k) {
      check_edge(job, k, embedding.ring[k], embedding.ring[(k + 1) % workers], embedding.edges[k]);
    }
  }

  void check_edge(const Job& job, std::size_t k, ServerId from, ServerId to, const std::vector<LinkId>& path) {
    if (cluster_.num_links() == 0) {
      return;  // links are not modelled, and none can be named
    }
    std::set<NodeId> passed = {NodeId(from.value())};
    NodeId here(from.value());
    for (const LinkId id : path) {
      const model::Link& link = cluster_.link(id);
      if (link.from != here) {
        report("job {}: edge {} breaks at link {} in slot {}: it leaves {}, the path has come to {}", job.id, k, link.id, slot_.slot,
               cluster_.node_name(link.from), cluster_.node_name(here));
        return;
      }
      here = link.to;
      if (!passed.insert(here).second) {
        report("job {}: edge {} passes {} twice in slot {}", job.id, k, cluster_.node_name(here), slot_.slot);
        return;
      }
    }
    if (here != NodeId(to.value())) {
      report("job {}: edge {} ends at {} in slot {}, its next worker is on {}", job.id, k, cluster_.node_name(here), slot_.slot,
             cluster_.server(to).id);
    }
  }

  void add_loads(const Job& job, const Embedding& embedding) {
    for (const ServerId server : embedding.ring) {
      std::vector<double>& used = used_[server];
      used.resize(cluster_.num_resources(), 0);
      for (std::size_t r = 0; r < used.size(); ++r) {
        used[r] += job.demand[ResourceId::from_index(r)];
      }
    }
    for (const std::vector<LinkId>& edge : embedding.edges) {
      for (const LinkId link : edge) {
        load_[link] += job.edge_bandwidth.bytes_per_second;
      }
    }
  }

  void check_loads() {
    for (const auto& [server, used] : used_) {
      for (std::size_t i = 0; i < used.size(); ++i) {
        const ResourceId r = ResourceId::from_index(i);
        const double capacity = cluster_.server(server).capacity[r];
        if (used[i] > capacity + kSumTolerance * std::max(capacity, used[i])) {
          report("server {}: {:g} {} used of {:g} in slot {}", cluster_.server(server).id, used[i], cluster_.resource(r), capacity,
                 slot_.slot);
        }
      }
    }
    for (const auto& [id, load] : load_) {
      const model::Link& link = cluster_.link(id);
      if (link.bandwidth.limited() && load > link.bandwidth.bytes_per_second * (1 + kSumTolerance)) {
        report("link {}: {:g} bytes/s reserved of {:g} in slot {}", link.id, load, link.bandwidth.bytes_per_second, slot_.slot);
      }
    }
  }

  [[nodiscard]] double gain(const ActiveJob& active, double progress) const {
    const Job& job = *active.job;
    const bool is_late = static_cast<double>(slot_.slot) * slot_.slot_s >= job.utility.deadline_s;
    const double late = job.utility.kind == model::UtilityKind::kDeadline && is_late ? progress : 0;
    const double after = job.utility.value(active.progress + progress, active.late_progress + late);
    return job.weight * (after - job.utility.value(active.progress, active.late_progress));
  }

  void check_values(double utility) {
    const double slack = kUtilityTolerance * std::max(1.0, std::abs(utility));
    if (!(std::abs(decision_.utility - utility) <= slack)) {
      report("slot {}: utility is given as {}, the accounting makes it {}", slot_.slot, decision_.utility, utility);
    }
    // A policy with an objective of its own counts nothing below its utility, and its bounds and gap are on that scale.
    const double reached = decision_.objective.value_or(utility);
    const char* const name = decision_.objective ? "objective" : "utility";
    const double margin = kUtilityTolerance * std::max(1.0, std::abs(reached));
    if (!(reached >= utility - slack)) {
      report("slot {}: the objective {} is below the utility {}", slot_.slot, reached, utility);
    }
    if (decision_.bound && !(*decision_.bound >= reached - margin)) {
      report("slot {}: the bound {} is below the {} {}", slot_.slot, *decision_.bound, name, reached);
    }
    if (decision_.bound_lp && !(*decision_.bound_lp >= reached - margin)) {
      report("slot {}: the LP bound {} is below the {} {}", slot_.slot, *decision_.bound_lp, name, reached);
    }
    if (decision_.gap && decision_.bound) {
      const double gap = *decision_.bound > 0 ? std::max(0.0, (*decision_.bound - reached) / *decision_.bound) : 0;
      if (!(std::abs(*decision_.gap - gap) <= kUtilityTolerance)) {
        report("slot {}: gap is given as {}, bound and {} make it {}", slot_.slot, *decision_.gap, name, gap);
      }
    }
  }

  const CheckedSlot& slot_;
  const Cluster& cluster_;
  const Decision& decision_;
  std::map<ServerId, std::vector<double>> used_;  // [resource]
  std::map<LinkId, double> load_;                 // payload bytes per second
  std::vector<std::string> violations_;
};

}  // namespace

double checked_progress(const ActiveJob& job, const Embedding& embedding, double slot_s) {
  const std::set<ServerId> servers(embedding.ring.begin(), embedding.ring.end());
  const model::RingShape shape{static_cast<int>(embedding.ring.size()), static_cast<int>(servers.size()), embedding.bandwidth};
  double progress = job.job->progress.per_slot(shape, slot_s);
  if (job.current != nullptr && job.current->ring != embedding.ring) {
    progress *= std::max(0.0, (slot_s - job.job->progress.resize_s) / slot_s);
  }
  if (job.job->work) {
    progress = std::min(progress, std::max(0.0, *job.job->work - job.progress));
  }
  return progress;
}

std::vector<std::string> check_slot(const CheckedSlot& slot, const Decision& decision) { return SlotCheck(slot, decision).run(); }

std::vector<std::string> check_decision(const SlotProblem& problem, const Decision& decision) {
  std::unordered_map<std::int32_t, const ActiveJob*> jobs;
  for (const ActiveJob& job : problem.jobs) {
    jobs.emplace(job.id.value(), &job);
  }
  CheckedSlot slot;
  slot.cluster = problem.cluster;
  slot.slot = problem.slot;
  slot.slot_s = problem.slot_s;
  slot.find = [&](model::JobId id) -> const ActiveJob* {
    const auto found = jobs.find(id.value());
    return found == jobs.end() ? nullptr : found->second;
  };
  slot.why_not = [](model::JobId id) { return fmt::format("job number {} runs although it is not active", id.value()); };
  return check_slot(slot, decision);
}

}  // namespace maypole::sched
