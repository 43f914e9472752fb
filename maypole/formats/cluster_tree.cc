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

bool id_before(std::string_view a, std::string_view b) {
  const auto digits = [](std::string_view text) { return text.substr(0, std::min(text.find_first_not_of("0123456789"), text.size())); };
  while (!a.empty() && !b.empty()) {
    const std::string_view da = digits(a);
    const std::string_view db = digits(b);
    if (da.empty() || db.empty()) {
      if (a.front() != b.front()) {
        return a.front() < b.front();
      }
      a.remove_prefix(1);
      b.remove_prefix(1);
      continue;
    }
    const std::string_view na = da.substr(std::min(da.find_first_not_of('0'), da.size()));
    const std::string_view nb = db.substr(std::min(db.find_first_not_of('0'), db.size()));
    if (na != nb) {
      return na.size() != nb.size() ? na.size() < nb.size() : na < nb;
    }
    if (da != db) {
      return da.size() < db.size();
    }
    a.remove_prefix(da.size());
    b.remove_prefix(db.size());
  }
  return a.size() < b.size();
}

void ClusterTree::sort() {
  std::ranges::sort(servers, id_before, &TreeServer::id);
  std::ranges::sort(switches, id_before, &TreeSwitch::id);
}

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
