// SPDX-License-Identifier: Apache-2.0
#pragma once

// The best ring of one job under prices: the pricing of closed walks in the layered graph (gadget_paper_full_lp.h) as a dynamic program
// over the cut tree.
//
//   cost of n workers on server s:     n alpha_s, alpha_s = sum_r l^r price(s, r), for n up to what fits there
//   cost of n > 0 workers below node v as part of a ring that goes on outside: + beta_v, the price of one edge out and one in;
//                                      not possible where v has no room for them
//   table of node u, [w]:              the cheapest split of w workers over its children (min-plus convolution, child by child)
//
// A ring is a closed walk; one that visits a set of leaves of a tree in the order of a walk over the tree uses each tree link between
// them once each way, and no ring on the same servers uses less. So in a tree this is the exact minimum over all closed walks, for every
// number of workers at once: O(W (sum over servers of what fits) + W^2 (racks)) for W workers. Elsewhere it is the minimum over the
// cuts: no more than any ring costs.

#include "maypole/sched/policies/gadget_space.h"

#include <optional>
#include <span>
#include <vector>

namespace maypole::sched::gadget {

/// Dual prices of one slot. All >= 0.
struct Prices {
  std::vector<double> amount;  // [server * num_resources + resource]: per unit
  std::vector<double> cut;     // [node]: per byte per second of an edge out of the node's part and one in
  std::vector<double> half;    // [node]: of an edge that takes more than half of what leaves or enters; empty: none
  [[nodiscard]] static Prices zero(const Topology& topology);
};

/// The same price everywhere, links free.
[[nodiscard]] Prices uniform_prices(const Topology& topology, const model::Amounts& per_resource);

class Pricer {
 public:
  explicit Pricer(const Topology& topology) : topology_(&topology) {}

  /// The cost of a ring of each size. `preferences`: adds tiny costs that decide between rings of equal price: fewest racks, then
  /// fewest servers, then servers that the job has now, then the fullest ones. Off for bounds.
  struct Query {
    const Candidate* candidate = nullptr;
    const Space* space = nullptr;
    const Prices* prices = nullptr;
    double scale = 1;            // of the prices
    std::span<const int> racks;  // only servers in these
    bool cross = true;           // rings may leave a rack
    bool preferences = true;
  };
  void run(const Query& query);

  struct Choice {
    int workers = 0;
    double value = 0;  // of a new ring of that size (for tables: the best over the number of servers)
    double cost = 0;
    int node = -1;  // a server: all on it; else the node that the ring does not leave
  };
  /// The best choice of each size from min to limit that exists, ascending in workers.
  [[nodiscard]] const std::vector<Choice>& choices() const { return choices_; }
  /// Its parts, in the order of the walk. Valid until the next run.
  [[nodiscard]] std::vector<Part> parts(const Choice& choice) const;

  /// What a ring costs: its servers, and the cut of every node that it crosses.
  [[nodiscard]] double cost(const Ring& ring, const Candidate& candidate, const Prices& prices) const;
  /// The nodes whose part the ring leaves: those on the ways up from its servers, below the first that all share.
  [[nodiscard]] std::vector<int> crossed(const Ring& ring) const;
  /// beta_v of the candidate's edges.
  [[nodiscard]] static double crossing(const Topology& topology, const Prices& prices, int node, double bandwidth);

 private:
  struct Entry {
    int node = 0;              // server, rack or switch
    std::size_t first = 0;     // of its row in cost_: most + 1 entries
    std::size_t pick = 0;      // of its row in pick_: width_ entries
    int most = 0;              // workers at most
    std::vector<int> members;  // entries of its children, in the order in which they were added
  };
  [[nodiscard]] double alpha(int server, const model::Job& job, const Prices& prices) const;
  void add_server(int server, const Query& query);
  void combine(int node, const Query& query, std::vector<int>& below);

  const Topology* topology_;
  std::vector<Entry> entries_;
  std::vector<double> cost_;  // a node's table
  std::vector<int> pick_;     // workers of this child when it and the children before it have w
  std::vector<double> table_;
  std::vector<int> held_;      // [server]: the job's workers there now
  std::vector<int> entry_of_;  // [node]; -1
  std::vector<Choice> single_;
  std::vector<Choice> several_;
  std::vector<Choice> choices_;
  std::size_t width_ = 0;
  double scale_ = 0;
};

}  // namespace maypole::sched::gadget
