// SPDX-License-Identifier: Apache-2.0
#pragma once

// The per-slot problem (10) of GADGET as `exact` solves it: choose for every job one column (an embedding with its gain) or none, within
// the capacities of servers and links.
//
// What is a column. In a tree a closed walk over a set S of servers crosses every link of the smallest subtree that joins S at least once
// each way, and the ring in depth-first order, the workers of one server in a row, crosses each exactly once. Links are loaded by the
// crossings, progress depends on the ring's workers, servers and bandwidth alone, so every other ring on the same counts per server can
// be replaced by that one: a column is a vector of counts. Rings that visit a server twice need not be looked at, in any graph: drop the
// second visit and join its two paths (paths may pass through servers); loads only fall.
// In a graph that is no tree, a column is a vector of counts and a vector of loads of limited links that no other ring on the same servers
// undercuts; they are listed beforehand (exact_columns.h), which is possible for small clusters only.
//
// Where a resize costs progress, the ring that the job has now is a column of its own (`variant` 1): it alone is not resized.

#include "maypole/model/cluster.h"
#include "maypole/sched/slot_problem.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace maypole::sched {

inline constexpr double kForbidden = std::numeric_limits<double>::infinity();

/// A limited link, or in a tree the pair of links between a node and its parent (a closed walk crosses both equally often).
struct ExactEdge {
  double capacity = 0;  // the smaller of the two in a tree
};

struct ExactJob {
  const ActiveJob* active = nullptr;
  int min_workers = 1;
  int max_workers = 0;         // 0: it can hold none
  std::vector<double> demand;  // [resource], per worker
  double bandwidth = 0;        // b_i; 0: its edges reserve nothing
  int max_racks = 0;           // 0: any number
  bool by_servers = false;     // the gain depends on the number of servers too
  std::vector<int> fits;       // [server]: workers that fit on it when empty, at most max_workers
  std::vector<double> gain;    // [workers * (max_workers + 1) + servers], of a resized or new ring

  [[nodiscard]] double gain_of(int workers, int servers) const {
    return gain[static_cast<std::size_t>(workers) * (static_cast<std::size_t>(max_workers) + 1) + static_cast<std::size_t>(servers)];
  }
};

/// One choice for one job.
struct ExactColumn {
  int job = 0;
  std::vector<std::int16_t> counts;     // [server]
  std::vector<std::int16_t> crossings;  // [edge]: times that the ring crosses it
  std::int16_t variant = 0;             // 1: the ring that the job has now
  double gain = 0;
  model::Embedding embedding;  // filled where it does not follow from the counts (not a tree, or variant 1)

  [[nodiscard]] int workers() const;
  [[nodiscard]] int servers() const;
};

/// A node of the tree, children before parents; servers come with their index, switches with -1.
struct ExactTreeNode {
  int parent = -1;  // position in the list
  int server = -1;
  int edge = -1;  // position in ExactProblem::edges; -1: the way to the parent is free
  std::vector<int> children;
};

struct ExactProblem {
  const SlotProblem* slot = nullptr;
  std::vector<ExactEdge> edges;
  std::vector<int> edge_of_link;  // [link]; -1: never binds
  std::vector<ExactJob> jobs;     // as SlotProblem::jobs
  /// Set where the links form a tree, or none are modelled (then one root joins all servers by free edges).
  std::vector<ExactTreeNode> tree;
  std::vector<int> tree_order;  // [server]: its place in depth-first order

  [[nodiscard]] const model::Cluster& cluster() const { return *slot->cluster; }
  [[nodiscard]] std::size_t num_servers() const { return slot->cluster->num_servers(); }
};

[[nodiscard]] ExactProblem make_exact_problem(const SlotProblem& slot);

/// Crossings of each edge by the ring on those counts (trees only).
[[nodiscard]] std::vector<std::int16_t> tree_crossings(const ExactProblem& problem, const std::vector<std::int16_t>& counts);

/// The column's embedding: its own, or the depth-first ring on its counts.
[[nodiscard]] model::Embedding embedding_of(const ExactProblem& problem, const ExactColumn& column);

}  // namespace maypole::sched
