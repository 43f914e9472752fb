// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/exact_columns.h"

#include "maypole/model/routes.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

namespace maypole::sched {

namespace {

using model::Cluster;
using model::LinkId;
using model::NodeId;
using model::ServerId;

using Loads = std::vector<std::int16_t>;  // [edge]

// An open or closed walk over servers, visited once each, with what it loads.
struct Walk {
  Loads loads;
  std::vector<int> servers;
  std::vector<std::vector<LinkId>> paths;
};

bool no_more(const Loads& a, const Loads& b) {
  for (std::size_t e = 0; e < a.size(); ++e) {
    if (a[e] > b[e]) {
      return false;
    }
  }
  return true;
}

// Keeps the set undominated; returns whether the walk went in.
bool insert(std::vector<Walk>& set, Walk walk) {
  if (std::ranges::any_of(set, [&](const Walk& other) { return no_more(other.loads, walk.loads); })) {
    return false;
  }
  std::erase_if(set, [&](const Walk& other) { return no_more(walk.loads, other.loads); });
  set.push_back(std::move(walk));
  return true;
}

class Lister {
 public:
  Lister(const ExactProblem& problem, std::size_t limit) : problem_(problem), cluster_(problem.cluster()), budget_(limit) {}

  ExactColumnList run() {
    ExactColumnList list;
    list.of_job.resize(problem_.jobs.size());
    int most = 0;
    for (const ExactJob& job : problem_.jobs) {
      most = std::max(most, job.max_workers);
    }
    find_paths();
    const auto n = static_cast<int>(problem_.num_servers());
    for (int s = 0; s < n; ++s) {
      add_columns({.loads = Loads(problem_.edges.size(), 0), .servers = {s}, .paths = {{}}}, list);
    }
    for (int start = 0; start < n && !spent_; ++start) {
      find_rings(start, most, list);
    }
    list.complete = !spent_;
    return list;
  }

  std::vector<ExactColumn> current(int j) {
    const ExactJob& job = problem_.jobs[static_cast<std::size_t>(j)];
    const model::Embedding& now = *job.active->current;
    find_paths();
    std::vector<Walk> walks = {{.loads = Loads(problem_.edges.size(), 0), .servers = {}, .paths = {}}};
    for (std::size_t k = 0; k < now.ring.size(); ++k) {
      const ServerId from = now.ring[k];
      const ServerId to = now.ring[(k + 1) % now.ring.size()];
      std::vector<Walk> longer;
      for (const Walk& walk : walks) {
        if (from == to) {
          longer.push_back(walk);
          longer.back().paths.emplace_back();
          continue;
        }
        for (const Walk& path : paths_[from.index()][to.index()]) {
          if (spend()) {
            insert(longer, join(walk, path));
          }
        }
      }
      walks = std::move(longer);
    }
    std::vector<ExactColumn> columns;
    for (Walk& walk : walks) {
      halve_in_a_tree(walk.loads);
      if (!links_hold(job, walk.loads)) {
        continue;
      }
      ExactColumn column{.job = j, .counts = {}, .crossings = walk.loads, .variant = 1, .embedding = {}};
      column.counts.assign(problem_.num_servers(), 0);
      for (const ServerId server : now.ring) {
        ++column.counts[server.index()];
      }
      column.embedding = {now.ring, walk.paths, job.active->job->edge_bandwidth};
      if (now.ring.size() == 1) {
        column.embedding.edges.clear();
      }
      const double progress = slot_progress(*job.active, model::shape_of(column.embedding), false, problem_.slot->slot_s);
      column.gain = utility_gain(*job.active, progress, problem_.slot->start_s());
      columns.push_back(std::move(column));
    }
    return columns;
  }

 private:
  // In a tree both directions of an edge were counted into one.
  void halve_in_a_tree(Loads& loads) const {
    if (cluster_.tree()) {
      for (std::int16_t& load : loads) {
        load = static_cast<std::int16_t>(load / 2);
      }
    }
  }

  [[nodiscard]] bool links_hold(const ExactJob& job, const Loads& loads) const {
    for (std::size_t e = 0; e < loads.size(); ++e) {
      if (job.bandwidth * loads[e] > problem_.edges[e].capacity) {
        return false;
      }
    }
    return true;
  }

  bool spend() {
    spent_ = spent_ || budget_ == 0;
    budget_ -= spent_ ? 0 : 1;
    return !spent_;
  }

  void find_paths() {
    if (problem_.cluster().num_links() == 0 || problem_.cluster().tree()) {
      find_only_paths();
      return;
    }
    const std::size_t n = problem_.num_servers();
    paths_.assign(n, std::vector<std::vector<Walk>>(n));
    for (std::size_t from = 0; from < n; ++from) {
      std::vector<bool> visited(cluster_.num_nodes(), false);
      Walk walk{.loads = Loads(problem_.edges.size(), 0), .servers = {}, .paths = {{}}};
      extend(NodeId::from_index(from), visited, walk, from);
    }
  }

  void find_only_paths() {
    const std::size_t n = problem_.num_servers();
    model::Routes routes(cluster_);
    paths_.assign(n, std::vector<std::vector<Walk>>(n));
    for (std::size_t from = 0; from < n; ++from) {
      for (std::size_t to = 0; to < n; ++to) {
        const std::vector<LinkId> path = routes.path(ServerId::from_index(from), ServerId::from_index(to));
        Walk walk{.loads = Loads(problem_.edges.size(), 0), .servers = {}, .paths = {path}};
        for (const LinkId link : path) {
          if (const int edge = problem_.edge_of_link[link.index()]; edge >= 0) {
            ++walk.loads[static_cast<std::size_t>(edge)];
          }
        }
        paths_[from][to].push_back(std::move(walk));
      }
    }
  }

  void extend(NodeId node, std::vector<bool>& visited, Walk& walk, std::size_t from) {
    visited[node.index()] = true;
    if (cluster_.is_server(node) && node.index() != from && spend()) {
      insert(paths_[from][node.index()], walk);
    }
    for (const LinkId link : cluster_.out_links(node)) {
      const NodeId next = cluster_.link(link).to;
      if (visited[next.index()] || spent_) {
        continue;
      }
      const int edge = problem_.edge_of_link[link.index()];
      walk.paths[0].push_back(link);
      if (edge >= 0) {
        ++walk.loads[static_cast<std::size_t>(edge)];
      }
      extend(next, visited, walk, from);
      walk.paths[0].pop_back();
      if (edge >= 0) {
        --walk.loads[static_cast<std::size_t>(edge)];
      }
    }
    visited[node.index()] = false;
  }

  [[nodiscard]] static Walk join(const Walk& walk, const Walk& path) {
    Walk joined = walk;
    for (std::size_t e = 0; e < joined.loads.size(); ++e) {
      joined.loads[e] = static_cast<std::int16_t>(joined.loads[e] + path.loads[e]);
    }
    joined.paths.push_back(path.paths[0]);
    return joined;
  }

  // Rings whose smallest server is `start`.
  void find_rings(int start, int most, ExactColumnList& list) {
    const auto n = static_cast<int>(problem_.num_servers());
    std::map<std::pair<std::uint32_t, int>, std::vector<Walk>> open;  // (visited, last)
    open[{1U << start, start}].push_back({.loads = Loads(problem_.edges.size(), 0), .servers = {start}, .paths = {}});
    // By numbers of servers visited, so that every set is complete before it is extended.
    for (int size = 1; size <= std::min(n - start, most) && !spent_; ++size) {
      std::map<std::pair<std::uint32_t, int>, std::vector<Walk>> longer;
      std::map<std::uint32_t, std::vector<Walk>> rings;
      for (const auto& [key, walks] : open) {
        const auto& [visited, last] = key;
        for (const Walk& walk : walks) {
          for (int next = start + 1; next < n; ++next) {
            if ((visited >> next & 1U) != 0) {
              continue;
            }
            for (const Walk& path : paths_[static_cast<std::size_t>(last)][static_cast<std::size_t>(next)]) {
              Walk joined = join(walk, path);
              joined.servers.push_back(next);
              if (spend()) {
                insert(longer[{visited | 1U << next, next}], std::move(joined));
              }
            }
          }
          if (size > 1) {
            for (const Walk& path : paths_[static_cast<std::size_t>(last)][static_cast<std::size_t>(start)]) {
              if (spend()) {
                insert(rings[visited], join(walk, path));
              }
            }
          }
        }
      }
      for (const auto& [visited, closed] : rings) {
        for (const Walk& ring : closed) {
          add_columns(ring, list);
        }
      }
      open = std::move(longer);
    }
  }

  // Every job's columns on that ring of servers.
  void add_columns(Walk ring, ExactColumnList& list) {
    halve_in_a_tree(ring.loads);
    std::set<model::RackId> racks;
    for (const int s : ring.servers) {
      racks.insert(cluster_.server(ServerId(s)).rack);
    }
    for (std::size_t j = 0; j < problem_.jobs.size(); ++j) {
      const ExactJob& job = problem_.jobs[j];
      if ((job.max_racks <= 0 || static_cast<int>(racks.size()) <= job.max_racks) && links_hold(job, ring.loads)) {
        std::vector<int> counts;
        add_counts(ring, static_cast<int>(j), counts, list.of_job[j]);
      }
    }
  }

  void add_counts(const Walk& ring, int j, std::vector<int>& counts, std::vector<ExactColumn>& columns) {
    const ExactJob& job = problem_.jobs[static_cast<std::size_t>(j)];
    int so_far = 0;
    for (const int count : counts) {
      so_far += count;
    }
    if (counts.size() < ring.servers.size()) {
      const int most = std::min(job.fits[static_cast<std::size_t>(ring.servers[counts.size()])], job.max_workers - so_far);
      for (int count = 1; count <= most; ++count) {
        counts.push_back(count);
        add_counts(ring, j, counts, columns);
        counts.pop_back();
      }
      return;
    }
    if (so_far < job.min_workers || !spend()) {
      return;
    }
    ExactColumn column{.job = j, .counts = {}, .crossings = ring.loads, .embedding = {}};
    column.counts.assign(problem_.num_servers(), 0);
    model::Embedding& embedding = column.embedding;
    embedding.bandwidth = job.active->job->edge_bandwidth;
    for (std::size_t k = 0; k < counts.size(); ++k) {
      column.counts[static_cast<std::size_t>(ring.servers[k])] = static_cast<std::int16_t>(counts[k]);
      embedding.ring.insert(embedding.ring.end(), static_cast<std::size_t>(counts[k]), ServerId(ring.servers[k]));
      embedding.edges.resize(embedding.ring.size());
      embedding.edges.back() = ring.paths[k];
    }
    if (so_far == 1) {
      embedding.edges.clear();
    }
    column.gain = job.gain_of(so_far, static_cast<int>(counts.size()));
    columns.push_back(std::move(column));
  }

  const ExactProblem& problem_;
  const Cluster& cluster_;
  std::size_t budget_;
  bool spent_ = false;
  std::vector<std::vector<std::vector<Walk>>> paths_;  // [from server][to server]: undominated simple paths
};

}  // namespace

ExactColumnList list_columns(const ExactProblem& problem, std::size_t limit) { return Lister(problem, limit).run(); }

std::vector<ExactColumn> current_columns(const ExactProblem& problem, int job, std::size_t limit) {
  const ExactJob& entry = problem.jobs[static_cast<std::size_t>(job)];
  const ActiveJob& active = *entry.active;
  if (!active.running() || active.job->progress.resize_s <= 0) {
    return {};
  }
  const std::vector<ServerId>& ring = active.current->ring;
  const auto workers = static_cast<int>(ring.size());
  std::map<ServerId, int> counts;
  std::set<model::RackId> racks;
  int runs = 0;  // of equal neighbours around the ring
  for (std::size_t k = 0; k < ring.size(); ++k) {
    ++counts[ring[k]];
    racks.insert(problem.cluster().server(ring[k]).rack);
    runs += ring[k] != ring[(k + 1) % ring.size()] ? 1 : 0;
  }
  const bool fits = std::ranges::all_of(counts, [&](const auto& server) { return server.second <= entry.fits[server.first.index()]; });
  const bool each_once = counts.size() == 1 || runs == static_cast<int>(counts.size());
  if (!fits || !each_once || workers < entry.min_workers || workers > entry.max_workers ||
      (entry.max_racks > 0 && static_cast<int>(racks.size()) > entry.max_racks)) {
    return {};
  }
  return Lister(problem, limit).current(job);
}

}  // namespace maypole::sched
