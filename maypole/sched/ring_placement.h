// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ring placement: which servers hold a ring of w workers, and over which links it runs. Two styles.
//
//   greedy    the paper's, blind to topology: servers in the order of their ids are filled one after the other; a server is passed over
//             where no cycle through it is attained, that is, where the links to it and back to the first have not enough left
//   topology  one server, else one rack, else the smallest part of the tree (topology_fill.h)
//
// In both a server holds one run of consecutive ranks, so that every hosting server has exactly one edge in and one out (9).

#include "maypole/model/routes.h"
#include "maypole/sched/room_index.h"
#include "maypole/sched/slot_problem.h"
#include "maypole/sched/topology_fill.h"

#include <optional>

namespace maypole::sched {

enum class RingStyle { kGreedy, kTopology };

/// Racks that a new ring of the job may span; 0: any number. The limit ends with max_racks_s of waiting; a running ring that spans more
/// already (it had waited long enough) may change without becoming narrower.
[[nodiscard]] int rack_limit(const ActiveJob& job, const model::Cluster& cluster);

/// Places rings on what is left of a cluster. Made anew for every slot; the cluster must outlive it. Not thread-safe.
class RingPlacer {
 public:
  RingPlacer(const model::Cluster& cluster, RingStyle style);

  /// A ring of that many workers that fits now (not yet taken), or none. A job whose rack limit holds is placed by topology in either
  /// style. Cost: greedy O(servers used x (path + log n)); topology O(log n) for one server, O(rack) for one rack, else O(n).
  [[nodiscard]] std::optional<model::Embedding> place(const ActiveJob& job, int workers);
  /// The ring over these servers in this order, with the paths between them; says nothing about room.
  [[nodiscard]] model::Embedding embed(const model::Job& job, std::vector<model::ServerId> ring);

  [[nodiscard]] bool fits(const model::Job& job, const model::Embedding& embedding) const { return free_.fits(job, embedding); }
  void take(const model::Job& job, const model::Embedding& embedding);
  void give_back(const model::Job& job, const model::Embedding& embedding);

  [[nodiscard]] const FreeCapacity& free() const { return free_; }
  [[nodiscard]] const RoomIndex& rooms() const { return rooms_; }
  [[nodiscard]] const model::Cluster& cluster() const { return *cluster_; }
  [[nodiscard]] RingStyle style() const { return style_; }

 private:
  class Walk;

  [[nodiscard]] std::optional<model::Embedding> place_greedy(const model::Job& job, int workers);
  [[nodiscard]] std::optional<model::Embedding> place_by_topology(const model::Job& job, int workers, int racks);
  [[nodiscard]] TopologyFill& topology();
  void update(const model::Embedding& embedding);

  const model::Cluster* cluster_;
  RingStyle style_;
  FreeCapacity free_;
  RoomIndex rooms_;
  model::Routes routes_;
  std::optional<TopologyFill> topology_;  // made when first needed
};

}  // namespace maypole::sched
