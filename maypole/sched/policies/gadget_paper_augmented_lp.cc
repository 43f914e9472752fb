// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_paper_augmented_lp.h"

#include "maypole/lp/certificate.h"
#include "maypole/lp/solver.h"
#include "maypole/model/routes.h"
#include "maypole/sched/free_capacity.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

namespace maypole::sched {

namespace {

using model::Embedding;
using model::LinkId;
using model::ServerId;

class Master {
 public:
  Master(const PaperSlot& slot, const std::vector<int>& sizes, Work& work) : slot_(slot), sizes_(sizes), work_(work) {
    for (std::size_t i = 0; i < slot.jobs.size(); ++i) {
      job_rows_.push_back(solver_.add_row({.upper = 1}));
    }
    for (const model::Server& server : slot.cluster().parts().servers) {
      server_rows_.emplace_back();
      for (std::size_t r = 0; r < server.capacity.size(); ++r) {
        server_rows_.back().push_back(solver_.add_row({.upper = 1}));
      }
    }
    for (std::size_t l = 0; l < slot.cluster().num_links(); ++l) {
      const bool binds = link_capacity(slot.cluster(), LinkId::from_index(l)) < lp::kInfinity;
      link_rows_.push_back(binds ? solver_.add_row({.upper = 1}) : lp::RowId());
    }
  }

  void add(std::size_t job, Embedding embedding) {
    const PaperJob& entry = slot_.jobs[job];
    lp::Column column{.objective = entry.gain[static_cast<std::size_t>(sizes_[job])] * slot_.scale(), .terms = {{job_rows_[job], 1}}};
    for (const ServerId server : embedding.ring) {
      for (std::size_t r = 0; r < entry.demand.size(); ++r) {
        const double capacity = slot_.cluster().server(server).capacity[model::ResourceId::from_index(r)];
        if (entry.demand[r] > 0) {
          column.terms.push_back({server_rows_[server.index()][r], entry.demand[r] / capacity});
        }
      }
    }
    for (const std::vector<LinkId>& edge : embedding.edges) {
      for (const LinkId link : edge) {
        if (link_rows_[link.index()].valid() && entry.bandwidth > 0) {
          column.terms.push_back({link_rows_[link.index()], entry.bandwidth / link_capacity(slot_.cluster(), link)});
        }
      }
    }
    solver_.add_column(std::move(column));
    columns_.emplace_back(job, std::move(embedding));
    ++work_.columns;
  }

  // Solves, prices, and again until no walk is worth entering.
  bool solve(std::int64_t max_pivots) {
    const std::int64_t before = work_.pivots;
    while (true) {
      const lp::SolveStatus status = solver_.solve(max_pivots - (work_.pivots - before));
      work_.pivots += solver_.solution().pivots;
      if (status != lp::SolveStatus::kOptimal) {
        return false;
      }
      bool grown = false;
      for (std::size_t i = 0; i < slot_.jobs.size(); ++i) {
        grown = (sizes_[i] > 0 && enter_cheapest_walk(i)) || grown;
      }
      if (!grown) {
        return true;
      }
    }
  }

  [[nodiscard]] const lp::Solution& solution() const { return solver_.solution(); }
  [[nodiscard]] const lp::LinearProgram& program() const { return solver_.program(); }
  [[nodiscard]] const std::vector<std::pair<std::size_t, Embedding>>& columns() const { return columns_; }

 private:
  bool enter_cheapest_walk(std::size_t i) {
    const PaperJob& job = slot_.jobs[i];
    const base::IdVector<lp::RowId, double>& duals = solver_.solution().duals;
    double cheapest = std::numeric_limits<double>::infinity();
    ServerId host;
    for (std::size_t s = 0; s < server_rows_.size(); ++s) {
      if (!job.host[s]) {
        continue;
      }
      double price = 0;
      for (std::size_t r = 0; r < job.demand.size(); ++r) {
        if (job.demand[r] > 0) {
          const double capacity = slot_.cluster().parts().servers[s].capacity[model::ResourceId::from_index(r)];
          price += std::max(0.0, duals[server_rows_[s][r]]) * job.demand[r] / capacity;
        }
      }
      if (price < cheapest) {
        cheapest = price;
        host = ServerId::from_index(s);
      }
    }
    const double gain = job.gain[static_cast<std::size_t>(sizes_[i])] * slot_.scale();
    constexpr double kWorth = 1e-7;  // less than this the simplex does not see
    if (!host.valid() || gain - sizes_[i] * cheapest - duals[job_rows_[i]] <= kWorth || !entered_.insert({i, host}).second) {
      return false;
    }
    Embedding embedding;
    embedding.bandwidth = job.active->job->edge_bandwidth;
    embedding.ring.assign(static_cast<std::size_t>(sizes_[i]), host);
    embedding.edges.resize(sizes_[i] > 1 ? embedding.ring.size() : 0);
    add(i, std::move(embedding));
    return true;
  }

  const PaperSlot& slot_;
  const std::vector<int>& sizes_;
  Work& work_;
  lp::Solver solver_;
  std::vector<lp::RowId> job_rows_;
  std::vector<std::vector<lp::RowId>> server_rows_;
  std::vector<lp::RowId> link_rows_;
  std::vector<std::pair<std::size_t, Embedding>> columns_;  // [column]
  std::set<std::pair<std::size_t, ServerId>> entered_;      // walks on one host
};

}  // namespace

Embedding ring_around(const PaperSlot& slot, std::size_t job, int size, ServerId root) {
  const model::Cluster& cluster = slot.cluster();
  const model::Job& entry = *slot.jobs[job].active->job;
  const FreeCapacity empty(cluster);
  std::vector<std::tuple<int, int, ServerId>> order;  // nearness, workers that fit (negative), server
  for (std::size_t s = 0; s < cluster.num_servers(); ++s) {
    const auto server = ServerId::from_index(s);
    const int fits = empty.workers_that_fit(server, entry.demand, size);
    if (fits > 0) {
      const int nearness = server == root ? 0 : cluster.server(server).rack == cluster.server(root).rack ? 1 : 2;
      order.emplace_back(nearness, -fits, server);
    }
  }
  std::ranges::sort(order);
  // Servers of one rack in a row, so that the ring crosses racks as little as can be.
  std::vector<std::pair<ServerId, int>> taken;
  int left = size;
  for (const auto& [nearness, fits, server] : order) {
    if (nearness == 0 || left < size) {
      const int count = std::min(left, -fits);
      taken.emplace_back(server, count);
      left -= count;
    }
    if (left == 0) {
      break;
    }
  }
  if (left > 0 || taken.empty()) {
    return {};
  }
  std::ranges::stable_sort(taken, {}, [&](const auto& entry) {
    const model::RackId rack = cluster.server(entry.first).rack;
    return std::pair(rack != cluster.server(root).rack, rack);
  });
  Embedding embedding;
  embedding.bandwidth = entry.edge_bandwidth;
  for (const auto& [server, count] : taken) {
    embedding.ring.insert(embedding.ring.end(), static_cast<std::size_t>(count), server);
  }
  if (size > 1) {
    model::Routes routes(cluster);
    for (std::size_t k = 0; k < embedding.ring.size(); ++k) {
      embedding.edges.push_back(routes.path(embedding.ring[k], embedding.ring[(k + 1) % embedding.ring.size()]));
    }
  }
  return empty.fits(entry, embedding) ? embedding : Embedding{};
}

PaperAugmented solve_augmented_lp(const PaperSlot& slot, const std::vector<int>& sizes, std::int64_t max_pivots, Work& work) {
  Master master(slot, sizes, work);
  for (std::size_t i = 0; i < slot.jobs.size(); ++i) {
    std::set<std::vector<ServerId>> seen;
    for (std::size_t s = 0; s < slot.cluster().num_servers() && sizes[i] > 0; ++s) {
      Embedding embedding = ring_around(slot, i, sizes[i], ServerId::from_index(s));
      if (!embedding.ring.empty() && seen.insert(embedding.ring).second) {
        master.add(i, std::move(embedding));
      }
    }
  }
  PaperAugmented augmented;
  augmented.solved = master.solve(max_pivots);
  augmented.value = master.solution().objective / slot.scale();
  augmented.mappings.resize(slot.jobs.size());
  if (!augmented.solved && lp::primal_violation(master.program(), master.solution().primal) > 1e-7) {
    return augmented;
  }
  for (std::size_t c = 0; c < master.columns().size(); ++c) {
    const auto& [job, embedding] = master.columns()[c];
    augmented.mappings[job].push_back({master.solution().primal[lp::ColumnId::from_index(c)], embedding});
  }
  return augmented;
}

}  // namespace maypole::sched
