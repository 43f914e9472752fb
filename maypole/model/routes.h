// SPDX-License-Identifier: Apache-2.0
#pragma once

// Paths between servers: fewest links, ties by the smaller link id at the first difference. In a tree that is the only path.

#include "maypole/model/cluster.h"

#include <unordered_map>
#include <vector>

namespace maypole::model {

/// Finds paths; remembers the search from a server where the cluster is not a tree. Not thread-safe. The cluster must outlive it.
class Routes {
 public:
  explicit Routes(const Cluster& cluster) : cluster_(cluster) {}

  /// Links from `from` to `to` in order; empty where they are equal, and where the cluster models no links.
  /// Cost: the path's length in a tree; else one breadth-first search for the first path from each server.
  [[nodiscard]] std::vector<LinkId> path(ServerId from, ServerId to);

 private:
  const Cluster& cluster_;
  std::unordered_map<std::int32_t, base::IdVector<NodeId, LinkId>> reached_by_;  // by source server: the last link to each node
};

/// The cycle's crossings: ring edges that leave a rack, counted once each; 0 within one rack, at least 2 otherwise.
[[nodiscard]] int rack_crossings(const Cluster& cluster, std::span<const ServerId> ring);

}  // namespace maypole::model
