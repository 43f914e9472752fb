// SPDX-License-Identifier: Apache-2.0
#pragma once

// One slot of Algorithm 1 as Algorithm 2 sees it: the jobs of I[t], their ring sizes Q_i[t] and incremental utilities pi_{i,k}.

#include "maypole/sched/slot_problem.h"

#include <optional>
#include <vector>

namespace maypole::sched {

struct PaperJob {
  const ActiveJob* active = nullptr;
  int min_size = 1;
  int max_size = 0;            // q_i[t], by its safe bound worker_limit(); 0: Q_i is empty
  std::vector<double> gain;    // [k]: pi_{i,k}, the most that k workers can bring on any number of servers, without a resize
  std::vector<double> demand;  // [resource]: l_i^r
  double bandwidth = 0;        // b_i; 0: no link is loaded
  std::vector<bool> host;      // [server]: l_i^r <= g_s^{u,r} for every r
};

struct PaperSlot {
  const SlotProblem* problem = nullptr;
  std::vector<PaperJob> jobs;  // as SlotProblem::jobs
  double best_gain = 0;        // the largest pi_{i,k}

  [[nodiscard]] const model::Cluster& cluster() const { return *problem->cluster; }
  /// What objectives are multiplied by in the LPs: gains from 1e-13 of the largest on are seen by the simplex, smaller ones count as 0,
  /// and so do all where the largest is next to the end of the numbers (the feet of sigmoids).
  [[nodiscard]] double scale() const { return best_gain > 1e-280 ? 1e6 / best_gain : 1; }
};

[[nodiscard]] PaperSlot make_paper_slot(const SlotProblem& problem);

/// Bandwidth of a link, infinite where it never binds.
[[nodiscard]] double link_capacity(const model::Cluster& cluster, model::LinkId link);

/// A valid mapping omega_i^k of one job: where its ring nodes are and how its ring edges run, with its weight phi_i^k.
struct WeightedMapping {
  double weight = 0;
  model::Embedding embedding;
};
/// M_i of every job, [job].
using WeightedMappings = std::vector<std::vector<WeightedMapping>>;

}  // namespace maypole::sched
