// SPDX-License-Identifier: Apache-2.0
#pragma once

// Chooses the servers of a ring by the topology: one server where one holds it all, else one rack, else the smallest part of the tree.
//
// The cluster is seen as nested groups: in a tree the subtree of every switch; elsewhere each rack, under one root. A group's room for a
// job is the number of workers that fit on its servers; a server or inner group counts only where the links that lead out of it (in a
// tree) still carry one edge of the job each way. A ring in the order of a depth-first walk uses every link at most once in each
// direction, so that in a tree the room says exactly which rings fit; elsewhere the caller has to check the paths.
//
// Best fit at every level, by the lowest group first: of the servers that hold the ring, the one with the fewest free accelerators; of the
// racks, likewise; of larger groups, the one with the least room. Within a group the largest members are filled first and the rest goes
// to the smallest that holds it, which keeps the number of servers and racks small.

#include "maypole/sched/free_capacity.h"

#include <set>
#include <utility>
#include <vector>

namespace maypole::sched {

/// Workers on one server.
struct ServerShare {
  model::ServerId server;
  int workers = 0;
};

class TopologyFill {
 public:
  TopologyFill(const model::Cluster& cluster, const FreeCapacity& free);

  /// To be called after the server's free amounts changed.
  void update(model::ServerId server, const FreeCapacity& free);
  /// Servers for the ring, in the order of the ring; empty where no group holds it. At most `rack_limit` racks (0: any number).
  [[nodiscard]] std::vector<ServerShare> choose(const model::Job& job, int workers, int rack_limit, const FreeCapacity& free) const;
  /// All servers with room, racks together: the order in which a search may try them where choose()'s answer has no paths.
  [[nodiscard]] std::vector<model::ServerId> in_order(const model::Job& job, const FreeCapacity& free) const;
  /// Whether the links next to the server carry one more edge of the job out and in.
  [[nodiscard]] bool joins(const model::Job& job, model::ServerId server, const FreeCapacity& free) const;

 private:
  struct Group {
    int parent = -1;
    model::NodeId node;  // in a tree: its switch
    std::vector<int> inner;
    std::vector<model::ServerId> servers;
    double free = 0;  // accelerators of its own servers
    int height = 0;   // 0: no inner group
  };
  struct Rooms;

  void build_tree_groups();
  void build_rack_groups();
  [[nodiscard]] double accelerators(model::ServerId server, const FreeCapacity& free) const;
  [[nodiscard]] bool carries(const model::Job& job, model::LinkId link, const FreeCapacity& free) const;
  [[nodiscard]] int server_room(const model::Job& job, model::ServerId server, int limit, const FreeCapacity& free) const;
  [[nodiscard]] std::vector<ServerShare> one_server(const model::Job& job, int workers, const FreeCapacity& free) const;
  [[nodiscard]] std::vector<ServerShare> one_low_group(const model::Job& job, int workers, const FreeCapacity& free) const;
  [[nodiscard]] std::vector<ServerShare> one_group(const model::Job& job, int workers, const FreeCapacity& free) const;
  [[nodiscard]] std::vector<ServerShare> few_racks(const model::Job& job, int workers, int rack_limit, const FreeCapacity& free) const;
  [[nodiscard]] bool leads_out(const model::Job& job, int group, const FreeCapacity& free) const;
  void fill(const Rooms& rooms, int group, int workers, std::vector<ServerShare>& shares) const;
  void put_in_ring_order(std::vector<ServerShare>& shares) const;
  [[nodiscard]] int num_racks(const std::vector<ServerShare>& shares) const;

  const model::Cluster* cluster_;
  model::ResourceId accelerator_;
  std::vector<Group> groups_;  // every group stands after its parent
  base::IdVector<model::ServerId, int> group_of_;
  base::IdVector<model::ServerId, int> position_;  // in the depth-first walk
  base::IdVector<model::ServerId, double> key_;    // free accelerators as they stand in by_free_
  std::set<std::pair<double, model::ServerId>> by_free_;
  std::set<std::pair<double, int>> low_by_free_;  // groups of height 0
  base::IdVector<model::NodeId, std::vector<model::LinkId>> in_links_;
};

}  // namespace maypole::sched
