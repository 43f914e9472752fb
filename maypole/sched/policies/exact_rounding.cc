// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/exact_rounding.h"

#include "maypole/sched/free_capacity.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace maypole::sched {

namespace {

double gain_of(const std::optional<ExactColumn>& column) { return column ? column->gain : 0; }

}  // namespace

ExactResidual::ExactResidual(const ExactProblem& problem) : problem_(problem) {
  for (const model::Server& server : problem.cluster().parts().servers) {
    servers_.emplace_back(server.capacity.begin(), server.capacity.end());
  }
  for (const ExactEdge& edge : problem.edges) {
    edges_.push_back(edge.capacity);
  }
}

void ExactResidual::take(const ExactColumn& column, double sign) {
  const ExactJob& job = problem_.jobs[static_cast<std::size_t>(column.job)];
  for (std::size_t s = 0; s < servers_.size(); ++s) {
    for (std::size_t r = 0; r < job.demand.size(); ++r) {
      servers_[s][r] -= sign * column.counts[s] * job.demand[r];
    }
  }
  for (std::size_t e = 0; e < edges_.size(); ++e) {
    edges_[e] -= sign * column.crossings[e] * job.bandwidth;
  }
}

int ExactResidual::most_workers(int job, std::size_t server) const {
  const ExactJob& entry = problem_.jobs[static_cast<std::size_t>(job)];
  double most = entry.fits[server];
  for (std::size_t r = 0; r < entry.demand.size(); ++r) {
    if (entry.demand[r] > 0) {
      const double slack = kFitTolerance * problem_.cluster().parts().servers[server].capacity[model::ResourceId::from_index(r)];
      most = std::min(most, std::floor((servers_[server][r] + slack) / entry.demand[r]));
    }
  }
  return std::max(0, static_cast<int>(most));
}

bool ExactResidual::fits(const ExactColumn& column) const {
  const ExactJob& job = problem_.jobs[static_cast<std::size_t>(column.job)];
  for (std::size_t s = 0; s < servers_.size(); ++s) {
    if (column.counts[s] > 0 && column.counts[s] > most_workers(column.job, s)) {
      return false;
    }
  }
  for (std::size_t e = 0; e < edges_.size(); ++e) {
    if (column.crossings[e] * job.bandwidth > edges_[e] + kFitTolerance * problem_.edges[e].capacity) {
      return false;
    }
  }
  return true;
}

ExactBox ExactResidual::box(int job) const {
  const ExactJob& entry = problem_.jobs[static_cast<std::size_t>(job)];
  ExactBox box;
  for (std::size_t s = 0; s < servers_.size(); ++s) {
    box.high.push_back(static_cast<std::int16_t>(most_workers(job, s)));
  }
  for (std::size_t e = 0; e < edges_.size(); ++e) {
    const double left = edges_[e] + kFitTolerance * problem_.edges[e].capacity;
    const double most = entry.bandwidth > 0 ? std::floor(std::max(0.0, left) / entry.bandwidth) : INT16_MAX;
    box.high.push_back(static_cast<std::int16_t>(std::min<double>(most, INT16_MAX)));
  }
  box.high.push_back(1);
  box.low.assign(box.high.size(), 0);
  return box;
}

std::optional<ExactColumn> ExactRounding::best_fitting(int job, const ExactPrices& prices, const ExactResidual& residual) {
  std::vector<PricedColumn> found = pricer_.price(job, prices, residual.box(job), 0, 1);
  if (found.empty()) {
    return std::nullopt;
  }
  return std::move(found.front().column);
}

ExactChoice ExactRounding::round(const ExactMaster& master, bool pairs) {
  ExactChoice choice;
  choice.of_job.resize(problem_.jobs.size());
  ExactResidual residual(problem_);
  std::vector<ExactMaster::Weighted> all;
  for (const std::vector<ExactMaster::Weighted>& of_job : master.weights()) {
    all.insert(all.end(), of_job.begin(), of_job.end());
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, &ExactMaster::Weighted::weight);
  for (const auto& [column, weight] : all) {
    std::optional<ExactColumn>& chosen = choice.of_job[static_cast<std::size_t>(column->job)];
    if (!chosen && residual.fits(*column)) {
      residual.take(*column);
      chosen = *column;
    }
  }
  for (std::size_t j = 0; j < problem_.jobs.size(); ++j) {
    std::optional<ExactColumn>& chosen = choice.of_job[j];
    if (!chosen) {
      chosen = best_fitting(static_cast<int>(j), master.prices_of(static_cast<int>(j)), residual);
      if (chosen) {
        residual.take(*chosen);
      }
    }
    choice.gain += gain_of(chosen);
  }
  improve(choice, pairs);
  return choice;
}

void ExactRounding::improve(ExactChoice& choice, bool pairs) {
  const auto num_jobs = static_cast<int>(problem_.jobs.size());
  ExactPrices free;
  free.worker.assign(problem_.num_servers(), 0);
  free.crossing.assign(problem_.edges.size(), 0);
  ExactResidual residual(problem_);
  for (const std::optional<ExactColumn>& column : choice.of_job) {
    if (column) {
      residual.take(*column);
    }
  }
  // Takes the jobs away and lets them choose in that order; keeps it only where it gains.
  const auto again = [&](std::initializer_list<int> order) {
    double before = 0;
    std::vector<std::pair<int, std::optional<ExactColumn>>> old;
    for (const int job : order) {
      std::optional<ExactColumn>& column = choice.of_job[static_cast<std::size_t>(job)];
      before += gain_of(column);
      if (column) {
        residual.take(*column, -1);
      }
      old.emplace_back(job, std::exchange(column, std::nullopt));
    }
    double after = 0;
    for (const int job : order) {
      std::optional<ExactColumn>& column = choice.of_job[static_cast<std::size_t>(job)];
      column = best_fitting(job, free, residual);
      after += gain_of(column);
      if (column) {
        residual.take(*column);
      }
    }
    if (after > before + 1e-9 * std::abs(before)) {
      choice.gain += after - before;
      return true;
    }
    for (auto& [job, column] : old) {
      std::optional<ExactColumn>& now = choice.of_job[static_cast<std::size_t>(job)];
      if (now) {
        residual.take(*now, -1);
      }
      now = std::move(column);
    }
    for (const auto& [job, column] : old) {
      if (const std::optional<ExactColumn>& now = choice.of_job[static_cast<std::size_t>(job)]) {
        residual.take(*now);
      }
    }
    return false;
  };
  constexpr int kRounds = 8;
  bool gained = true;
  for (int round = 0; round < kRounds && gained; ++round) {
    gained = false;
    for (int i = 0; i < num_jobs; ++i) {
      gained = again({i}) || gained;
    }
    for (int i = 0; i < num_jobs && pairs; ++i) {
      for (int j = 0; j < num_jobs; ++j) {
        if (i != j) {
          gained = again({i, j}) || gained;
        }
      }
    }
  }
}

}  // namespace maypole::sched
