// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pricing in a tree: the columns of one job that gain most, less what they pay for servers and crossings.
//
// Dynamic program over the tree, children before parents. T_v[p][w, s] is the least that w workers on s servers in the subtree of v pay
// for workers and for crossings below v, where p in {0, 1, 2} counts the parts (v's own server and its children's subtrees) that hold
// some, 2 standing for two or more. A child's part pays its way up to v as well. The ring's apex is the node where it has two parts, or
// its only server; the way above the apex is not crossed. Cost: O(nodes * N^2) for a job whose gain does not depend on s.

#include "maypole/sched/policies/exact_problem.h"

#include <span>

namespace maypole::sched {

struct ExactPrices {
  std::vector<double> worker;    // [server], per worker of this job
  std::vector<double> crossing;  // [edge], per crossing by this job; kForbidden: it may not
};

/// Bounds on what a job's column may be. Features in order: workers on each server, crossings of each edge, variant.
struct ExactBox {
  std::vector<std::int16_t> low, high;

  [[nodiscard]] bool allows(const ExactColumn& column) const;
  /// Whether the job may stay without workers.
  [[nodiscard]] bool allows_nothing() const;
};

/// The feature's value in a column.
[[nodiscard]] std::int16_t feature_of(const ExactColumn& column, std::size_t feature);

struct PricedColumn {
  double value = 0;  // gain less price
  ExactColumn column;
};

/// Keeps its tables between calls. The problem must outlive it.
class TreePricer {
 public:
  explicit TreePricer(const ExactProblem& problem);
  /// The best column for each number of workers, as far as its value exceeds `threshold`, best first (ties: fewer workers), at most
  /// `limit` of them. Variant 0 only.
  [[nodiscard]] std::vector<PricedColumn> price(int job, const ExactPrices& prices, const ExactBox& box, double threshold,
                                                std::size_t limit);

 private:
  struct Choice {
    std::int8_t parts = 0;      // before the item was added
    std::int16_t workers = -1;  // in the item
    std::int16_t servers = 0;
  };
  struct Best {
    double cost = kForbidden;
    int node = -1;
    int servers = 0;
    bool alone = false;  // all on the node's own server
  };

  [[nodiscard]] std::size_t at(int parts, int workers, int servers) const {
    return (static_cast<std::size_t>(parts) * width_ + static_cast<std::size_t>(workers)) * depth_ + static_cast<std::size_t>(servers);
  }
  void count_forced(const ExactBox& box);
  void fill(const ExactJob& job, const ExactPrices& prices, const ExactBox& box);
  // `most`: no entry of the contribution beyond that many workers is finite.
  void add_item(std::size_t node, std::size_t item, int most, bool may_be_empty);
  void close_apexes(const ExactJob& job, const ExactPrices& prices, const ExactBox& box);
  void trace(int node, int parts, int workers, int servers, std::vector<std::int16_t>& counts) const;
  void price_within(int job, const ExactPrices& prices, const ExactBox& box, std::vector<PricedColumn>& best_of);

  const ExactProblem& problem_;
  std::size_t width_ = 1;                                  // workers + 1
  std::size_t depth_ = 1;                                  // servers + 1 where they matter
  std::vector<std::vector<double>> tables_;                // [node][parts, workers, servers]
  std::vector<std::vector<std::vector<Choice>>> choices_;  // [node][item][parts, workers, servers]
  std::vector<int> reach_;                                 // [node]: no entry of its table beyond that many workers is finite
  std::vector<double> contribution_, next_;
  std::vector<int> forced_;  // [node]: features with a lower bound in its subtree, its own way up included
  std::vector<Best> best_;   // [workers * depth + servers]
};

}  // namespace maypole::sched
