// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_space.h"

#include "maypole/sched/free_capacity.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace maypole::sched::gadget {

namespace {
constexpr std::size_t kBuckets = 129;  // servers with more than 128 units free share the last
constexpr int kLookedAt = 8;           // servers of each bucket that tightest_server tries
}  // namespace

int num_racks(const Topology& topology, const Ring& ring) {
  std::vector<int> racks;
  for (const Part& part : ring.parts) {
    racks.push_back(topology.rack_of(part.server));
  }
  std::ranges::sort(racks);
  return static_cast<int>(std::ranges::unique(racks).begin() - racks.begin());
}

Ring ring_of(const model::Embedding& embedding) {
  Ring ring;
  ring.workers = embedding.workers();
  for (std::size_t k = 0; k < embedding.ring.size(); ++k) {
    const int server = embedding.ring[k].value();
    if (ring.parts.empty() || ring.parts.back().server != server) {
      ring.parts.push_back({server, 0});
      if (k > 0) {
        ring.paths.push_back(embedding.edges[k - 1]);
      }
    }
    ++ring.parts.back().workers;
  }
  if (ring.parts.size() > 1) {
    ring.paths.push_back(embedding.edges.back());
  }
  return ring;
}

model::Embedding embedding_of(const Ring& ring, const model::Job& job) {
  model::Embedding embedding;
  embedding.bandwidth = job.edge_bandwidth;
  for (std::size_t p = 0; p < ring.parts.size(); ++p) {
    for (int k = 0; k < ring.parts[p].workers; ++k) {
      embedding.ring.emplace_back(ring.parts[p].server);
      embedding.edges.emplace_back();
    }
    if (ring.parts.size() > 1) {
      embedding.edges.back() = ring.paths[p];
    }
  }
  if (embedding.ring.size() == 1) {
    embedding.edges.clear();
  }
  return embedding;
}

Space::Space(const Topology& topology, const std::vector<Candidate>& candidates)
    : topology_(&topology),
      num_resources_(topology.cluster().num_resources()),
      primary_(topology.cluster().accelerator()),
      routes_(topology.cluster()) {
  double unit = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) {
    const double demand = candidate.job->demand[primary_];
    unit = demand > 0 ? std::min(unit, demand) : unit;
  }
  unit_ = std::isfinite(unit) ? unit : 1;
  clear();
}

void Space::clear() {
  const model::Cluster& cluster = topology_->cluster();
  free_.clear();
  slack_.clear();
  link_.clear();
  buckets_.assign(kBuckets, {});
  rack_free_.assign(static_cast<std::size_t>(topology_->num_racks()), 0);
  for (const model::Server& server : cluster.parts().servers) {
    for (const double amount : server.capacity) {
      free_.push_back(amount);
      slack_.push_back(kFitTolerance * amount);
    }
  }
  for (int s = 0; s < topology_->num_servers(); ++s) {
    std::set<int>& bucket = buckets_[bucket_of(s)];
    bucket.insert(bucket.end(), s);
    rack_free_[static_cast<std::size_t>(topology_->rack_of(s))] += free_[static_cast<std::size_t>(s) * num_resources_ + primary_.index()];
  }
  for (const model::Link& link : cluster.parts().links) {
    link_.push_back(link.bandwidth.limited() ? link.bandwidth.bytes_per_second : std::numeric_limits<double>::infinity());
  }
}

std::size_t Space::bucket_of(int server) const {
  const double free = free_[static_cast<std::size_t>(server) * num_resources_ + primary_.index()];
  return std::min(kBuckets - 1, static_cast<std::size_t>(std::max(0.0, free / unit_ * (1 + kFitTolerance) + kFitTolerance)));
}

int Space::fit(int server, const model::Job& job, int limit) const {
  const std::size_t first = static_cast<std::size_t>(server) * num_resources_;
  double fit = limit;
  for (std::size_t r = 0; r < num_resources_; ++r) {
    const double demand = job.demand[model::ResourceId::from_index(r)];
    if (demand > 0) {
      fit = std::min(fit, (free_[first + r] + slack_[first + r]) / demand);
    }
  }
  return std::max(0, static_cast<int>(fit));
}

bool Space::has_room(model::LinkId link, double bandwidth) const {
  const base::Bandwidth whole = topology_->cluster().link(link).bandwidth;
  return bandwidth <= link_[link.index()] + kFitTolerance * whole.bytes_per_second;
}

bool Space::open(int node, double bandwidth) const {
  if (bandwidth == 0) {
    return true;
  }
  const Topology::Node& here = topology_->node(node);
  const auto room = [&](model::LinkId link) { return has_room(link, bandwidth); };
  return (here.out.empty() || std::ranges::any_of(here.out, room)) && (here.in.empty() || std::ranges::any_of(here.in, room));
}

bool Space::holds(const Ring& ring, const Candidate& candidate) const {
  std::vector<Part> parts = ring.parts;
  std::ranges::sort(parts, {}, &Part::server);
  for (std::size_t first = 0; first < parts.size();) {
    int workers = 0;
    std::size_t last = first;
    for (; last < parts.size() && parts[last].server == parts[first].server; ++last) {
      workers += parts[last].workers;
    }
    if (parts[first].server >= topology_->num_servers() || fit(parts[first].server, *candidate.job, workers) < workers) {
      return false;
    }
    first = last;
  }
  if (candidate.bandwidth == 0) {
    return true;
  }
  std::vector<model::LinkId> links;
  for (const std::vector<model::LinkId>& path : ring.paths) {
    links.insert(links.end(), path.begin(), path.end());
  }
  std::ranges::sort(links);
  for (std::size_t first = 0; first < links.size();) {
    const std::size_t last = static_cast<std::size_t>(std::ranges::upper_bound(links, links[first]) - links.begin());
    if (!has_room(links[first], static_cast<double>(last - first) * candidate.bandwidth)) {
      return false;
    }
    first = last;
  }
  return true;
}

void Space::add(const Ring& ring, const Candidate& candidate, double sign) {
  for (const Part& part : ring.parts) {
    const std::size_t before = bucket_of(part.server);
    const std::size_t first = static_cast<std::size_t>(part.server) * num_resources_;
    for (std::size_t r = 0; r < num_resources_; ++r) {
      free_[first + r] += sign * part.workers * candidate.job->demand[model::ResourceId::from_index(r)];
    }
    rack_free_[static_cast<std::size_t>(topology_->rack_of(part.server))] += sign * part.workers * candidate.job->demand[primary_];
    const std::size_t after = bucket_of(part.server);
    if (after != before) {
      buckets_[before].erase(part.server);
      buckets_[after].insert(part.server);
    }
  }
  if (candidate.bandwidth > 0) {
    for (const std::vector<model::LinkId>& path : ring.paths) {
      for (const model::LinkId link : path) {
        link_[link.index()] += sign * candidate.bandwidth;
      }
    }
  }
}

int Space::tightest_server(const model::Job& job, int workers) const {
  const double need = workers * job.demand[primary_] / unit_;
  for (auto b = std::min(kBuckets - 1, static_cast<std::size_t>(need)); b < kBuckets; ++b) {
    int looked_at = 0;
    for (const int server : buckets_[b]) {
      if (fit(server, job, workers) >= workers) {
        return server;
      }
      if (++looked_at == kLookedAt) {
        break;
      }
    }
  }
  return -1;
}

bool Space::route(Ring& ring, const Candidate& candidate) {
  ring.paths.clear();
  if (ring.parts.size() <= 1) {
    return true;
  }
  bool found = true;
  for (std::size_t p = 0; p < ring.parts.size() && found; ++p) {
    const int from = ring.parts[p].server;
    const int to = ring.parts[(p + 1) % ring.parts.size()].server;
    if (topology_->exact() || candidate.bandwidth == 0 || topology_->cluster().tree()) {
      ring.paths.push_back(routes_.path(model::ServerId(from), model::ServerId(to)));
    } else {
      ring.paths.push_back(free_path(from, to, candidate.bandwidth));
      found = !ring.paths.back().empty();
    }
    if (found && candidate.bandwidth > 0) {  // the ring's own edges may share links
      for (const model::LinkId link : ring.paths.back()) {
        found = found && has_room(link, candidate.bandwidth);
        link_[link.index()] -= candidate.bandwidth;
      }
    }
  }
  if (candidate.bandwidth > 0) {
    for (const std::vector<model::LinkId>& path : ring.paths) {
      for (const model::LinkId link : path) {
        link_[link.index()] += candidate.bandwidth;
      }
    }
  }
  return found;
}

// Breadth first over links with room: fewest links, ties by the smaller id at the first difference seen from `from`.
std::vector<model::LinkId> Space::free_path(int from, int to, double bandwidth) {
  const model::Cluster& cluster = topology_->cluster();
  seen_.assign(cluster.num_nodes(), -1);
  std::vector<model::NodeId> order = {model::NodeId(from)};
  const model::NodeId goal(to);
  for (std::size_t i = 0; i < order.size() && seen_[goal.index()] < 0; ++i) {
    for (const model::LinkId link : cluster.out_links(order[i])) {
      const model::NodeId next = cluster.link(link).to;
      if (next.value() != from && seen_[next.index()] < 0 && has_room(link, bandwidth)) {
        seen_[next.index()] = link.value();
        order.push_back(next);
      }
    }
  }
  std::vector<model::LinkId> path;
  if (seen_[goal.index()] < 0) {
    return path;
  }
  for (model::NodeId here = goal; here.value() != from; here = cluster.link(path.back()).from) {
    path.emplace_back(seen_[here.index()]);
  }
  std::ranges::reverse(path);
  return path;
}

}  // namespace maypole::sched::gadget
