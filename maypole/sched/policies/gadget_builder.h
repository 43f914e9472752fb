// SPDX-License-Identifier: Apache-2.0
#pragma once

// Builds a slot's rings one job at a time, never breaking a capacity: what greedy, rounding with repair and local search have in common.
//
// Where to look. In a cluster of few racks every ring is priced over all servers. In a large one that would be too dear, and few places
// matter: the racks that the job is in, the fullest rack that still holds what it wants, the fullest server that does, the emptiest rack,
// and, if no rack holds it, the racks of the smallest part of the tree that does.

#include "maypole/sched/decision.h"
#include "maypole/sched/policies/gadget_pricer.h"
#include "maypole/sched/policies/gadget_walks.h"

#include <optional>
#include <span>
#include <vector>

namespace maypole::sched::gadget {

/// Clusters up to this size are priced as a whole.
inline constexpr int kServersEverywhere = 128;

class Builder {
 public:
  Builder(const Topology& topology, const std::vector<Candidate>& candidates, const model::Amounts& pooled_prices, Work& work);

  [[nodiscard]] const std::vector<Ring>& rings() const { return rings_; }
  [[nodiscard]] const Ring& ring(int job) const { return rings_[static_cast<std::size_t>(job)]; }
  [[nodiscard]] double objective() const;
  [[nodiscard]] const Topology& topology() const { return *topology_; }
  [[nodiscard]] const Work& work() const { return *work_; }

  void remove(int job);
  /// The ring must fit and the job have none.
  void put(int job, Ring ring);
  /// The same for a ring without paths that may not fit; its value is counted anew. Whether it did.
  bool put_if_it_fits(int job, Ring ring);
  /// Frees everything, then takes these.
  void reset(std::vector<Ring> rings);
  /// Of a worker, by the pooled prices; by its share of the cluster where nothing is scarce.
  [[nodiscard]] double unit_price(const Candidate& candidate) const;
  [[nodiscard]] bool holds(int job, const Ring& ring) const { return space_.holds(ring, candidate(job)); }
  /// Lets the job, which must have none, go on with the ring that runs; false where that does not fit, or may not be kept.
  bool keep(int job);

  /// Gives the job, which must have none, the ring (a new one, or the one that runs) that is worth most after `scale` times its price;
  /// whether there was one worth more than that.
  bool place(int job, const Prices& prices, double scale = 1);
  /// The same with as few workers as gain most by the worker, links and servers free.
  bool place_least(int job);
  /// Lazy greedy: while anything fits, the job with the largest gain per unit of (pooled) price grows by the step that gains most per
  /// unit, starting from the rings that stand. Only these jobs.
  void fill(std::span<const int> jobs);

 private:
  struct Goal {
    bool dense = false;  // most gain per worker beyond `from`, in place of most gain after price
    int from_workers = 0;
    double from_value = 0;
    double scale = 1;  // of prices
  };
  [[nodiscard]] const Candidate& candidate(int job) const { return (*candidates_)[static_cast<std::size_t>(job)]; }
  [[nodiscard]] std::optional<Ring> find(int job, const Prices& prices, const Goal& goal);
  [[nodiscard]] std::optional<Ring> running_ring(int job) const;  // where it may be kept and fits
  struct Best {
    double score = 0;
    Ring ring;
  };
  bool search(int job, const Prices& prices, const Goal& goal, std::span<const int> racks, bool cross, Best& best);
  bool search_walks(int job, const Prices& prices, const Goal& goal, Best& best);
  [[nodiscard]] std::vector<int> likely_racks(int job, double wanted) const;
  [[nodiscard]] std::vector<int> racks_together(int job, double wanted) const;
  [[nodiscard]] double next_density(int job) const;

  const Topology* topology_;
  const std::vector<Candidate>* candidates_;
  model::Amounts pooled_prices_;
  Work* work_;
  Space space_;
  Pricer pricer_;
  std::optional<WalkPricer> walks_;  // in general graphs
  Prices no_prices_;
  std::vector<Ring> rings_;
  std::vector<int> all_racks_;
  bool everywhere_ = false;  // price over all servers
};

}  // namespace maypole::sched::gadget
