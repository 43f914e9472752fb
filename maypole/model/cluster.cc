// SPDX-License-Identifier: Apache-2.0
#include "maypole/model/cluster.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace maypole::model {

namespace {

using base::error;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

absl::Status check_names(const ClusterParts& parts) {
  std::unordered_set<std::string_view> nodes;
  const auto add = [&](std::unordered_set<std::string_view>& names, std::string_view what, const std::string& id) -> absl::Status {
    if (id.empty()) {
      return error(kInvalid, "a {} has an empty id: give it a name", what);
    }
    if (!names.insert(id).second) {
      return error(kInvalid, "{} '{}' is there twice: give each its own id", what, id);
    }
    return absl::OkStatus();
  };
  for (const Server& server : parts.servers) {
    MAYPOLE_RETURN_IF_ERROR(add(nodes, "server", server.id));
  }
  for (const Switch& node : parts.switches) {
    MAYPOLE_RETURN_IF_ERROR(add(nodes, "switch", node.id));
  }
  std::unordered_set<std::string_view> links;
  for (const Link& link : parts.links) {
    MAYPOLE_RETURN_IF_ERROR(add(links, "link", link.id));
  }
  std::unordered_set<std::string_view> resources;
  for (const std::string& resource : parts.resources) {
    MAYPOLE_RETURN_IF_ERROR(add(resources, "resource", resource));
  }
  return absl::OkStatus();
}

absl::Status check_numbers(const ClusterParts& parts) {
  for (const Server& server : parts.servers) {
    MAYPOLE_CHECK_EQ(server.capacity.size(), parts.resources.size());
    for (std::size_t r = 0; r < parts.resources.size(); ++r) {
      const double capacity = server.capacity[ResourceId::from_index(r)];
      if (!(capacity >= 0) || std::isinf(capacity)) {
        return error(kInvalid, "server '{}' has capacity {} of {}: give a finite amount of at least 0", server.id, capacity,
                     parts.resources[r]);
      }
    }
  }
  const std::size_t num_nodes = parts.servers.size() + parts.switches.size();
  const auto name_of_node = [&](NodeId node) -> const std::string& {
    return node.index() < parts.servers.size() ? parts.servers[node.index()].id : parts.switches[node.index() - parts.servers.size()].id;
  };
  for (const Link& link : parts.links) {
    const double rate = link.bandwidth.bytes_per_second;
    if (!(rate >= 0) || std::isinf(rate)) {
      return error(kInvalid, "link '{}' has bandwidth {}: give a finite rate above 0, or none where it never binds", link.id, rate);
    }
    for (const NodeId node : {link.from, link.to}) {
      if (!node.valid() || node.index() >= num_nodes) {
        return error(kInvalid, "link '{}' names a node that does not exist: declare the server or rack first", link.id);
      }
    }
    if (link.from == link.to) {
      return error(kInvalid, "link '{}' joins '{}' with itself: give two different ends", link.id, name_of_node(link.from));
    }
  }
  return absl::OkStatus();
}

// Marks all nodes that `start` reaches along `next`.
template <typename Next>
std::vector<bool> reached(std::size_t num_nodes, NodeId start, const Next& next) {
  std::vector<bool> seen(num_nodes, false);
  std::vector<NodeId> stack = {start};
  seen[start.index()] = true;
  while (!stack.empty()) {
    const NodeId node = stack.back();
    stack.pop_back();
    for (const NodeId other : next(node)) {
      if (!seen[other.index()]) {
        seen[other.index()] = true;
        stack.push_back(other);
      }
    }
  }
  return seen;
}

absl::Status check_reach(const ClusterParts& parts) {
  if (parts.links.empty() || parts.servers.size() == 1) {
    return absl::OkStatus();
  }
  const std::size_t num_nodes = parts.servers.size() + parts.switches.size();
  std::vector<std::vector<NodeId>> forward(num_nodes);
  std::vector<std::vector<NodeId>> backward(num_nodes);
  for (const Link& link : parts.links) {
    forward[link.from.index()].push_back(link.to);
    backward[link.to.index()].push_back(link.from);
  }
  for (const bool there : {true, false}) {
    const std::vector<std::vector<NodeId>>& next = there ? forward : backward;
    const std::vector<bool> seen =
        reached(num_nodes, NodeId(0), [&](NodeId node) -> const std::vector<NodeId>& { return next[node.index()]; });
    for (std::size_t s = 0; s < parts.servers.size(); ++s) {
      if (!seen[s]) {
        const std::string& first = parts.servers[0].id;
        const std::string& lost = parts.servers[s].id;
        return error(kInvalid, "no path of links leads from server '{}' to server '{}': join their racks by links in both directions",
                     there ? first : lost, there ? lost : first);
      }
    }
  }
  return absl::OkStatus();
}

// The tree that the links form, from the first switch (or server) with the most links; none where they form anything else.
std::optional<Tree> find_tree(const ClusterParts& parts, const base::IdVector<NodeId, std::vector<LinkId>>& out_links) {
  const std::size_t num_nodes = out_links.size();
  if (parts.links.size() != 2 * (num_nodes - 1)) {
    return std::nullopt;
  }
  // The node half-way along a longest path is the natural root; for racks under one core that is the core.
  const auto farthest = [&](NodeId start, base::IdVector<NodeId, NodeId>& parent) {
    parent.assign(num_nodes, NodeId());
    std::vector<NodeId> order = {start};
    parent[start] = start;
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (const LinkId link : out_links[order[i]]) {
        const NodeId other = parts.links[link.index()].to;
        if (!parent[other].valid()) {
          parent[other] = order[i];
          order.push_back(other);
        }
      }
    }
    return order.size() == num_nodes ? order.back() : NodeId();
  };
  base::IdVector<NodeId, NodeId> parent;
  const NodeId one_end = farthest(NodeId(0), parent);
  if (!one_end.valid()) {
    return std::nullopt;
  }
  const NodeId other_end = farthest(one_end, parent);
  std::vector<NodeId> way = {other_end};
  while (parent[way.back()] != way.back()) {
    way.push_back(parent[way.back()]);
  }
  const NodeId root = way[way.size() / 2];

  Tree tree;
  tree.parent.assign(num_nodes, NodeId());
  tree.up.assign(num_nodes, LinkId());
  tree.down.assign(num_nodes, LinkId());
  tree.depth.assign(num_nodes, -1);
  tree.depth[root] = 0;
  std::vector<NodeId> order = {root};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const NodeId node = order[i];
    for (const LinkId link : out_links[node]) {
      const NodeId other = parts.links[link.index()].to;
      if (other == tree.parent[node]) {
        if (tree.up[node].valid()) {
          return std::nullopt;  // two links up: parallel
        }
        tree.up[node] = link;
      } else if (tree.depth[other] >= 0) {
        return std::nullopt;  // a cycle, or two links down
      } else {
        tree.parent[other] = node;
        tree.down[other] = link;
        tree.depth[other] = tree.depth[node] + 1;
        order.push_back(other);
      }
    }
  }
  for (const NodeId node : order) {
    if (node != root && !tree.up[node].valid()) {
      return std::nullopt;
    }
  }
  return order.size() == num_nodes ? std::optional<Tree>(std::move(tree)) : std::nullopt;
}

template <typename Id, typename Named>
std::optional<Id> find(const std::vector<Named>& all, const std::string& id) {
  const auto found = std::ranges::find(all, id, &Named::id);
  return found == all.end() ? std::nullopt : std::optional<Id>(Id::from_index(static_cast<std::size_t>(found - all.begin())));
}

}  // namespace

absl::StatusOr<Cluster> Cluster::make(ClusterParts parts) {
  if (parts.servers.empty()) {
    return error(kInvalid, "the cluster has no server: declare at least one");
  }
  if (parts.resources.empty()) {
    return error(kInvalid, "no server has any capacity: give each what it holds, such as gpu: 4");
  }
  MAYPOLE_RETURN_IF_ERROR(check_names(parts));
  MAYPOLE_RETURN_IF_ERROR(check_numbers(parts));
  MAYPOLE_RETURN_IF_ERROR(check_reach(parts));
  return Cluster(std::move(parts));
}

Cluster::Cluster(ClusterParts parts) : parts_(std::move(parts)) {
  out_links_.assign(num_nodes(), {});
  for (std::size_t i = 0; i < num_links(); ++i) {
    out_links_[parts_.links[i].from].push_back(LinkId::from_index(i));
  }
  accelerator_ = find_resource("gpu").value_or(ResourceId(0));
  total_.assign(num_resources(), 0);
  for (const Server& server : parts_.servers) {
    for (std::size_t r = 0; r < num_resources(); ++r) {
      total_[ResourceId::from_index(r)] += server.capacity[ResourceId::from_index(r)];
    }
  }
  if (!parts_.links.empty()) {
    tree_ = find_tree(parts_, out_links_);
  }
}

const std::string& Cluster::node_name(NodeId id) const {
  return is_server(id) ? parts_.servers[id.index()].id : parts_.switches[id.index() - num_servers()].id;
}

std::optional<ResourceId> Cluster::find_resource(const std::string& name) const {
  const auto found = std::ranges::find(parts_.resources, name);
  return found == parts_.resources.end()
             ? std::nullopt
             : std::optional(ResourceId::from_index(static_cast<std::size_t>(found - parts_.resources.begin())));
}

std::optional<ServerId> Cluster::find_server(const std::string& id) const { return find<ServerId>(parts_.servers, id); }
std::optional<LinkId> Cluster::find_link(const std::string& id) const { return find<LinkId>(parts_.links, id); }

}  // namespace maypole::model
