// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_topology.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace maypole::sched::gadget {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Cut {
  double total = 0;
  double widest = 0;
};

Cut measure(const model::Cluster& cluster, const std::vector<model::LinkId>& links) {
  if (links.empty()) {
    return {kInfinity, kInfinity};
  }
  Cut cut;
  for (const model::LinkId link : links) {
    const base::Bandwidth bandwidth = cluster.link(link).bandwidth;
    const double rate = bandwidth.limited() ? bandwidth.bytes_per_second : kInfinity;
    cut.total += rate;
    cut.widest = std::max(cut.widest, rate);
  }
  return cut;
}

}  // namespace

Topology::Topology(const model::Cluster& cluster) : cluster_(&cluster) {
  if (!build_tree()) {
    build_cuts();
  }
  finish();
}

// The cluster's own tree, where its servers are leaves and each rack's servers are those of one switch.
bool Topology::build_tree() {
  if (!cluster_->tree()) {
    return false;
  }
  const model::Tree& tree = *cluster_->tree();
  const std::size_t num_servers = cluster_->num_servers();
  std::vector<model::RackId> rack_of_switch(cluster_->num_nodes());
  std::vector<model::NodeId> switch_of_rack(cluster_->num_racks() + 1);  // the last: servers without a rack
  std::vector<model::NodeId> racks;
  for (std::size_t s = 0; s < num_servers; ++s) {
    const model::NodeId parent = tree.parent[model::NodeId::from_index(s)];
    const model::RackId rack = cluster_->server(model::ServerId::from_index(s)).rack;
    if (!parent.valid() || cluster_->is_server(parent)) {
      return false;
    }
    const std::size_t at = rack.valid() ? rack.index() : cluster_->num_racks();
    if (!switch_of_rack[at].valid()) {
      if (rack_of_switch[parent.index()].valid()) {
        return false;  // two racks on one switch
      }
      switch_of_rack[at] = parent;
      rack_of_switch[parent.index()] = model::RackId::from_index(at);
      racks.push_back(parent);
    } else if (switch_of_rack[at] != parent) {
      return false;  // one rack on two switches
    }
  }
  // Numbers: servers keep theirs, then racks in order of their first server, then the other switches that have servers below.
  std::vector<int> number(cluster_->num_nodes(), -1);
  nodes_.resize(num_servers);
  for (std::size_t s = 0; s < num_servers; ++s) {
    number[s] = static_cast<int>(s);
  }
  const auto add = [&](model::NodeId node) {
    number[node.index()] = static_cast<int>(nodes_.size());
    nodes_.emplace_back();
  };
  std::ranges::for_each(racks, add);
  num_racks_ = static_cast<int>(racks.size());
  std::vector<model::NodeId> order = racks;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const model::NodeId parent = tree.parent[order[i]];
    if (!parent.valid()) {
      continue;
    }
    if (rack_of_switch[parent.index()].valid()) {
      nodes_.clear();
      num_racks_ = 0;
      return false;  // a rack below a rack
    }
    if (number[parent.index()] < 0) {
      add(parent);
      order.push_back(parent);
    }
  }
  for (std::size_t node = 0; node < number.size(); ++node) {
    const auto id = model::NodeId::from_index(node);
    if (number[node] < 0 || !tree.parent[id].valid()) {
      continue;
    }
    Node& here = nodes_[static_cast<std::size_t>(number[node])];
    here.parent = number[tree.parent[id].index()];
    here.out = {tree.up[id]};
    here.in = {tree.down[id]};
  }
  for (int child = 0; child < num_nodes(); ++child) {
    if (node(child).parent >= 0) {
      nodes_[static_cast<std::size_t>(node(child).parent)].children.push_back(child);
    }
  }
  // A switch above one rack only, such as a root with a single child, decides nothing; its links are never crossed.
  exact_ = true;
  return true;
}

// Servers, racks, all. A rack's part holds its servers and its switches.
void Topology::build_cuts() {
  const std::size_t num_servers = cluster_->num_servers();
  nodes_.assign(num_servers, {});
  std::vector<int> rack_node(cluster_->num_racks() + 1, -1);
  std::vector<int> part(cluster_->num_nodes(), -1);  // of a node of the cluster: its rack's node
  const auto rack_index = [&](model::RackId rack) { return rack.valid() ? rack.index() : cluster_->num_racks(); };
  for (std::size_t s = 0; s < num_servers; ++s) {
    int& rack = rack_node[rack_index(cluster_->server(model::ServerId::from_index(s)).rack)];
    if (rack < 0) {
      rack = num_nodes();
      nodes_.emplace_back();
      ++num_racks_;
    }
    part[s] = rack;
    nodes_[s].parent = rack;
    nodes_[static_cast<std::size_t>(rack)].children.push_back(static_cast<int>(s));
  }
  for (std::size_t i = 0; i < cluster_->parts().switches.size(); ++i) {
    const model::RackId rack = cluster_->parts().switches[i].rack;
    if (rack.valid()) {
      part[num_servers + i] = rack_node[rack.index()];
    }
  }
  for (std::size_t i = 0; i < cluster_->num_links(); ++i) {
    const auto id = model::LinkId::from_index(i);
    const model::Link& link = cluster_->link(id);
    if (cluster_->is_server(link.from)) {
      nodes_[link.from.index()].out.push_back(id);
    }
    if (cluster_->is_server(link.to)) {
      nodes_[link.to.index()].in.push_back(id);
    }
    const int from = part[link.from.index()];
    const int to = part[link.to.index()];
    if (from == to) {
      continue;
    }
    if (from >= 0) {
      nodes_[static_cast<std::size_t>(from)].out.push_back(id);
    }
    if (to >= 0) {
      nodes_[static_cast<std::size_t>(to)].in.push_back(id);
    }
  }
  if (num_racks_ > 1) {
    const int root = num_nodes();
    nodes_.emplace_back();
    for (int rack = first_rack(); rack < root; ++rack) {
      nodes_[static_cast<std::size_t>(rack)].parent = root;
      nodes_[static_cast<std::size_t>(root)].children.push_back(rack);
    }
  }
  exact_ = cluster_->num_links() == 0;
}

void Topology::finish() {
  for (Node& node : nodes_) {
    const Cut out = measure(*cluster_, node.out);
    const Cut in = measure(*cluster_, node.in);
    node.capacity = std::min(out.total, in.total);
    node.widest = std::min(out.widest, in.widest);
  }
  // Depth first from the root, children in order of their numbers.
  depth_.assign(nodes_.size(), 0);
  racks_below_.resize(nodes_.size() - cluster_->num_servers() - static_cast<std::size_t>(num_racks_));
  const std::function<void(int)> walk = [&](int id) {
    for (const int child : node(id).children) {
      depth_[static_cast<std::size_t>(child)] = depth_[static_cast<std::size_t>(id)] + 1;
      walk(child);
    }
    if (id >= first_rack() + num_racks_) {
      upper_.push_back(id);
    }
  };
  for (int id = 0; id < num_nodes(); ++id) {
    if (node(id).parent < 0) {
      walk(id);
    }
  }
  for (int rack = 0; rack < num_racks_; ++rack) {
    for (int above = node(first_rack() + rack).parent; above >= 0; above = node(above).parent) {
      racks_below_[static_cast<std::size_t>(above - first_rack() - num_racks_)].push_back(rack);
    }
  }
}

}  // namespace maypole::sched::gadget
