// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/exact_problem.h"

#include "maypole/model/routes.h"
#include "maypole/sched/free_capacity.h"
#include "maypole/sched/ring_placement.h"

#include <algorithm>

namespace maypole::sched {

namespace {

using model::Cluster;
using model::LinkId;
using model::NodeId;
using model::ServerId;

double capacity_of(const Cluster& cluster, LinkId link) {
  const model::Link& found = cluster.link(link);
  return found.bandwidth.limited() ? found.bandwidth.bytes_per_second : kForbidden;
}

// The cluster's tree with children before parents.
void add_tree(const Cluster& cluster, ExactProblem& problem) {
  const model::Tree& tree = *cluster.tree();
  std::vector<NodeId> nodes;
  for (std::size_t i = 0; i < cluster.num_nodes(); ++i) {
    nodes.push_back(NodeId::from_index(i));
  }
  std::ranges::stable_sort(nodes, std::ranges::greater{}, [&](NodeId node) { return tree.depth[node]; });
  base::IdVector<NodeId, int> place(cluster.num_nodes(), -1);
  for (const NodeId node : nodes) {
    place[node] = static_cast<int>(problem.tree.size());
    problem.tree.push_back({.server = cluster.is_server(node) ? node.value() : -1, .children = {}});
  }
  for (const NodeId node : nodes) {
    if (!tree.parent[node].valid()) {
      continue;
    }
    ExactTreeNode& entry = problem.tree[static_cast<std::size_t>(place[node])];
    entry.parent = place[tree.parent[node]];
    problem.tree[static_cast<std::size_t>(entry.parent)].children.push_back(place[node]);
    const double capacity = std::min(capacity_of(cluster, tree.up[node]), capacity_of(cluster, tree.down[node]));
    if (capacity < kForbidden) {
      entry.edge = static_cast<int>(problem.edges.size());
      problem.edges.push_back({capacity});
      problem.edge_of_link[tree.up[node].index()] = entry.edge;
      problem.edge_of_link[tree.down[node].index()] = entry.edge;
    }
  }
}

// No links are modelled: all servers hang on one root by free edges.
void add_star(const Cluster& cluster, ExactProblem& problem) {
  const auto root = static_cast<int>(cluster.num_servers());
  ExactTreeNode top;
  for (int s = 0; s < root; ++s) {
    problem.tree.push_back({.parent = root, .server = s, .children = {}});
    top.children.push_back(s);
  }
  problem.tree.push_back(top);
}

void number_depth_first(const ExactProblem& problem, int node, int& next, std::vector<int>& order) {
  const ExactTreeNode& entry = problem.tree[static_cast<std::size_t>(node)];
  if (entry.server >= 0) {
    order[static_cast<std::size_t>(entry.server)] = next++;
  }
  for (const int child : entry.children) {
    number_depth_first(problem, child, next, order);
  }
}

ExactJob make_job(const SlotProblem& slot, const ActiveJob& active) {
  const Cluster& cluster = *slot.cluster;
  const model::Job& job = *active.job;
  ExactJob made;
  made.active = &active;
  made.min_workers = job.min_workers;
  made.max_workers = worker_limit(active);
  made.demand.assign(cluster.num_resources(), 0);
  for (std::size_t r = 0; r < job.demand.size(); ++r) {
    made.demand[r] = job.demand[model::ResourceId::from_index(r)];
  }
  made.bandwidth = job.edge_bandwidth.limited() ? job.edge_bandwidth.bytes_per_second : 0;
  made.max_racks = rack_limit(active, cluster);
  made.by_servers = !job.progress.depends_on_workers_only();
  const FreeCapacity empty(cluster);
  for (std::size_t s = 0; s < cluster.num_servers(); ++s) {
    made.fits.push_back(empty.workers_that_fit(ServerId::from_index(s), job.demand, made.max_workers));
  }
  const int width = made.max_workers + 1;
  made.gain.assign(static_cast<std::size_t>(width) * static_cast<std::size_t>(width), 0);
  for (int workers = made.min_workers; workers <= made.max_workers; ++workers) {
    for (int servers = 1; servers <= workers; ++servers) {
      const double progress = slot_progress(active, {workers, servers, job.edge_bandwidth}, true, slot.slot_s);
      made.gain[static_cast<std::size_t>(workers * width + servers)] = utility_gain(active, progress, slot.start_s());
    }
  }
  return made;
}

}  // namespace

int ExactColumn::workers() const {
  int sum = 0;
  for (const std::int16_t count : counts) {
    sum += count;
  }
  return sum;
}

int ExactColumn::servers() const {
  return static_cast<int>(std::ranges::count_if(counts, [](std::int16_t count) { return count > 0; }));
}

ExactProblem make_exact_problem(const SlotProblem& slot) {
  ExactProblem problem;
  problem.slot = &slot;
  const Cluster& cluster = *slot.cluster;
  problem.edge_of_link.assign(cluster.num_links(), -1);
  if (cluster.num_links() == 0) {
    add_star(cluster, problem);
  } else if (cluster.tree()) {
    add_tree(cluster, problem);
  } else {
    for (std::size_t e = 0; e < cluster.num_links(); ++e) {
      const double capacity = capacity_of(cluster, LinkId::from_index(e));
      if (capacity < kForbidden) {
        problem.edge_of_link[e] = static_cast<int>(problem.edges.size());
        problem.edges.push_back({capacity});
      }
    }
  }
  if (!problem.tree.empty()) {
    problem.tree_order.assign(cluster.num_servers(), 0);
    int next = 0;
    number_depth_first(problem, static_cast<int>(problem.tree.size()) - 1, next, problem.tree_order);
  }
  for (const ActiveJob& active : slot.jobs) {
    problem.jobs.push_back(make_job(slot, active));
  }
  return problem;
}

std::vector<std::int16_t> tree_crossings(const ExactProblem& problem, const std::vector<std::int16_t>& counts) {
  std::vector<int> below(problem.tree.size(), 0);  // workers in the subtree
  int workers = 0;
  for (const std::int16_t count : counts) {
    workers += count;
  }
  std::vector<std::int16_t> crossings(problem.edges.size(), 0);
  for (std::size_t v = 0; v < problem.tree.size(); ++v) {
    const ExactTreeNode& node = problem.tree[v];
    below[v] += node.server >= 0 ? counts[static_cast<std::size_t>(node.server)] : 0;
    if (node.parent >= 0) {
      below[static_cast<std::size_t>(node.parent)] += below[v];
      if (node.edge >= 0 && below[v] > 0 && below[v] < workers) {
        crossings[static_cast<std::size_t>(node.edge)] = 1;
      }
    }
  }
  return crossings;
}

model::Embedding embedding_of(const ExactProblem& problem, const ExactColumn& column) {
  if (!column.embedding.ring.empty()) {
    return column.embedding;
  }
  std::vector<int> servers;
  for (std::size_t s = 0; s < column.counts.size(); ++s) {
    if (column.counts[s] > 0) {
      servers.push_back(static_cast<int>(s));
    }
  }
  std::ranges::sort(servers, {}, [&](int s) { return problem.tree_order[static_cast<std::size_t>(s)]; });
  model::Embedding embedding;
  embedding.bandwidth = problem.jobs[static_cast<std::size_t>(column.job)].active->job->edge_bandwidth;
  for (const int s : servers) {
    embedding.ring.insert(embedding.ring.end(), static_cast<std::size_t>(column.counts[static_cast<std::size_t>(s)]), ServerId(s));
  }
  if (embedding.ring.size() > 1) {
    model::Routes routes(problem.cluster());
    for (std::size_t k = 0; k < embedding.ring.size(); ++k) {
      embedding.edges.push_back(routes.path(embedding.ring[k], embedding.ring[(k + 1) % embedding.ring.size()]));
    }
  }
  return embedding;
}

}  // namespace maypole::sched
