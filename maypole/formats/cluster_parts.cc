// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/cluster_parts.h"

#include "maypole/base/status.h"

namespace maypole::formats {

namespace {

// The name's position, given when it is first asked for.
std::size_t position(std::unordered_map<std::string, std::size_t>& positions, std::vector<std::string>& names, const std::string& name) {
  const auto [found, is_new] = positions.try_emplace(name, names.size());
  if (is_new) {
    names.push_back(name);
  }
  return found->second;
}

}  // namespace

bool ClusterNames::add_server(const std::string& id, const std::string& rack, const NamedAmounts& capacity) {
  if (!nodes_.try_emplace(id, NodeName{true, parts_.servers.size()}).second) {
    return false;
  }
  model::Server& server = parts_.servers.emplace_back();
  server.id = id;
  if (!rack.empty()) {
    server.rack = model::RackId::from_index(position(racks_, parts_.racks, rack));
  }
  for (const auto& [name, amount] : capacity) {
    position(resources_, parts_.resources, name);
  }
  capacities_.push_back(capacity);
  return true;
}

bool ClusterNames::add_switch(const std::string& id) {
  const bool is_new = nodes_.try_emplace(id, NodeName{false, parts_.switches.size()}).second;
  if (is_new) {
    parts_.switches.push_back({id, model::RackId()});
  }
  return is_new;
}

bool ClusterNames::add_link(const std::string& id, const std::string& from, const std::string& to, base::Bandwidth bandwidth) {
  if (!link_ids_.try_emplace(id, links_.size()).second) {
    return false;
  }
  for (const std::string& end : {from, to}) {
    if (!knows(end)) {
      static_cast<void>(add_switch(end));
    }
  }
  links_.push_back({id, from, to, bandwidth});
  return true;
}

absl::StatusOr<model::Cluster> ClusterNames::make(std::string_view file) {
  for (std::size_t i = 0; i < parts_.servers.size(); ++i) {
    parts_.servers[i].capacity.assign(parts_.resources.size(), 0);
    for (const auto& [name, amount] : capacities_[i]) {
      parts_.servers[i].capacity[model::ResourceId::from_index(resources_[name])] = amount;
    }
  }
  for (model::Switch& node : parts_.switches) {
    if (const auto rack = racks_.find(node.id); rack != racks_.end()) {
      node.rack = model::RackId::from_index(rack->second);
    }
  }
  // Servers come before switches among the nodes, however the names came.
  const auto node = [&](const std::string& name) {
    const NodeName& found = nodes_[name];
    return model::NodeId::from_index(found.server ? found.index : parts_.servers.size() + found.index);
  };
  parts_.links.clear();
  for (const NamedLink& link : links_) {
    parts_.links.push_back({link.id, node(link.from), node(link.to), link.bandwidth});
  }
  absl::StatusOr<model::Cluster> cluster = model::Cluster::make(std::move(parts_));
  if (!cluster.ok()) {
    return base::error(cluster.status().code(), "{}: {}", file, base::message(cluster.status()));
  }
  return cluster;
}

}  // namespace maypole::formats
