// SPDX-License-Identifier: Apache-2.0
#pragma once

// A tree of servers under switches, as most cluster files describe it, and the links that it stands for.

#include "maypole/formats/cluster_parts.h"

#include <string>
#include <string_view>
#include <vector>

namespace maypole::formats {

inline constexpr std::string_view kCore = "core";  // the root above all switches that name no other

struct TreeServer {
  std::string id;
  std::string rack;  // its switch; empty: the core
  NamedAmounts capacity;
  base::Bandwidth bandwidth;  // to its switch, each direction
};

struct TreeSwitch {
  std::string id;
  std::string parent;      // the switch above; empty: the core
  base::Bandwidth uplink;  // to it, each direction
  bool root = false;       // nothing is above it, not even the core
};

/// Whether an id comes before another; numbers within them count as numbers.
[[nodiscard]] bool id_before(std::string_view a, std::string_view b);

struct ClusterTree {
  std::vector<TreeServer> servers;
  std::vector<TreeSwitch> switches;

  /// True where some bandwidth is limited: else links need not be modelled.
  [[nodiscard]] bool limited() const;
  /// Into the order of ids (s2 before s10), so that the order of a file's lines changes no answer.
  void sort();
  /// Adds servers, and with `links` the links up and down, servers first, each in its order. Ids must be known to be unique.
  void add_to(ClusterNames& names, bool links) const;
};

/// `a>b`: the name of the link from a to b in a tree.
[[nodiscard]] std::string tree_link(const std::string& from, const std::string& to);

/// What a generator makes: servers s0, s1, ... in racks r0, r1, ... of equal size.
struct GeneratedTree {
  int racks = 1;
  int servers_per_rack = 1;
  int racks_per_pod = 0;  // above 0: a switch p0, p1, ... over so many racks (fat-tree)
  NamedAmounts capacity;
  base::Bandwidth bandwidth;  // of a server
  double oversubscription = 1;
};
[[nodiscard]] ClusterTree generate_tree(const GeneratedTree& wanted);

}  // namespace maypole::formats
