// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/cluster_tree.h"

#include "maypole/base/check.h"

#include <algorithm>

namespace maypole::formats {

bool ClusterTree::limited() const {
  return std::ranges::any_of(servers, [](const TreeServer& server) { return server.bandwidth.limited(); }) ||
         std::ranges::any_of(switches, [](const TreeSwitch& node) { return node.uplink.limited(); });
}

std::string tree_link(const std::string& from, const std::string& to) { return from + ">" + to; }

void ClusterTree::add_to(ClusterNames& names, bool links) const {
  for (const TreeServer& server : servers) {
    MAYPOLE_CHECK(names.add_server(server.id, server.rack, server.capacity));
  }
  if (!links) {
    return;
  }
  const auto join = [&](const std::string& low, const std::string& above, base::Bandwidth bandwidth) {
    const std::string high = above.empty() ? std::string(kCore) : above;
    static_cast<void>(names.add_link(tree_link(low, high), low, high, bandwidth));
    static_cast<void>(names.add_link(tree_link(high, low), high, low, bandwidth));
  };
  for (const TreeServer& server : servers) {
    join(server.id, server.rack, server.bandwidth);
  }
  for (const TreeSwitch& node : switches) {
    if (node.root) {
      continue;
    }
    join(node.id, node.parent, node.uplink);
  }
}

ClusterTree generate_tree(const GeneratedTree& wanted) {
  ClusterTree tree;
  const base::Bandwidth rack_uplink{wanted.bandwidth.bytes_per_second * wanted.servers_per_rack / wanted.oversubscription};
  for (int rack = 0; rack < wanted.racks; ++rack) {
    const std::string rack_id = fmt::format("r{}", rack);
    for (int server = 0; server < wanted.servers_per_rack; ++server) {
      tree.servers.push_back({fmt::format("s{}", rack * wanted.servers_per_rack + server), rack_id, wanted.capacity, wanted.bandwidth});
    }
    const std::string pod = wanted.racks_per_pod > 0 ? fmt::format("p{}", rack / wanted.racks_per_pod) : "";
    tree.switches.push_back({.id = rack_id, .parent = pod, .uplink = rack_uplink});
  }
  for (int first = 0; wanted.racks_per_pod > 0 && first < wanted.racks; first += wanted.racks_per_pod) {
    const int racks = std::min(wanted.racks_per_pod, wanted.racks - first);
    tree.switches.push_back(
        {.id = fmt::format("p{}", first / wanted.racks_per_pod), .parent = "", .uplink = {rack_uplink.bytes_per_second * racks}});
  }
  return tree;
}

}  // namespace maypole::formats
