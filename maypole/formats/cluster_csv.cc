// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/status.h"
#include "maypole/formats/cluster_file.h"
#include "maypole/formats/cluster_tree.h"
#include "maypole/formats/csv.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

namespace maypole::formats {

namespace {

using base::error;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int kMostServers = 100'000;

absl::StatusOr<model::Cluster> make(ClusterTree tree, std::string_view file) {
  ClusterNames names;
  tree.sort();
  tree.add_to(names, tree.limited());
  return names.make(file);
}

}  // namespace

absl::StatusOr<model::Cluster> parse_alibaba_topology(std::string_view text, std::string_view file, const ClusterDefaults& defaults) {
  MAYPOLE_ASSIGN_OR_RETURN(const CsvTable table, parse_csv(text, file));
  if (!(defaults.gpus_per_server > 0)) {
    return error(kInvalid, "{}: a topology does not say how many GPUs a server has: give --gpus-per-server", file);
  }
  Problems problems{std::string(file)};
  ClusterTree tree;
  std::unordered_map<std::string, int> lines;      // by server
  std::map<std::string, std::string> parents;      // switch below the root switches, to the one above
  std::map<std::string, base::Bandwidth> uplinks;  // the sum of what lies below, for all but the racks
  std::vector<std::string> order;                  // switches as they are first named
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const CsvRow row(table, i, problems);
    const std::string id = row.name("ip");
    // An ASW's name is its own only within its PSW, a PSW's within its DSW.
    const std::string core = row.name("DSW");
    const std::string middle = core + "/" + row.name("PSW");
    const std::string rack = middle + "/" + row.name("ASW");
    if (const auto [found, is_new] = lines.try_emplace(id, row.line()); !is_new) {
      row.problem("ip", fmt::format("'{}' is there twice (first in line {}): keep one row a server", id, found->second));
    }
    tree.servers.push_back({id, rack, {{"gpu", defaults.gpus_per_server}}, defaults.server_bandwidth});
    if (parents.try_emplace(rack, middle).second) {
      order.push_back(rack);
      uplinks[rack] = defaults.uplink;
      uplinks[middle].bytes_per_second += defaults.uplink.bytes_per_second;
    }
    if (parents.try_emplace(middle, core).second) {
      order.push_back(middle);
    }
    if (parents.try_emplace(core, "").second) {
      order.push_back(core);
    }
  }
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  const auto num_roots = std::ranges::count(parents, "", [](const auto& entry) { return entry.second; });
  for (const std::string& id : order) {
    if (const auto server = lines.find(id); server != lines.end()) {
      problems.add(server->second, "ip", fmt::format("'{}' is also the name of a switch: give the host another", id));
    }
    const bool root = parents[id].empty() && num_roots == 1;
    tree.switches.push_back({.id = id, .parent = parents[id], .uplink = uplinks[id], .root = root});
  }
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  return make(std::move(tree), file);
}

absl::StatusOr<model::Cluster> parse_tiresias_cluster(std::string_view text, std::string_view file, const ClusterDefaults& defaults) {
  MAYPOLE_ASSIGN_OR_RETURN(const CsvTable table, parse_csv(text, file));
  if (table.rows.size() != 1) {
    return error(kInvalid, "{}: has {} rows: a cluster is one row", file, table.rows.size());
  }
  Problems problems{std::string(file)};
  const CsvRow row(table, 0, problems);
  GeneratedTree wanted;
  wanted.racks = row.integer("num_switch", 1);
  wanted.servers_per_rack = row.integer("num_node_p_switch", 1);
  if (std::int64_t{wanted.racks} * wanted.servers_per_rack > kMostServers) {
    row.problem("num_node_p_switch", fmt::format("more than {} servers", kMostServers));
  }
  wanted.capacity.emplace_back("gpu", row.positive("num_gpu_p_node"));
  if (table.column("num_cpu_p_node")) {
    wanted.capacity.emplace_back("cpu", row.number("num_cpu_p_node", 0));
  }
  if (table.column("mem_p_node")) {
    wanted.capacity.emplace_back("memory", row.number("mem_p_node", 0) * 1e9);
  }
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  wanted.bandwidth = defaults.server_bandwidth;
  ClusterTree tree = generate_tree(wanted);
  for (TreeSwitch& rack : tree.switches) {
    rack.uplink = defaults.uplink;
  }
  return make(std::move(tree), file);
}

}  // namespace maypole::formats
