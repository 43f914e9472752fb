// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pricing in a cluster that is no tree: closed walks in the layered graph (gadget_paper_full_lp.h) under prices of its links.
//
// Between two servers an edge takes the cheapest path over links that have room for it (all pairs, Dijkstra), so a ring is a closed walk
// over servers. Its servers are visited in order r = v_1, v_2, ..., with n_1, n_2, ... workers on each; layer w holds, for every server
// v, the cheapest walk from r that has placed w workers, the last of them on v:
//
//   f_r[w + n][v] = min over u != v of f_r[w][u] + path(u, v)  + n alpha_v,   1 <= n <= what fits on v
//   closed:         min over v of f_r[w][v] + path(v, r)
//
// A ring may begin anywhere, so r is the smallest of its servers. Two tables are kept. The first lets a walk come back to a server: no ring
// of that size is cheaper, so it bounds them all. The second remembers the servers of the cheapest walk of each entry and does not come
// back to them: rings, near the cheapest, whose paths are then known.
//
// Complexity: O(S^3 W + S^2 W c) for S servers, W workers, c on one server; so for at most kWalkServers of them.

#include "maypole/sched/policies/gadget_space.h"

#include <cstdint>
#include <span>
#include <vector>

namespace maypole::sched::gadget {

inline constexpr int kWalkServers = 32;

/// What the duals of a slot charge in a general graph. All >= 0.
struct WalkPrices {
  std::vector<double> amount;  // [server * num_resources + resource]: per unit
  std::vector<double> link;    // [link]: per byte per second
  std::vector<double> half;    // [link]: of an edge that takes more than half of it
  [[nodiscard]] static WalkPrices zero(const model::Cluster& cluster);
  /// Of one edge of that bandwidth on the link.
  [[nodiscard]] double edge(const model::Cluster& cluster, model::LinkId id, double bandwidth) const;
};

/// Whether the cluster is one for which closed walks are priced: a general graph of few servers.
[[nodiscard]] bool prices_walks(const Topology& topology);

class WalkPricer {
 public:
  explicit WalkPricer(const model::Cluster& cluster) : cluster_(&cluster) {}

  /// Over what `space` has left. The candidate's limit of racks is not looked at.
  void run(const Candidate& candidate, const Space& space, const WalkPrices& prices);

  /// [workers]: no ring of that size costs less; infinite where there is none.
  [[nodiscard]] const std::vector<double>& least() const { return least_; }
  struct Found {
    double cost = 0;
    Ring ring;  // with its paths; `value` is not set; no workers: none was found
  };
  /// [workers]: a ring of that size, no server twice.
  [[nodiscard]] const std::vector<Found>& found() const { return found_; }

 private:
  struct State {
    double cost = 0;
    std::uint64_t visited = 0;
    std::int16_t from = -1;    // server before, -1: none
    std::int16_t workers = 0;  // on this server
  };
  void find_paths(const Candidate& candidate, const Space& space, const WalkPrices& prices);
  void walk_from(std::size_t root, bool come_back);
  void close(std::size_t root, bool come_back);
  [[nodiscard]] double path(std::size_t from, std::size_t to) const { return path_cost_[from * alpha_.size() + to]; }
  [[nodiscard]] State& state(std::size_t workers, std::size_t server) { return states_[workers * alpha_.size() + server]; }
  [[nodiscard]] std::vector<model::LinkId> links(std::size_t from, std::size_t to) const;
  [[nodiscard]] Ring trace(std::size_t root, std::size_t workers, std::size_t last);

  const model::Cluster* cluster_;
  std::size_t width_ = 0;
  std::vector<int> fit_;               // [server]
  std::vector<double> alpha_;          // [server], of one worker
  std::vector<double> path_cost_;      // [from * servers + to]
  std::vector<std::int32_t> came_by_;  // [from * nodes + node]: last link of the cheapest path; -1: none
  std::vector<State> states_;          // [workers * servers + server]
  std::vector<double> least_;
  std::vector<Found> found_;
};

}  // namespace maypole::sched::gadget
