// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_walks.h"

#include "maypole/base/check.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

namespace maypole::sched::gadget {

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
}

WalkPrices WalkPrices::zero(const model::Cluster& cluster) {
  WalkPrices prices;
  prices.amount.assign(cluster.num_servers() * cluster.num_resources(), 0);
  prices.link.assign(cluster.num_links(), 0);
  prices.half.assign(cluster.num_links(), 0);
  return prices;
}

double WalkPrices::edge(const model::Cluster& cluster, model::LinkId id, double bandwidth) const {
  const bool takes_half = bandwidth > cluster.link(id).bandwidth.bytes_per_second / 2;
  return link[id.index()] * bandwidth + (takes_half ? half[id.index()] : 0);
}

bool prices_walks(const Topology& topology) {
  return !topology.exact() && topology.cluster().num_links() > 0 && topology.num_servers() <= kWalkServers;
}

void WalkPricer::run(const Candidate& candidate, const Space& space, const WalkPrices& prices) {
  const std::size_t servers = cluster_->num_servers();
  MAYPOLE_CHECK_LE(servers, static_cast<std::size_t>(kWalkServers));
  width_ = static_cast<std::size_t>(candidate.limit) + 1;
  least_.assign(width_, kInfinity);
  found_.assign(width_, {.cost = kInfinity, .ring = {}});
  fit_.assign(servers, 0);
  alpha_.assign(servers, 0);
  for (std::size_t s = 0; s < servers; ++s) {
    fit_[s] = space.fit(static_cast<int>(s), *candidate.job, candidate.limit);
    for (std::size_t r = 0; r < cluster_->num_resources(); ++r) {
      alpha_[s] += prices.amount[s * cluster_->num_resources() + r] * candidate.job->demand[model::ResourceId::from_index(r)];
    }
    for (int n = 1; n <= fit_[s]; ++n) {
      const auto at = static_cast<std::size_t>(n);
      const double cost = n * alpha_[s];
      least_[at] = std::min(least_[at], cost);
      if (cost < found_[at].cost) {
        found_[at].cost = cost;
        found_[at].ring = {.parts = {{static_cast<int>(s), n}}, .paths = {}, .workers = n};
      }
    }
  }
  if (candidate.limit < 2) {
    return;
  }
  find_paths(candidate, space, prices);
  for (std::size_t root = 0; root < servers; ++root) {
    if (fit_[root] > 0) {
      for (const bool come_back : {true, false}) {
        walk_from(root, come_back);
        close(root, come_back);
      }
    }
  }
}

// Dijkstra from every server that holds a worker; of equal costs the path of fewer links.
void WalkPricer::find_paths(const Candidate& candidate, const Space& space, const WalkPrices& prices) {
  const std::size_t servers = cluster_->num_servers();
  const std::size_t nodes = cluster_->num_nodes();
  std::vector<double> length(cluster_->num_links(), kInfinity);
  for (std::size_t e = 0; e < length.size(); ++e) {
    const auto link = model::LinkId::from_index(e);
    if (space.has_room(link, candidate.bandwidth)) {
      length[e] = candidate.bandwidth > 0 ? prices.edge(*cluster_, link, candidate.bandwidth) : 0;
    }
  }
  path_cost_.assign(servers * servers, cluster_->num_links() == 0 ? 0 : kInfinity);
  came_by_.assign(servers * nodes, -1);
  struct Reached {
    double cost = kInfinity;
    int links = 0;
    int node = 0;
    bool operator>(const Reached& other) const { return std::tie(cost, links, node) > std::tie(other.cost, other.links, other.node); }
  };
  for (std::size_t from = 0; from < servers; ++from) {
    if (fit_[from] == 0) {
      continue;
    }
    std::vector<Reached> best(nodes);
    std::priority_queue<Reached, std::vector<Reached>, std::greater<>> open;
    best[from] = {0, 0, static_cast<int>(from)};
    open.push(best[from]);
    while (!open.empty()) {
      const Reached here = open.top();
      open.pop();
      const model::NodeId node(here.node);
      if (here > best[node.index()]) {
        continue;
      }
      for (const model::LinkId link : cluster_->out_links(node)) {
        const model::NodeId to = cluster_->link(link).to;
        const Reached there{here.cost + length[link.index()], here.links + 1, to.value()};
        if (there.cost < kInfinity && std::tie(there.cost, there.links) < std::tie(best[to.index()].cost, best[to.index()].links)) {
          best[to.index()] = there;
          came_by_[from * nodes + to.index()] = link.value();
          open.push(there);
        }
      }
    }
    for (std::size_t to = 0; to < servers && cluster_->num_links() > 0; ++to) {
      path_cost_[from * servers + to] = best[to].cost;
    }
  }
}

void WalkPricer::walk_from(std::size_t root, bool come_back) {
  const std::size_t servers = alpha_.size();
  states_.assign(width_ * servers, {.cost = kInfinity});
  for (int n = 1; n <= fit_[root]; ++n) {
    state(static_cast<std::size_t>(n), root) = {n * alpha_[root], std::uint64_t{1} << root, -1, static_cast<std::int16_t>(n)};
  }
  for (std::size_t w = 1; w + 1 < width_; ++w) {
    for (std::size_t to = root + 1; to < servers; ++to) {
      if (fit_[to] == 0) {
        continue;
      }
      double arrive = kInfinity;
      std::size_t from = root;
      for (std::size_t u = root; u < servers; ++u) {
        const State& before = state(w, u);
        const bool allowed = u != to && (come_back || (before.visited >> to & 1U) == 0);
        if (allowed && before.cost + path(u, to) < arrive) {
          arrive = before.cost + path(u, to);
          from = u;
        }
      }
      if (arrive == kInfinity) {
        continue;
      }
      const std::uint64_t visited = state(w, from).visited | std::uint64_t{1} << to;
      const std::size_t most = std::min(static_cast<std::size_t>(fit_[to]), width_ - 1 - w);
      for (std::size_t n = 1; n <= most; ++n) {
        const double cost = arrive + static_cast<double>(n) * alpha_[to];
        if (State& there = state(w + n, to); cost < there.cost) {
          there = {cost, visited, static_cast<std::int16_t>(from), static_cast<std::int16_t>(n)};
        }
      }
    }
  }
}

void WalkPricer::close(std::size_t root, bool come_back) {
  for (std::size_t w = 2; w < width_; ++w) {
    double best = kInfinity;
    std::size_t last = root;
    for (std::size_t v = root + 1; v < alpha_.size(); ++v) {
      if (const double cost = state(w, v).cost + path(v, root); cost < best) {
        best = cost;
        last = v;
      }
    }
    if (come_back) {
      least_[w] = std::min(least_[w], best);
    } else if (best < found_[w].cost) {
      found_[w] = {best, trace(root, w, last)};
    }
  }
}

std::vector<model::LinkId> WalkPricer::links(std::size_t from, std::size_t to) const {
  std::vector<model::LinkId> path;
  if (cluster_->num_links() == 0) {
    return path;
  }
  const std::int32_t* const came_by = &came_by_[from * cluster_->num_nodes()];
  for (std::size_t here = to; here != from; here = cluster_->link(path.back()).from.index()) {
    path.emplace_back(came_by[here]);
  }
  std::ranges::reverse(path);
  return path;
}

Ring WalkPricer::trace(std::size_t root, std::size_t workers, std::size_t last) {
  Ring ring;
  ring.workers = static_cast<int>(workers);
  std::size_t server = last;
  while (true) {
    const State& here = state(workers, server);
    ring.parts.push_back({static_cast<int>(server), here.workers});
    if (here.from < 0) {
      break;
    }
    workers -= static_cast<std::size_t>(here.workers);
    server = static_cast<std::size_t>(here.from);
  }
  MAYPOLE_CHECK_EQ(server, root);
  std::ranges::reverse(ring.parts);
  for (std::size_t p = 0; p < ring.parts.size(); ++p) {
    const int next = ring.parts[(p + 1) % ring.parts.size()].server;
    ring.paths.push_back(links(static_cast<std::size_t>(ring.parts[p].server), static_cast<std::size_t>(next)));
  }
  return ring;
}

}  // namespace maypole::sched::gadget
