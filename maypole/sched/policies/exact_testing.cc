// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/exact_testing.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/model/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

namespace maypole::sched {

namespace {

using model::Cluster;
using model::ClusterParts;
using model::LinkId;
using model::NodeId;
using model::RackId;
using model::ServerId;

constexpr double kGbit = 1e9 / 8;

int draw(base::Rng& rng, int low, int high) { return static_cast<int>(rng.uniform_int(low, high)); }

void join(ClusterParts& parts, std::size_t a, std::size_t b, double there, double back) {
  parts.links.push_back({fmt::format("{}>{}", a, b), NodeId::from_index(a), NodeId::from_index(b), {there}});
  parts.links.push_back({fmt::format("{}>{}", b, a), NodeId::from_index(b), NodeId::from_index(a), {back}});
}

Cluster made(ClusterParts parts) {
  absl::StatusOr<Cluster> cluster = Cluster::make(std::move(parts));
  MAYPOLE_CHECK(cluster.ok());
  return *std::move(cluster);
}

// Servers in racks under one core.
ClusterParts racks_of_servers(base::Rng& rng, int servers, int racks, const std::vector<double>& gpus) {
  ClusterParts parts;
  parts.resources = {"gpu"};
  for (int r = 0; r < racks; ++r) {
    parts.racks.push_back(fmt::format("r{}", r));
    parts.switches.push_back({fmt::format("top{}", r), RackId(r)});
  }
  for (int s = 0; s < servers; ++s) {
    model::Amounts capacity;
    capacity.push_back(gpus[static_cast<std::size_t>(draw(rng, 0, static_cast<int>(gpus.size()) - 1))]);
    parts.servers.push_back({fmt::format("s{}", s), RackId(s < racks ? s : draw(rng, 0, racks - 1)), capacity});
  }
  parts.switches.push_back({"core", RackId()});
  return parts;
}

std::vector<std::vector<LinkId>> simple_paths(const Cluster& cluster, ServerId from, ServerId to) {
  std::vector<std::vector<LinkId>> found;
  if (from == to || cluster.num_links() == 0) {
    return {{}};
  }
  std::vector<bool> visited(cluster.num_nodes(), false);
  std::vector<LinkId> path;
  const std::function<void(NodeId)> extend = [&](NodeId node) {
    if (node == Cluster::node(to)) {
      found.push_back(path);
      return;
    }
    visited[node.index()] = true;
    for (const LinkId link : cluster.out_links(node)) {
      if (!visited[cluster.link(link).to.index()]) {
        path.push_back(link);
        extend(cluster.link(link).to);
        path.pop_back();
      }
    }
    visited[node.index()] = false;
  };
  extend(Cluster::node(from));
  return found;
}

double best_of(const SlotProblem& problem, bool with_links) {
  const Cluster& cluster = *problem.cluster;
  std::vector<std::vector<TinyOption>> options;
  for (const ActiveJob& job : problem.jobs) {
    options.push_back(all_options(problem, job));
  }
  std::vector<double> servers;
  for (std::size_t s = 0; s < cluster.num_servers(); ++s) {
    servers.push_back(cluster.parts().servers[s].capacity[cluster.accelerator()]);
  }
  std::vector<double> links;
  for (std::size_t l = 0; l < cluster.num_links(); ++l) {
    const model::Link& link = cluster.link(LinkId::from_index(l));
    links.push_back(link.bandwidth.limited() && with_links ? link.bandwidth.bytes_per_second : 1e300);
  }
  double best = 0;
  const std::function<void(std::size_t, double)> choose = [&](std::size_t j, double gain) {
    if (j == options.size()) {
      best = std::max(best, gain);
      return;
    }
    choose(j + 1, gain);
    const double demand = problem.jobs[j].job->demand[cluster.accelerator()];
    for (const TinyOption& option : options[j]) {
      bool fits = true;
      for (std::size_t s = 0; s < servers.size(); ++s) {
        servers[s] -= demand * option.counts[s];
        fits = fits && servers[s] >= -1e-9;
      }
      for (std::size_t l = 0; l < links.size(); ++l) {
        links[l] -= option.loads[l];
        fits = fits && links[l] >= -1e-7;
      }
      if (fits) {
        choose(j + 1, gain + option.gain);
      }
      for (std::size_t s = 0; s < servers.size(); ++s) {
        servers[s] += demand * option.counts[s];
      }
      for (std::size_t l = 0; l < links.size(); ++l) {
        links[l] += option.loads[l];
      }
    }
  };
  choose(0, 0);
  return best;
}

}  // namespace

SlotProblem TinyCase::problem() const {
  SlotProblem problem;
  problem.cluster = &cluster;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    ActiveJob active;
    active.id = model::JobId::from_index(j);
    active.job = &jobs[j];
    active.progress = progress[j];
    active.current = current[j].ring.empty() ? nullptr : &current[j];
    problem.jobs.push_back(active);
  }
  return problem;
}

TinyCase random_tiny_case(base::Rng& rng) {
  const int servers = draw(rng, 2, 4);
  const int racks = draw(rng, 1, 2);
  ClusterParts parts = racks_of_servers(rng, servers, racks, {1, 2, 3});
  const auto num_servers = static_cast<std::size_t>(servers);
  const auto rate = [&] { return rng.uniform() < 0.2 ? 0.0 : static_cast<double>(draw(rng, 1, 5)); };
  const int kind = servers <= 3 ? draw(rng, 0, 3) : draw(rng, 0, 1);
  if (kind >= 2) {  // servers in a cycle, and a chord through a switch: not a tree
    parts.switches.resize(static_cast<std::size_t>(racks));
    for (std::size_t s = 0; s < (num_servers == 2 ? 1 : num_servers); ++s) {
      join(parts, s, (s + 1) % num_servers, rate(), rate());
    }
    for (std::size_t s = 0; s < 2; ++s) {
      join(parts, s, num_servers, rate(), rate());
    }
    if (racks == 2) {
      join(parts, num_servers, num_servers + 1, rate(), rate());
    }
  } else {
    for (std::size_t s = 0; s < num_servers; ++s) {
      join(parts, s, num_servers + parts.servers[s].rack.index(), rate(), rate());
    }
    for (std::size_t r = 0; r < static_cast<std::size_t>(racks); ++r) {
      join(parts, num_servers + r, num_servers + static_cast<std::size_t>(racks), rate(), rate());
    }
  }
  TinyCase tiny{made(std::move(parts)), {}, {}, {}};
  const int jobs = draw(rng, 1, kind >= 2 ? 2 : 3);
  for (int j = 0; j < jobs; ++j) {
    model::Job job;
    job.id = fmt::format("j{}", j);
    job.max_workers = draw(rng, 1, kind >= 2 ? 3 : 4);
    job.min_workers = draw(rng, 1, std::min(2, job.max_workers));
    job.workers = job.max_workers;
    job.demand.push_back(rng.uniform() < 0.2 ? 2 : 1);
    if (rng.uniform() < 0.9) {
      job.edge_bandwidth = {static_cast<double>(draw(rng, 1, 4))};
    }
    job.weight = rng.uniform(0.5, 3);
    job.utility.kind = rng.uniform() < 0.5 ? model::UtilityKind::kSqrt : model::UtilityKind::kLog;
    if (rng.uniform() < 0.3) {
      job.progress.kind = model::ProgressKind::kTable;
      for (int s = 1; s <= 2; ++s) {
        for (int w = s; w <= 4; ++w) {
          job.progress.points.push_back({w, s, 0.02 * std::min(w, 3) / (s == 1 ? 1 : rng.uniform(0.8, 1.6))});
        }
      }
    }
    job.progress.resize_s = rng.uniform() < 0.4 ? rng.uniform(5, 40) : 0;
    job.max_racks = rng.uniform() < 0.15 ? 1 : 0;
    tiny.jobs.push_back(std::move(job));
    tiny.progress.push_back(rng.uniform() < 0.5 ? 0 : rng.uniform(0, 10));
    tiny.current.emplace_back();
  }
  const SlotProblem problem = tiny.problem();
  for (std::size_t j = 0; j < tiny.jobs.size(); ++j) {
    std::vector<TinyOption> options = all_options(problem, problem.jobs[j]);
    std::erase_if(options, [](const TinyOption& option) {  // a ring that some decision left: each server once
      const std::vector<ServerId>& ring = option.embedding.ring;
      std::size_t runs = 0;
      for (std::size_t k = 0; k < ring.size(); ++k) {
        runs += ring[k] != ring[(k + 1) % ring.size()] ? 1 : 0;
      }
      return runs != 0 && runs != static_cast<std::size_t>(std::ranges::count_if(option.counts, [](int count) { return count > 0; }));
    });
    if (!options.empty() && rng.uniform() < 0.5) {
      tiny.current[j] = options[static_cast<std::size_t>(draw(rng, 0, static_cast<int>(options.size()) - 1))].embedding;
    }
  }
  return tiny;
}

TightCase random_tight_case(base::Rng& rng) {
  const int servers = draw(rng, 12, 16);
  const int racks = draw(rng, 2, 5);
  ClusterParts parts = racks_of_servers(rng, servers, racks, {1, 2, 4, 8});
  const auto num_servers = static_cast<std::size_t>(servers);
  for (std::size_t s = 0; s < num_servers; ++s) {
    const double rate = rng.uniform(0.2, 5) * kGbit;
    join(parts, s, num_servers + parts.servers[s].rack.index(), rate, rate);
  }
  for (std::size_t r = 0; r < static_cast<std::size_t>(racks); ++r) {
    const double rate = rng.uniform(4, 160) * kGbit;
    join(parts, num_servers + r, num_servers + static_cast<std::size_t>(racks), rate, rate);
  }
  TightCase tight{made(std::move(parts)), {}, {}, {}};
  const int jobs = draw(rng, 10, 12);
  const bool log = rng.uniform() < 0.5;
  for (int j = 0; j < jobs; ++j) {
    model::Job job;
    job.id = fmt::format("j{}", j);
    job.max_workers = draw(rng, 1, 16);
    job.workers = job.max_workers;
    job.demand.push_back(1);
    job.edge_bandwidth = {rng.uniform(0.1, 5) * kGbit};
    job.weight = rng.uniform(1, 100);
    job.progress.zeta = rng.uniform(50, 500);
    job.utility.kind = log ? model::UtilityKind::kLog : model::UtilityKind::kSqrt;
    tight.jobs.push_back(std::move(job));
    tight.progress.push_back(rng.uniform() < 0.5 ? 0 : rng.uniform(0, 20000));
    tight.current.emplace_back();
  }
  return tight;
}

std::vector<TinyOption> all_options(const SlotProblem& problem, const ActiveJob& job) {
  const Cluster& cluster = *problem.cluster;
  const std::size_t n = cluster.num_servers();
  std::vector<std::vector<std::vector<std::vector<LinkId>>>> paths(n, std::vector<std::vector<std::vector<LinkId>>>(n));
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < n; ++b) {
      paths[a][b] = simple_paths(cluster, ServerId::from_index(a), ServerId::from_index(b));
    }
  }
  std::map<std::tuple<std::vector<int>, std::vector<double>, double>, TinyOption> options;
  model::Embedding embedding;
  embedding.bandwidth = job.job->edge_bandwidth;
  const std::function<void(std::size_t)> route = [&](std::size_t edge) {
    const std::size_t w = embedding.ring.size();
    if (w > 1 && edge < w) {
      for (const std::vector<LinkId>& path : paths[embedding.ring[edge].index()][embedding.ring[(edge + 1) % w].index()]) {
        embedding.edges.push_back(path);
        route(edge + 1);
        embedding.edges.pop_back();
      }
      return;
    }
    TinyOption option{std::vector<int>(n, 0), std::vector<double>(cluster.num_links(), 0), 0, embedding};
    std::vector<RackId> racks;
    for (const ServerId server : embedding.ring) {
      ++option.counts[server.index()];
      racks.push_back(cluster.server(server).rack);
    }
    std::ranges::sort(racks);
    const auto num_racks = std::ranges::unique(racks).begin() - racks.begin();
    if (job.job->max_racks > 0 && num_racks > job.job->max_racks) {
      return;
    }
    for (const std::vector<LinkId>& path : embedding.edges) {
      for (const LinkId link : path) {
        option.loads[link.index()] += embedding.bandwidth.bytes_per_second;
      }
    }
    const bool resized = job.current == nullptr || embedding.ring != job.current->ring;
    option.gain = utility_gain(job, slot_progress(job, model::shape_of(embedding), resized, problem.slot_s), problem.start_s());
    options.emplace(std::tuple(option.counts, option.loads, option.gain), option);
  };
  const std::function<void(int)> place = [&](int workers) {
    if (static_cast<int>(embedding.ring.size()) == workers) {
      route(0);
      return;
    }
    for (std::size_t s = 0; s < n; ++s) {
      embedding.ring.push_back(ServerId::from_index(s));
      place(workers);
      embedding.ring.pop_back();
    }
  };
  for (int workers = job.job->min_workers; workers <= worker_limit(job); ++workers) {
    place(workers);
  }
  std::vector<TinyOption> list;
  for (auto& [key, option] : options) {
    list.push_back(std::move(option));
  }
  return list;
}

double best_by_enumeration(const SlotProblem& problem) { return best_of(problem, true); }
double best_without_links(const SlotProblem& problem) { return best_of(problem, false); }

}  // namespace maypole::sched
