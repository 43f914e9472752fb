// SPDX-License-Identifier: Apache-2.0
#pragma once

// The cluster as `gadget` searches it: a tree of cuts. Its leaves are the servers, above them the racks, above these the other switches.
// A ring that has workers inside a node's part and outside it leaves the part over one of `out` and enters it over one of `in`.
//
// In a cluster that is a tree and whose racks are its lowest switches, the cut tree is that tree: one link out and one in, and a ring
// whose servers stand in the order of a walk over the tree uses every such link exactly once, and no other. In any other cluster the
// cut tree has three levels (servers, racks, all) and knows only what leaves a server or a rack: by it no feasible ring is excluded, and
// what it proposes is routed on the links afterwards.

#include "maypole/model/cluster.h"

#include <vector>

namespace maypole::sched::gadget {

class Topology {
 public:
  struct Node {
    int parent = -1;
    std::vector<int> children;       // none for a server
    std::vector<model::LinkId> out;  // links that leave the node's part; empty: leaving is free
    std::vector<model::LinkId> in;
    double capacity = 0;  // the smaller of what leaves and enters in all; infinite where that never binds
    double widest = 0;    // the largest bandwidth of one edge that can leave and enter
  };

  explicit Topology(const model::Cluster& cluster);

  [[nodiscard]] const model::Cluster& cluster() const { return *cluster_; }
  [[nodiscard]] int num_servers() const { return static_cast<int>(cluster_->num_servers()); }
  [[nodiscard]] int num_nodes() const { return static_cast<int>(nodes_.size()); }
  [[nodiscard]] const Node& node(int id) const { return nodes_[static_cast<std::size_t>(id)]; }
  /// Nodes [0, num_servers) are the servers, [first_rack, first_rack + num_racks) the racks.
  [[nodiscard]] int first_rack() const { return num_servers(); }
  [[nodiscard]] int num_racks() const { return num_racks_; }
  [[nodiscard]] int rack_of(int server) const { return node(server).parent - first_rack(); }
  [[nodiscard]] const std::vector<int>& servers_of(int rack) const { return node(first_rack() + rack).children; }
  /// Nodes above the racks, children before parents; the last is the root. Empty where one rack is all.
  [[nodiscard]] const std::vector<int>& upper() const { return upper_; }
  /// Racks below one of upper(), ascending, and how far it lies below the root.
  [[nodiscard]] const std::vector<int>& racks_below(int node) const {
    return racks_below_[static_cast<std::size_t>(node - first_rack() - num_racks_)];
  }
  [[nodiscard]] int depth(int node) const { return depth_[static_cast<std::size_t>(node)]; }
  /// True where cuts are single links: rings need no search for paths.
  [[nodiscard]] bool exact() const { return exact_; }

 private:
  bool build_tree();
  void build_cuts();
  void finish();

  const model::Cluster* cluster_;
  std::vector<Node> nodes_;
  std::vector<int> upper_;
  std::vector<int> depth_;                     // [node]
  std::vector<std::vector<int>> racks_below_;  // [upper node, by number]
  int num_racks_ = 0;
  bool exact_ = false;
};

}  // namespace maypole::sched::gadget
