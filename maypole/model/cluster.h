// SPDX-License-Identifier: Apache-2.0
#pragma once

// The cluster: the directed substrate graph G_s = (V_s, E_s) of GADGET (papers: Yu et al., INFOCOM 2022, section III-A). Its nodes are
// servers, which hold workers, and switches, which do not; its links are directed. Most clusters are trees (server, rack, core): every
// node then has one link up and one down, and the path between two servers is unique (`tree()`).

#include "maypole/base/strong_id.h"
#include "maypole/base/units.h"

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace maypole::model {

using ServerId = base::StrongId<struct ServerTag>;      // [0, num_servers)
using NodeId = base::StrongId<struct NodeTag>;          // servers first (NodeId = ServerId), then switches
using LinkId = base::StrongId<struct LinkTag>;          // [0, num_links)
using RackId = base::StrongId<struct RackTag>;          // [0, num_racks)
using ResourceId = base::StrongId<struct ResourceTag>;  // [0, num_resources): position in every capacity and demand

/// Amounts of each resource type, [resource]; what is not named is 0.
using Amounts = base::IdVector<ResourceId, double>;

struct Server {
  std::string id;
  RackId rack;
  Amounts capacity;  // C_s^r
};

struct Switch {
  std::string id;
  RackId rack;  // set where it is the top of that rack
};

struct Link {
  std::string id;
  NodeId from;
  NodeId to;
  base::Bandwidth bandwidth;  // payload; not limited(): never binds
};

/// Every node's way up in a cluster that is a tree, as seen from its root switch.
struct Tree {
  base::IdVector<NodeId, NodeId> parent;  // invalid for the root
  base::IdVector<NodeId, LinkId> up;      // node to parent
  base::IdVector<NodeId, LinkId> down;    // parent to node
  base::IdVector<NodeId, int> depth;      // root: 0
};

/// What a Cluster is made of, before it is checked.
struct ClusterParts {
  std::vector<std::string> resources;  // names, [resource]
  std::vector<std::string> racks;      // names, [rack]
  std::vector<Server> servers;
  std::vector<Switch> switches;
  std::vector<Link> links;
};

/// An immutable, checked cluster.
class Cluster {
 public:
  /// Errors (kInvalidArgument), each naming the thing and the remedy: no server, no resource, duplicate ids (of servers, switches and
  /// links together), a negative or non-finite capacity, a limited bandwidth that is not positive and finite, a link from a node to
  /// itself or to an unknown node, servers that cannot reach each other by links (with a cluster of one server no link is needed).
  /// A cluster without any link is one where links are not modelled: all pairs of servers are joined by edges that use no link.
  [[nodiscard]] static absl::StatusOr<Cluster> make(ClusterParts parts);

  [[nodiscard]] std::size_t num_servers() const { return parts_.servers.size(); }
  [[nodiscard]] std::size_t num_nodes() const { return parts_.servers.size() + parts_.switches.size(); }
  [[nodiscard]] std::size_t num_links() const { return parts_.links.size(); }
  [[nodiscard]] std::size_t num_resources() const { return parts_.resources.size(); }
  [[nodiscard]] std::size_t num_racks() const { return parts_.racks.size(); }

  [[nodiscard]] const Server& server(ServerId id) const { return parts_.servers[id.index()]; }
  [[nodiscard]] const Link& link(LinkId id) const { return parts_.links[id.index()]; }
  [[nodiscard]] const std::string& resource(ResourceId id) const { return parts_.resources[id.index()]; }
  [[nodiscard]] const std::string& rack(RackId id) const { return parts_.racks[id.index()]; }
  [[nodiscard]] const std::string& node_name(NodeId id) const;
  [[nodiscard]] const ClusterParts& parts() const { return parts_; }

  [[nodiscard]] static NodeId node(ServerId id) { return NodeId(id.value()); }
  [[nodiscard]] bool is_server(NodeId id) const { return id.index() < num_servers(); }
  [[nodiscard]] ServerId server_of(NodeId id) const { return is_server(id) ? ServerId(id.value()) : ServerId(); }
  /// Links that leave a node, in order of their ids.
  [[nodiscard]] std::span<const LinkId> out_links(NodeId id) const { return out_links_[id]; }

  /// The name's position, or none.
  [[nodiscard]] std::optional<ResourceId> find_resource(const std::string& name) const;
  [[nodiscard]] std::optional<ServerId> find_server(const std::string& id) const;
  [[nodiscard]] std::optional<LinkId> find_link(const std::string& id) const;
  /// The resource that counts as accelerator in GPU-hours and in attained service: `gpu`, else the first.
  [[nodiscard]] ResourceId accelerator() const { return accelerator_; }
  /// Sum over the servers, [resource].
  [[nodiscard]] const Amounts& total_capacity() const { return total_; }
  /// Set where the links form a tree with one link each way between neighbours.
  [[nodiscard]] const std::optional<Tree>& tree() const { return tree_; }

 private:
  explicit Cluster(ClusterParts parts);

  ClusterParts parts_;
  base::IdVector<NodeId, std::vector<LinkId>> out_links_;
  ResourceId accelerator_;
  Amounts total_;
  std::optional<Tree> tree_;
};

}  // namespace maypole::model
