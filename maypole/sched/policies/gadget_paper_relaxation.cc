// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_paper_relaxation.h"

#include "maypole/lp/certificate.h"
#include "maypole/lp/solver.h"

#include <algorithm>
#include <cmath>

namespace maypole::sched {

namespace {

// Sums of the capacities of each class of servers, [class][resource].
std::vector<std::vector<double>> class_capacities(const model::Cluster& cluster) {
  std::vector<std::vector<double>> directions;  // capacity divided by the largest of its resources
  std::vector<std::vector<double>> sums;
  for (const model::Server& server : cluster.parts().servers) {
    std::vector<double> capacity(server.capacity.begin(), server.capacity.end());
    const double largest = capacity.empty() ? 0 : *std::ranges::max_element(capacity);
    if (largest <= 0) {
      continue;
    }
    std::vector<double> direction;
    for (const double amount : capacity) {
      direction.push_back(amount / largest);
    }
    const auto same = [&](const std::vector<double>& other) {
      return std::ranges::equal(other, direction, [](double a, double b) { return std::abs(a - b) <= 1e-12; });
    };
    const auto found = std::ranges::find_if(directions, same);
    if (found == directions.end()) {
      directions.push_back(direction);
      sums.push_back(capacity);
      continue;
    }
    std::vector<double>& sum = sums[static_cast<std::size_t>(found - directions.begin())];
    for (std::size_t r = 0; r < sum.size(); ++r) {
      sum[r] += capacity[r];
    }
  }
  return sums;
}

}  // namespace

PaperRelaxation relax_paper_slot(const PaperSlot& slot, std::int64_t max_pivots, Work& work) {
  const std::vector<std::vector<double>> classes = class_capacities(slot.cluster());
  lp::Solver solver;
  std::vector<lp::RowId> job_rows;
  for (std::size_t i = 0; i < slot.jobs.size(); ++i) {
    job_rows.push_back(solver.add_row({.upper = 1}));
  }
  std::vector<std::vector<lp::RowId>> class_rows;
  for (const std::vector<double>& sums : classes) {
    class_rows.emplace_back();
    for (std::size_t r = 0; r < sums.size(); ++r) {
      class_rows.back().push_back(solver.add_row({.upper = 1}));
    }
  }
  struct Share {
    std::size_t job;
    int size;
  };
  std::vector<Share> shares;  // [column]
  for (std::size_t i = 0; i < slot.jobs.size(); ++i) {
    const PaperJob& job = slot.jobs[i];
    for (int k = job.min_size; k <= job.max_size; ++k) {
      for (std::size_t c = 0; c < classes.size(); ++c) {
        lp::Column column{.objective = job.gain[static_cast<std::size_t>(k)] * slot.scale(), .terms = {{job_rows[i], 1}}};
        bool possible = true;
        for (std::size_t r = 0; r < job.demand.size(); ++r) {
          if (job.demand[r] > 0) {
            possible = possible && classes[c][r] > 0;
            column.terms.push_back({class_rows[c][r], possible ? k * job.demand[r] / classes[c][r] : 0});
          }
        }
        if (possible) {
          solver.add_column(std::move(column));
          shares.push_back({i, k});
        }
      }
    }
  }
  PaperRelaxation relaxation;
  relaxation.solved = solver.solve(max_pivots) == lp::SolveStatus::kOptimal;
  work.pivots += solver.solution().pivots;
  relaxation.value =
      (relaxation.solved ? solver.solution().objective : lp::repaired_dual_bound(solver.program(), solver.solution().duals)) / slot.scale();
  for (const PaperJob& job : slot.jobs) {
    relaxation.sizes.emplace_back(static_cast<std::size_t>(job.max_size) + 1, 0.0);
  }
  for (std::size_t j = 0; j < shares.size(); ++j) {
    relaxation.sizes[shares[j].job][static_cast<std::size_t>(shares[j].size)] += solver.solution().primal[lp::ColumnId::from_index(j)];
  }
  return relaxation;
}

}  // namespace maypole::sched
