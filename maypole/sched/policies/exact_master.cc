// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/exact_master.h"

#include <algorithm>
#include <cmath>

namespace maypole::sched {

namespace {

constexpr double kReducedTolerance = 2e-8;  // of scaled gains: less than the simplex takes for 0
constexpr double kWeightTolerance = 1e-7;
constexpr std::size_t kColumnsPerPricing = 3;

double value_of(const ExactColumn& column, const ExactPrices& prices) {
  double value = column.gain;
  for (std::size_t s = 0; s < column.counts.size(); ++s) {
    if (column.counts[s] > 0) {
      value -= column.counts[s] * prices.worker[s];
    }
  }
  for (std::size_t e = 0; e < column.crossings.size(); ++e) {
    if (column.crossings[e] > 0) {
      value -= column.crossings[e] * prices.crossing[e];
    }
  }
  return value;
}

std::vector<std::int16_t> features_of(const ExactColumn& column) {
  std::vector<std::int16_t> features = column.counts;
  features.insert(features.end(), column.crossings.begin(), column.crossings.end());
  features.push_back(column.variant);
  return features;
}

}  // namespace

ExactPricer::ExactPricer(const ExactProblem& problem, const ExactColumnList& listed) : problem_(problem), listed_(listed), tree_(problem) {}

std::vector<PricedColumn> ExactPricer::price(int job, const ExactPrices& prices, const ExactBox& box, double threshold, std::size_t limit) {
  std::vector<PricedColumn> found;
  if (!problem_.tree.empty()) {
    found = tree_.price(job, prices, box, threshold, limit);
  }
  for (const ExactColumn& column : listed_.of_job[static_cast<std::size_t>(job)]) {
    const double value = value_of(column, prices);
    if (value > threshold && box.allows(column)) {
      found.push_back({value, column});
    }
  }
  std::ranges::stable_sort(found, std::ranges::greater{}, &PricedColumn::value);
  if (found.size() > limit) {
    found.resize(limit);
  }
  return found;
}

ExactMaster::ExactMaster(const ExactProblem& problem, ExactPricer& pricer) : problem_(problem), pricer_(pricer) {
  double best_gain = 0;
  double total_gain = 0;
  for (const ExactJob& job : problem.jobs) {
    const double best = job.gain.empty() ? 0 : *std::ranges::max_element(job.gain);
    best_gain = std::max(best_gain, best);
    total_gain += best;
  }
  scale_ = best_gain > 0 ? best_gain : 1;
  total_gain_ = total_gain / scale_;
  artificial_cost_ = 1e4 * std::max(total_gain_, 1.0);
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
    job_rows_.push_back(solver_.add_row({.upper = 1}));
  }
  const std::size_t num_resources = problem.cluster().num_resources();
  server_rows_.assign(problem.num_servers(), std::vector<lp::RowId>(num_resources));
  for (std::size_t s = 0; s < problem.num_servers(); ++s) {
    for (std::size_t r = 0; r < num_resources; ++r) {
      const auto resource = model::ResourceId::from_index(r);
      const bool demanded = std::ranges::any_of(problem.jobs, [&](const ExactJob& job) { return job.demand[r] > 0; });
      if (demanded && problem.cluster().parts().servers[s].capacity[resource] > 0) {
        server_rows_[s][r] = solver_.add_row({.upper = 1});
      }
    }
  }
  for (std::size_t e = 0; e < problem.edges.size(); ++e) {
    edge_rows_.push_back(solver_.add_row({.upper = 1}));
  }
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
    artificial_.push_back(solver_.add_column({.objective = -artificial_cost_, .upper = 0, .terms = {{job_rows_[j], 1}}}));
  }
}

void ExactMaster::add(const ExactColumn& column) { enter(column); }

std::size_t ExactMaster::enter(const ExactColumn& column) {
  const auto [found, is_new] = entry_of_.try_emplace({column.job, features_of(column)}, entries_.size());
  if (!is_new) {
    return found->second;
  }
  const ExactJob& job = problem_.jobs[static_cast<std::size_t>(column.job)];
  lp::Column added{.objective = column.gain / scale_, .terms = {{job_rows_[static_cast<std::size_t>(column.job)], 1}}};
  for (std::size_t s = 0; s < column.counts.size(); ++s) {
    if (column.counts[s] == 0) {
      continue;
    }
    for (std::size_t r = 0; r < server_rows_[s].size(); ++r) {
      if (job.demand[r] > 0) {
        const double capacity = problem_.cluster().parts().servers[s].capacity[model::ResourceId::from_index(r)];
        added.terms.push_back({server_rows_[s][r], column.counts[s] * job.demand[r] / capacity});
      }
    }
  }
  for (std::size_t e = 0; e < column.crossings.size(); ++e) {
    if (column.crossings[e] > 0 && job.bandwidth > 0) {
      added.terms.push_back({edge_rows_[e], column.crossings[e] * job.bandwidth / problem_.edges[e].capacity});
    }
  }
  for (const Cut& cut : cuts_) {
    const double coefficient = cut.cover.coefficients[static_cast<std::size_t>(column.job)];
    if (column.crossings[cut.edge] > 0 && coefficient > 0) {
      added.terms.push_back({cut.row, coefficient});
    }
  }
  entries_.push_back({column, solver_.add_column(std::move(added)), true});
  ++work_.columns;
  return entries_.size() - 1;
}

void ExactMaster::apply(const std::vector<ExactBox>& boxes) {
  for (std::size_t j = 0; j < boxes.size(); ++j) {
    const bool must_run = !boxes[j].allows_nothing();
    if ((solver_.program().row(job_rows_[j]).lower > 0) != must_run) {
      solver_.set_row_bounds(job_rows_[j], must_run ? 1 : -lp::kInfinity, 1);
      solver_.set_column_bounds(artificial_[j], 0, must_run ? 1 : 0);
    }
  }
  for (Entry& entry : entries_) {
    const bool on = boxes[static_cast<std::size_t>(entry.column.job)].allows(entry.column);
    if (on != entry.on) {
      entry.on = on;
      solver_.set_column_bounds(entry.id, 0, on ? lp::kInfinity : 0);
    }
  }
}

MasterOutcome ExactMaster::solve(const std::vector<ExactBox>& boxes, double cutoff, std::int64_t max_pivots) {
  apply(boxes);
  const std::int64_t before = solver_.total_pivots();
  while (true) {
    const std::int64_t left = max_pivots - (solver_.total_pivots() - before);
    const lp::SolveStatus status = solver_.solve(left);
    work_.pivots += solver_.solution().pivots;
    if (status != lp::SolveStatus::kOptimal) {
      return MasterOutcome::kLimit;
    }
    double bound = solver_.solution().objective;
    bool grown = false;
    for (std::size_t j = 0; j < problem_.jobs.size(); ++j) {
      const auto job = static_cast<int>(j);
      const double place = place_price(job);
      const std::vector<PricedColumn> priced =
          pricer_.price(job, prices_of(job), boxes[j], place + kReducedTolerance * scale_, kColumnsPerPricing);
      bound += priced.empty() ? kReducedTolerance : (priced.front().value - place) / scale_;
      for (const PricedColumn& found : priced) {
        const std::size_t known = entries_.size();
        grown = enter(found.column) == known || grown;
      }
    }
    bound_ = bound * scale_;
    if (bound_ <= cutoff) {
      return MasterOutcome::kPruned;
    }
    if (!grown) {
      break;
    }
  }
  double artificial = 0;
  for (const lp::ColumnId id : artificial_) {
    artificial += solver_.solution().primal[id];
  }
  if (artificial > total_gain_ / artificial_cost_ + kWeightTolerance) {
    return MasterOutcome::kPruned;
  }
  read_weights();
  return MasterOutcome::kSolved;
}

void ExactMaster::read_weights() {
  weights_.assign(problem_.jobs.size(), {});
  for (const Entry& entry : entries_) {
    if (const double weight = solver_.solution().primal[entry.id]; weight > kWeightTolerance) {
      weights_[static_cast<std::size_t>(entry.column.job)].push_back({&entry.column, weight});
    }
  }
}

bool ExactMaster::add_covers() {
  std::vector<double> bandwidth;
  for (const ExactJob& job : problem_.jobs) {
    bandwidth.push_back(job.bandwidth);
  }
  bool added = false;
  for (std::size_t e = 0; e < problem_.edges.size(); ++e) {
    std::vector<double> z(problem_.jobs.size(), 0);
    for (std::size_t j = 0; j < z.size(); ++j) {
      for (const Weighted& weighted : weights_[j]) {
        z[j] += weighted.column->crossings[e] > 0 ? weighted.weight : 0;
      }
    }
    std::optional<Cover> cover = separate_cover(bandwidth, problem_.edges[e].capacity, z);
    if (!cover) {
      continue;
    }
    std::vector<lp::RowTerm> terms;
    for (const Entry& entry : entries_) {
      const double coefficient = cover->coefficients[static_cast<std::size_t>(entry.column.job)];
      if (entry.column.crossings[e] > 0 && coefficient > 0) {
        terms.push_back({entry.id, coefficient});
      }
    }
    const lp::RowId row = solver_.add_row({.upper = cover->right}, terms);
    cuts_.push_back({e, std::move(*cover), row});
    added = true;
  }
  return added;
}

ExactPrices ExactMaster::prices_of(int job) const {
  const ExactJob& entry = problem_.jobs[static_cast<std::size_t>(job)];
  const base::IdVector<lp::RowId, double>& duals = solver_.solution().duals;
  const auto price = [&](lp::RowId row) { return std::max(0.0, duals[row]) * scale_; };
  ExactPrices prices;
  for (std::size_t s = 0; s < problem_.num_servers(); ++s) {
    double worker = 0;
    for (std::size_t r = 0; r < server_rows_[s].size(); ++r) {
      const auto resource = model::ResourceId::from_index(r);
      if (server_rows_[s][r].valid()) {
        worker += price(server_rows_[s][r]) * entry.demand[r] / problem_.cluster().parts().servers[s].capacity[resource];
      }
    }
    prices.worker.push_back(worker);
  }
  for (std::size_t e = 0; e < problem_.edges.size(); ++e) {
    const double share = entry.bandwidth / problem_.edges[e].capacity;
    prices.crossing.push_back(share > 1 + 1e-9 ? kForbidden : share * price(edge_rows_[e]));
  }
  for (const Cut& cut : cuts_) {
    prices.crossing[cut.edge] += price(cut.row) * cut.cover.coefficients[static_cast<std::size_t>(job)];
  }
  return prices;
}

double ExactMaster::place_price(int job) const { return solver_.solution().duals[job_rows_[static_cast<std::size_t>(job)]] * scale_; }

}  // namespace maypole::sched
