// SPDX-License-Identifier: Apache-2.0
#pragma once

// The jobs of GADGET's experiments (restated: N_i, F_i, zeta_i, b_i and the sigmoid's three parameters, each uniform in its range), and
// a contended variant in which policies differ.
//
//                      paper                              paper-contended
//   jobs               100                                400
//   arrivals           slots 1 to 150 with density 1 + 0.6 sin(2 pi t / 50); the paper's slot 1 is our slot 0
//   max workers N      U{1..5}                            U{1..20}
//   requested workers  min(U{1..10}, N)                   U{1..N}
//   zeta               U{50..500}                         U{50..500} / 20
//   budget F           U{1000..6000} worker-slots         U{1000..6000} iterations: F / zeta worker-slots
//
// All: b U[0.1, 5] Gbit/s, weight U[1, 100], sensitivity U(0, 1], expected U[300, 3000], one GPU a worker.

#include "maypole/base/rng.h"
#include "maypole/model/cluster.h"
#include "maypole/model/job.h"
#include "maypole/sim/paper_cluster.h"

#include <optional>
#include <vector>

namespace maypole::sim {

/// What F_i counts. The paper's formula says worker-slots (and then it never binds), its text iterations.
enum class BudgetReading { kWorkerSlots, kIterations };

struct PaperWorkloadOptions {
  bool contended = false;
  std::optional<int> jobs = std::nullopt;                    // default: as above
  std::optional<BudgetReading> budget = std::nullopt;        // default: as above
  std::optional<model::UtilityKind> utility = std::nullopt;  // sigmoid where not given; sqrt, log and linear keep the weights
  double slot_s = 60;
};

/// In order of arrival. The cluster must have a resource `gpu`.
[[nodiscard]] std::vector<model::Job> paper_workload(const PaperWorkloadOptions& options, const model::Cluster& cluster, base::Rng& rng);

/// The paper's whole experiment: its cluster, these jobs, its horizon of 200 slots.
inline constexpr int kPaperSlots = 200;
[[nodiscard]] model::Instance paper_instance(const PaperClusterOptions& cluster, const PaperWorkloadOptions& workload, std::uint64_t seed);

}  // namespace maypole::sim
