// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/topology_fill.h"

#include <algorithm>
#include <numeric>

namespace maypole::sched {

using model::Job;
using model::LinkId;
using model::NodeId;
using model::RackId;
using model::ServerId;

/// Room of servers and groups for one job.
struct TopologyFill::Rooms {
  base::IdVector<ServerId, int> server;
  std::vector<int> group;     // within it
  std::vector<int> exported;  // of it, for a ring that also goes elsewhere
};

TopologyFill::TopologyFill(const model::Cluster& cluster, const FreeCapacity& free)
    : cluster_(&cluster), accelerator_(cluster.accelerator()) {
  group_of_.assign(cluster.num_servers(), -1);
  position_.assign(cluster.num_servers(), 0);
  in_links_.assign(cluster.num_nodes(), {});
  for (std::size_t i = 0; i < cluster.num_links(); ++i) {
    const LinkId link = LinkId::from_index(i);
    in_links_[cluster.link(link).to].push_back(link);
  }
  if (cluster.tree()) {
    build_tree_groups();
  } else {
    build_rack_groups();
  }
  for (std::size_t g = groups_.size(); g-- > 1;) {
    Group& parent = groups_[static_cast<std::size_t>(groups_[g].parent)];
    parent.height = std::max(parent.height, groups_[g].height + 1);
  }
  for (std::size_t s = 0; s < cluster.num_servers(); ++s) {
    const ServerId server = ServerId::from_index(s);
    const double amount = accelerators(server, free);
    key_.push_back(amount);
    by_free_.emplace(amount, server);
    groups_[static_cast<std::size_t>(group_of_[server])].free += amount;
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].height == 0) {
      low_by_free_.emplace(groups_[g].free, static_cast<int>(g));
    }
  }
}

void TopologyFill::build_tree_groups() {
  const model::Tree& tree = *cluster_->tree();
  base::IdVector<NodeId, std::vector<NodeId>> children(cluster_->num_nodes());
  NodeId root;
  for (std::size_t n = 0; n < cluster_->num_nodes(); ++n) {
    const NodeId node = NodeId::from_index(n);
    if (tree.parent[node].valid()) {
      children[tree.parent[node]].push_back(node);
    } else {
      root = node;
    }
  }
  int position = 0;
  std::vector<std::pair<NodeId, int>> stack = {{root, -1}};  // node, group around it
  while (!stack.empty()) {
    const auto [node, parent] = stack.back();
    stack.pop_back();
    int group = parent;
    if (parent < 0 || !children[node].empty()) {
      group = static_cast<int>(groups_.size());
      groups_.push_back({parent, node, {}, {}, 0, 0});
      if (parent >= 0) {
        groups_[static_cast<std::size_t>(parent)].inner.push_back(group);
      }
    }
    if (cluster_->is_server(node)) {
      const ServerId server = cluster_->server_of(node);
      groups_[static_cast<std::size_t>(group)].servers.push_back(server);
      group_of_[server] = group;
      position_[server] = position++;
    }
    for (std::size_t c = children[node].size(); c-- > 0;) {
      stack.emplace_back(children[node][c], group);
    }
  }
}

void TopologyFill::build_rack_groups() {
  groups_.push_back({});
  std::vector<int> of_rack(cluster_->num_racks() + 1, -1);  // the last: servers without a rack
  std::vector<ServerId> servers;
  for (std::size_t s = 0; s < cluster_->num_servers(); ++s) {
    servers.push_back(ServerId::from_index(s));
  }
  const auto rack_index = [&](ServerId server) {
    const RackId rack = cluster_->server(server).rack;
    return rack.valid() ? rack.index() : cluster_->num_racks();
  };
  std::ranges::stable_sort(servers, {}, rack_index);
  int position = 0;
  for (const ServerId server : servers) {
    int& group = of_rack[rack_index(server)];
    if (group < 0) {
      group = static_cast<int>(groups_.size());
      groups_.push_back({0, NodeId(), {}, {}, 0, 0});
      groups_[0].inner.push_back(group);
    }
    groups_[static_cast<std::size_t>(group)].servers.push_back(server);
    group_of_[server] = group;
    position_[server] = position++;
  }
}

double TopologyFill::accelerators(ServerId server, const FreeCapacity& free) const {
  return free.left(server, accelerator_) + kFitTolerance * cluster_->server(server).capacity[accelerator_];
}

void TopologyFill::update(ServerId server, const FreeCapacity& free) {
  const double amount = accelerators(server, free);
  const auto g = static_cast<std::size_t>(group_of_[server]);
  Group& group = groups_[g];
  if (group.height == 0) {
    low_by_free_.erase({group.free, static_cast<int>(g)});
  }
  by_free_.erase({key_[server], server});
  group.free += amount - key_[server];
  key_[server] = amount;
  by_free_.emplace(amount, server);
  if (group.height == 0) {
    low_by_free_.emplace(group.free, static_cast<int>(g));
  }
}

bool TopologyFill::carries(const Job& job, LinkId link, const FreeCapacity& free) const {
  const double slack = kFitTolerance * cluster_->link(link).bandwidth.bytes_per_second;
  return free.left(link) + slack >= job.edge_bandwidth.bytes_per_second;
}

bool TopologyFill::joins(const Job& job, ServerId server, const FreeCapacity& free) const {
  if (!job.edge_bandwidth.limited() || cluster_->num_links() == 0) {
    return true;
  }
  const NodeId node = model::Cluster::node(server);
  const auto carries_one = [&](LinkId link) { return carries(job, link, free); };
  return std::ranges::any_of(cluster_->out_links(node), carries_one) && std::ranges::any_of(in_links_[node], carries_one);
}

bool TopologyFill::leads_out(const Job& job, int group, const FreeCapacity& free) const {
  const NodeId node = groups_[static_cast<std::size_t>(group)].node;
  if (!job.edge_bandwidth.limited() || !node.valid() || groups_[static_cast<std::size_t>(group)].parent < 0) {
    return true;
  }
  const model::Tree& tree = *cluster_->tree();
  return carries(job, tree.up[node], free) && carries(job, tree.down[node], free);
}

int TopologyFill::server_room(const Job& job, ServerId server, int limit, const FreeCapacity& free) const {
  const int room = free.workers_that_fit(server, job.demand, limit);
  return room > 0 && joins(job, server, free) ? room : 0;
}

std::vector<ServerShare> TopologyFill::one_server(const Job& job, int workers, const FreeCapacity& free) const {
  const double wanted = workers * job.demand[accelerator_];
  for (auto at = by_free_.lower_bound({wanted, ServerId()}); at != by_free_.end(); ++at) {
    if (free.workers_that_fit(at->second, job.demand, workers) == workers) {
      return {{at->second, workers}};
    }
  }
  return {};
}

// Takes the largest rooms whole and gives the rest to the smallest that holds it; calls take(item, workers).
template <typename Item, typename Take>
static void fill_largest_first(std::vector<std::pair<int, Item>> rooms, int workers, const Take& take) {
  std::ranges::stable_sort(rooms, std::ranges::greater{}, &std::pair<int, Item>::first);
  for (std::size_t i = 0; i < rooms.size() && workers > 0; ++i) {
    if (rooms[i].first >= workers) {
      std::size_t last = i;
      while (last + 1 < rooms.size() && rooms[last + 1].first >= workers) {
        ++last;
      }
      while (last > i && rooms[last - 1].first == rooms[last].first) {  // of equals the first
        --last;
      }
      take(rooms[last].second, workers);
      return;
    }
    take(rooms[i].second, rooms[i].first);
    workers -= rooms[i].first;
  }
}

std::vector<ServerShare> TopologyFill::one_low_group(const Job& job, int workers, const FreeCapacity& free) const {
  const double wanted = workers * job.demand[accelerator_];
  for (auto at = low_by_free_.lower_bound({wanted, -1}); at != low_by_free_.end(); ++at) {
    std::vector<std::pair<int, ServerId>> rooms;
    int room = 0;
    for (const ServerId server : groups_[static_cast<std::size_t>(at->second)].servers) {
      const int here = server_room(job, server, workers, free);
      room += here;
      if (here > 0) {
        rooms.emplace_back(here, server);
      }
    }
    if (room >= workers) {
      std::vector<ServerShare> shares;
      fill_largest_first(std::move(rooms), workers, [&](ServerId server, int count) { shares.push_back({server, count}); });
      return shares;
    }
  }
  return {};
}

void TopologyFill::fill(const Rooms& rooms, int group, int workers, std::vector<ServerShare>& shares) const {
  // Members of a group: its own servers (as -1 - id) and inner groups.
  std::vector<std::pair<int, int>> members;
  for (const ServerId server : groups_[static_cast<std::size_t>(group)].servers) {
    members.emplace_back(rooms.server[server], -1 - server.value());
  }
  for (const int inner : groups_[static_cast<std::size_t>(group)].inner) {
    members.emplace_back(std::min(rooms.exported[static_cast<std::size_t>(inner)], workers), inner);
  }
  std::erase_if(members, [](const auto& member) { return member.first == 0; });
  fill_largest_first(std::move(members), workers, [&](int member, int count) {
    if (member < 0) {
      shares.push_back({ServerId(-1 - member), count});
    } else {
      fill(rooms, member, count, shares);
    }
  });
}

std::vector<ServerShare> TopologyFill::one_group(const Job& job, int workers, const FreeCapacity& free) const {
  Rooms rooms;
  rooms.server.assign(cluster_->num_servers(), 0);
  rooms.group.assign(groups_.size(), 0);
  rooms.exported.assign(groups_.size(), 0);
  int best = -1;
  for (std::size_t g = groups_.size(); g-- > 0;) {
    const Group& group = groups_[g];
    std::int64_t room = 0;
    for (const ServerId server : group.servers) {
      rooms.server[server] = server_room(job, server, workers, free);
      room += rooms.server[server];
    }
    for (const int inner : group.inner) {
      room += rooms.exported[static_cast<std::size_t>(inner)];
    }
    rooms.group[g] = static_cast<int>(std::min<std::int64_t>(room, std::numeric_limits<int>::max()));
    rooms.exported[g] = leads_out(job, static_cast<int>(g), free) ? rooms.group[g] : 0;
    const auto rank = [&](std::size_t i) { return std::pair(groups_[i].height, rooms.group[i]); };
    if (room >= workers && (best < 0 || rank(g) <= rank(static_cast<std::size_t>(best)))) {
      best = static_cast<int>(g);
    }
  }
  std::vector<ServerShare> shares;
  if (best >= 0) {
    fill(rooms, best, workers, shares);
  }
  return shares;
}

std::vector<ServerShare> TopologyFill::few_racks(const Job& job, int workers, int rack_limit, const FreeCapacity& free) const {
  std::vector<std::vector<std::pair<int, ServerId>>> servers(cluster_->num_racks() + 1);
  std::vector<std::pair<int, std::size_t>> racks;
  for (const ServerId server : in_order(job, free)) {
    const RackId rack = cluster_->server(server).rack;
    servers[rack.valid() ? rack.index() : cluster_->num_racks()].emplace_back(server_room(job, server, workers, free), server);
  }
  for (std::size_t rack = 0; rack < servers.size(); ++rack) {
    std::int64_t room = 0;
    for (const auto& [here, server] : servers[rack]) {
      room += here;
    }
    racks.emplace_back(static_cast<int>(std::min<std::int64_t>(room, workers)), rack);
  }
  std::ranges::stable_sort(racks, std::ranges::greater{}, &std::pair<int, std::size_t>::first);
  racks.resize(std::min(racks.size(), static_cast<std::size_t>(rack_limit)));
  std::vector<ServerShare> shares;
  int placed = 0;
  fill_largest_first(racks, workers, [&](std::size_t rack, int count) {
    placed += count;
    fill_largest_first(servers[rack], count, [&](ServerId server, int here) { shares.push_back({server, here}); });
  });
  return placed == workers ? shares : std::vector<ServerShare>();
}

int TopologyFill::num_racks(const std::vector<ServerShare>& shares) const {
  std::vector<RackId> racks;
  for (const ServerShare& share : shares) {
    racks.push_back(cluster_->server(share.server).rack);
  }
  std::ranges::sort(racks);
  return static_cast<int>(std::ranges::unique(racks).begin() - racks.begin());
}

void TopologyFill::put_in_ring_order(std::vector<ServerShare>& shares) const {
  std::ranges::sort(shares, {}, [&](const ServerShare& share) { return position_[share.server]; });
}

std::vector<ServerShare> TopologyFill::choose(const Job& job, int workers, int rack_limit, const FreeCapacity& free) const {
  std::vector<ServerShare> shares = one_server(job, workers, free);
  if (shares.empty() && workers > 1) {
    shares = one_low_group(job, workers, free);
  }
  if (shares.empty() && workers > 1) {
    shares = one_group(job, workers, free);
  }
  if (rack_limit > 0 && num_racks(shares) > rack_limit) {
    shares = few_racks(job, workers, rack_limit, free);
  }
  put_in_ring_order(shares);
  return shares;
}

std::vector<ServerId> TopologyFill::in_order(const Job& job, const FreeCapacity& free) const {
  std::vector<ServerId> servers;
  for (std::size_t s = 0; s < cluster_->num_servers(); ++s) {
    const ServerId server = ServerId::from_index(s);
    if (server_room(job, server, 1, free) > 0) {
      servers.push_back(server);
    }
  }
  std::ranges::sort(servers, {}, [&](ServerId server) { return position_[server]; });
  return servers;
}

}  // namespace maypole::sched
