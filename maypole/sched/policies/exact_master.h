// SPDX-License-Identifier: Apache-2.0
#pragma once

// The master program of `exact`: the LP relaxation of (10) over all columns within given boxes, by column generation.
//
//   maximise   sum_c gain_c x_c
//   subject to sum of x_c over the columns of job i <= 1            (= 1 where its box forbids to have no workers)
//              sum_c demand_c x_c <= capacity                       of every server and resource, divided by the capacity
//              sum_c b crossings_c x_c <= capacity                  of every edge, likewise
//              lifted covers (exact_covers.h)
//
// A job that must run has a costly artificial column, so that the program stays feasible: if any point without it exists, the optimum
// uses at most (sum of best gains) / cost of it, and more proves that there is none.

#include "maypole/lp/solver.h"
#include "maypole/sched/decision.h"
#include "maypole/sched/policies/exact_columns.h"
#include "maypole/sched/policies/exact_covers.h"
#include "maypole/sched/policies/exact_pricing.h"

#include <deque>
#include <map>

namespace maypole::sched {

/// Prices all columns of a job: by the dynamic program in a tree, by looking at all in other graphs; rings that jobs have now always.
class ExactPricer {
 public:
  ExactPricer(const ExactProblem& problem, const ExactColumnList& listed);
  [[nodiscard]] std::vector<PricedColumn> price(int job, const ExactPrices& prices, const ExactBox& box, double threshold,
                                                std::size_t limit);

 private:
  const ExactProblem& problem_;
  const ExactColumnList& listed_;
  TreePricer tree_;
};

enum class MasterOutcome {
  kSolved,
  kPruned,  // no column choice within the boxes beats the cutoff (or there is none at all)
  kLimit,
};

class ExactMaster {
 public:
  struct Weighted {
    const ExactColumn* column = nullptr;
    double weight = 0;
  };

  /// Both must outlive it.
  ExactMaster(const ExactProblem& problem, ExactPricer& pricer);

  /// Solves within the boxes, [job]; stops as soon as a bound shows that nothing within them exceeds `cutoff`.
  MasterOutcome solve(const std::vector<ExactBox>& boxes, double cutoff, std::int64_t max_pivots);
  /// Adds violated covers at the last solution; returns whether there were any.
  bool add_covers();
  /// Adds a column (of an incumbent).
  void add(const ExactColumn& column);

  /// Of the last solve: a bound on every choice within its boxes, the columns with positive weight, and the job's prices.
  [[nodiscard]] double bound() const { return bound_; }
  [[nodiscard]] const std::vector<std::vector<Weighted>>& weights() const { return weights_; }
  [[nodiscard]] ExactPrices prices_of(int job) const;
  /// Price of the job's one place: a column gains what its value exceeds this.
  [[nodiscard]] double place_price(int job) const;
  [[nodiscard]] const Work& work() const { return work_; }

 private:
  struct Cut {
    std::size_t edge = 0;
    Cover cover;
    lp::RowId row;
  };
  struct Entry {
    ExactColumn column;
    lp::ColumnId id;
    bool on = true;
  };

  void apply(const std::vector<ExactBox>& boxes);
  std::size_t enter(const ExactColumn& column);
  void read_weights();

  const ExactProblem& problem_;
  ExactPricer& pricer_;
  lp::Solver solver_;
  double scale_ = 1;            // gains are divided by the best one
  double artificial_cost_ = 0;  // scaled
  double total_gain_ = 0;       // scaled
  std::vector<lp::RowId> job_rows_;
  std::vector<std::vector<lp::RowId>> server_rows_;  // [server][resource]; invalid where none demands it
  std::vector<lp::RowId> edge_rows_;
  std::vector<lp::ColumnId> artificial_;  // [job]
  std::vector<Cut> cuts_;
  std::deque<Entry> entries_;                                                  // stays in place while it grows
  std::map<std::pair<int, std::vector<std::int16_t>>, std::size_t> entry_of_;  // by job and features
  std::vector<std::vector<Weighted>> weights_;
  double bound_ = 0;
  Work work_;
};

}  // namespace maypole::sched
