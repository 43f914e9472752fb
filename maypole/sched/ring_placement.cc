// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/ring_placement.h"

#include <algorithm>
#include <map>

namespace maypole::sched {

using model::Embedding;
using model::Job;
using model::LinkId;
using model::RackId;
using model::ServerId;

namespace {

// Where the greedy's first server leads nowhere it starts again in another rack, that often at most.
constexpr int kMaxStarts = 16;

int racks_of(const model::Cluster& cluster, const std::vector<ServerId>& ring) {
  std::vector<RackId> racks;
  for (const ServerId server : ring) {
    racks.push_back(cluster.server(server).rack);
  }
  std::ranges::sort(racks);
  return static_cast<int>(std::ranges::unique(racks).begin() - racks.begin());
}

std::vector<ServerId> ring_of(const std::vector<ServerShare>& shares) {
  std::vector<ServerId> ring;
  for (const ServerShare& share : shares) {
    ring.insert(ring.end(), static_cast<std::size_t>(share.workers), share.server);
  }
  return ring;
}

}  // namespace

int rack_limit(const ActiveJob& job, const model::Cluster& cluster) {
  const bool holds = job.job->max_racks > 0 && (job.job->max_racks_s <= 0 || job.waiting_s < job.job->max_racks_s);
  if (!holds) {
    return 0;
  }
  return job.running() ? std::max(job.job->max_racks, racks_of(cluster, job.current->ring)) : job.job->max_racks;
}

/// A ring under construction. It holds the loads of its own edges, so that links that it uses twice are seen as such.
class RingPlacer::Walk {
 public:
  Walk(RingPlacer& placer, const Job& job, int workers)
      : placer_(placer), job_(job), wanted_(workers), reserves_(job.edge_bandwidth.limited() && placer.cluster_->num_links() > 0) {}

  /// Adds the server with as many workers as fit, unless that makes a cycle impossible.
  void visit(ServerId server) {
    const int room = placer_.free_.workers_that_fit(server, job_.demand, wanted_ - workers_);
    if (room > 0 && attains(server, room)) {
      shares_.push_back({server, room});
      workers_ += room;
    }
  }
  [[nodiscard]] bool complete() const { return workers_ == wanted_; }
  [[nodiscard]] const std::vector<ServerShare>& shares() const { return shares_; }

 private:
  // Whether the ring can go on to the server, and from there back to its first; keeps the load of the former.
  bool attains(ServerId server, int workers_here) {
    if (!reserves_) {
      return true;
    }
    if (shares_.empty()) {
      return workers_here == wanted_ || placer_.topology().joins(job_, server, placer_.free_);
    }
    const std::vector<LinkId> forth = placer_.routes_.path(shares_.back().server, server);
    const std::vector<LinkId> back = placer_.routes_.path(server, shares_.front().server);
    add(forth, 1);
    add(back, 1);
    const bool attained = std::ranges::all_of(forth, [&](LinkId link) { return carries(link); }) &&
                          std::ranges::all_of(back, [&](LinkId link) { return carries(link); });
    add(back, -1);
    if (!attained) {
      add(forth, -1);
    }
    return attained;
  }
  void add(const std::vector<LinkId>& path, int edges) {
    for (const LinkId link : path) {
      edges_[link] += edges;
    }
  }
  [[nodiscard]] bool carries(LinkId link) const {
    const double slack = kFitTolerance * placer_.cluster_->link(link).bandwidth.bytes_per_second;
    return edges_.at(link) * job_.edge_bandwidth.bytes_per_second <= placer_.free_.left(link) + slack;
  }

  RingPlacer& placer_;
  const Job& job_;
  int wanted_;
  bool reserves_;
  int workers_ = 0;
  std::vector<ServerShare> shares_;
  std::map<LinkId, int> edges_;  // of this ring, by link
};

RingPlacer::RingPlacer(const model::Cluster& cluster, RingStyle style)
    : cluster_(&cluster), style_(style), free_(cluster), rooms_(cluster, free_), routes_(cluster) {}

TopologyFill& RingPlacer::topology() {
  if (!topology_) {
    topology_.emplace(*cluster_, free_);
  }
  return *topology_;
}

std::optional<Embedding> RingPlacer::place(const ActiveJob& job, int workers) {
  const int racks = rack_limit(job, *cluster_);
  return style_ == RingStyle::kTopology || racks > 0 ? place_by_topology(*job.job, workers, racks) : place_greedy(*job.job, workers);
}

std::optional<Embedding> RingPlacer::place_greedy(const Job& job, int workers) {
  std::size_t from = 0;
  for (int start = 0; start < kMaxStarts; ++start) {
    Walk walk(*this, job, workers);
    for (ServerId server = rooms_.next(from, job.demand); server.valid(); server = rooms_.next(server.index() + 1, job.demand)) {
      walk.visit(server);
      if (walk.complete()) {
        return embed(job, ring_of(walk.shares()));
      }
    }
    if (!job.edge_bandwidth.limited() || walk.shares().empty()) {
      break;  // it was for want of servers, not of links
    }
    const ServerId first = walk.shares().front().server;
    const RackId rack = cluster_->server(first).rack;
    from = first.index() + 1;
    while (rack.valid() && from < cluster_->num_servers() && cluster_->server(ServerId::from_index(from)).rack == rack) {
      ++from;
    }
  }
  // A server that holds the whole ring needs no link at all.
  model::Amounts all = job.demand;
  for (double& amount : all) {
    amount *= workers;
  }
  const ServerId server = rooms_.next(0, all);
  if (server.valid() && free_.workers_that_fit(server, job.demand, workers) == workers) {
    return embed(job, std::vector<ServerId>(static_cast<std::size_t>(workers), server));
  }
  return std::nullopt;
}

std::optional<Embedding> RingPlacer::place_by_topology(const Job& job, int workers, int racks) {
  const std::vector<ServerShare> shares = topology().choose(job, workers, racks, free_);
  if (shares.empty()) {
    return std::nullopt;
  }
  Embedding embedding = embed(job, ring_of(shares));
  if (free_.fits(job, embedding)) {
    return embedding;
  }
  // Only where the cluster is no tree: a path through it is full. Walk over the servers one by one instead.
  const std::vector<ServerId> servers = topology().in_order(job, free_);
  for (std::size_t first = 0; first < servers.size() && first < kMaxStarts; ++first) {
    Walk walk(*this, job, workers);
    std::vector<RackId> used;
    for (std::size_t i = 0; i < servers.size() && !walk.complete(); ++i) {
      const ServerId server = servers[(first + i) % servers.size()];
      const RackId rack = cluster_->server(server).rack;
      const bool is_new = std::ranges::find(used, rack) == used.end();
      if (is_new && racks > 0 && static_cast<int>(used.size()) == racks) {
        continue;
      }
      const std::size_t before = walk.shares().size();
      walk.visit(server);
      if (is_new && walk.shares().size() > before) {
        used.push_back(rack);
      }
    }
    if (walk.complete()) {
      return embed(job, ring_of(walk.shares()));
    }
  }
  return std::nullopt;
}

Embedding RingPlacer::embed(const Job& job, std::vector<ServerId> ring) {
  Embedding embedding;
  embedding.ring = std::move(ring);
  embedding.bandwidth = job.edge_bandwidth;
  const std::size_t workers = embedding.ring.size();
  if (workers > 1) {
    embedding.edges.resize(workers);
    for (std::size_t k = 0; k < workers; ++k) {
      const ServerId next = embedding.ring[(k + 1) % workers];
      if (next != embedding.ring[k]) {
        embedding.edges[k] = routes_.path(embedding.ring[k], next);
      }
    }
  }
  return embedding;
}

void RingPlacer::take(const Job& job, const Embedding& embedding) {
  free_.take(job, embedding);
  update(embedding);
}

void RingPlacer::give_back(const Job& job, const Embedding& embedding) {
  free_.give_back(job, embedding);
  update(embedding);
}

void RingPlacer::update(const Embedding& embedding) {
  for (std::size_t k = 0; k < embedding.ring.size(); ++k) {
    const ServerId server = embedding.ring[k];
    if (k == 0 || server != embedding.ring[k - 1]) {
      rooms_.update(server, free_);
      if (topology_) {
        topology_->update(server, free_);
      }
    }
  }
}

}  // namespace maypole::sched
