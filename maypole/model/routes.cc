// SPDX-License-Identifier: Apache-2.0
#include "maypole/model/routes.h"

#include "maypole/base/check.h"

#include <algorithm>

namespace maypole::model {

std::vector<LinkId> Routes::path(ServerId from, ServerId to) {
  std::vector<LinkId> path;
  if (from == to || cluster_.num_links() == 0) {
    return path;
  }
  NodeId here = Cluster::node(from);
  NodeId there = Cluster::node(to);
  if (cluster_.tree()) {
    const Tree& tree = *cluster_.tree();
    std::vector<LinkId> down;
    while (here != there) {
      if (tree.depth[here] >= tree.depth[there]) {
        path.push_back(tree.up[here]);
        here = tree.parent[here];
      } else {
        down.push_back(tree.down[there]);
        there = tree.parent[there];
      }
    }
    path.insert(path.end(), down.rbegin(), down.rend());
    return path;
  }
  const auto [found, is_new] = reached_by_.try_emplace(from.value());
  base::IdVector<NodeId, LinkId>& last = found->second;
  if (is_new) {
    last.assign(cluster_.num_nodes(), LinkId());
    std::vector<NodeId> order = {here};
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (const LinkId link : cluster_.out_links(order[i])) {
        const NodeId next = cluster_.link(link).to;
        if (next != here && !last[next].valid()) {
          last[next] = link;
          order.push_back(next);
        }
      }
    }
  }
  while (there != here) {
    MAYPOLE_CHECK(last[there].valid());  // Cluster::make has checked that servers reach each other
    path.push_back(last[there]);
    there = cluster_.link(last[there]).from;
  }
  std::ranges::reverse(path);
  return path;
}

int rack_crossings(const Cluster& cluster, std::span<const ServerId> ring) {
  int crossings = 0;
  for (std::size_t k = 0; k < ring.size(); ++k) {
    const ServerId next = ring[(k + 1) % ring.size()];
    crossings += cluster.server(ring[k]).rack != cluster.server(next).rack ? 1 : 0;
  }
  return crossings;
}

}  // namespace maypole::model
