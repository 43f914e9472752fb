// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/ring_resize.h"

#include "maypole/base/check.h"

#include <algorithm>

namespace maypole::sched {

namespace {

using model::Embedding;
using model::RackId;
using model::ServerId;

// New servers that are tried for a ring with reservations.
constexpr int kMaxTries = 16;

std::vector<ServerShare> shares_of(const Embedding& ring) {
  std::vector<ServerShare> shares;
  for (const ServerId server : ring.ring) {
    if (shares.empty() || shares.back().server != server) {
      shares.push_back({server, 0});
    }
    ++shares.back().workers;
  }
  return shares;
}

std::vector<ServerId> ring_of(const std::vector<ServerShare>& shares) {
  std::vector<ServerId> ring;
  for (const ServerShare& share : shares) {
    ring.insert(ring.end(), static_cast<std::size_t>(share.workers), share.server);
  }
  return ring;
}

class Growth {
 public:
  Growth(RingPlacer& placer, const ActiveJob& job, const Embedding& ring)
      : placer_(placer), job_(job), shares_(shares_of(ring)), limit_(rack_limit(job, placer.cluster())) {
    for (const ServerShare& share : shares_) {
      const RackId rack = rack_of(share.server);
      if (std::ranges::find(racks_, rack) == racks_.end()) {
        racks_.push_back(rack);
      }
    }
  }

  std::optional<Embedding> run() {
    for (std::size_t k = 0; k < shares_.size(); ++k) {
      const int workers = shares_[k].workers + 1;
      if (placer_.free().workers_that_fit(shares_[k].server, job_.job->demand, workers) == workers) {
        std::vector<ServerShare> shares = shares_;
        ++shares[k].workers;
        Embedding ring = placer_.embed(*job_.job, ring_of(shares));
        if (placer_.fits(*job_.job, ring)) {
          return ring;
        }
      }
    }
    if (placer_.style() == RingStyle::kTopology || limit_ > 0) {
      std::optional<Embedding> ring = visit([&](ServerId server) { return std::ranges::find(racks_, rack_of(server)) != racks_.end(); });
      if (ring || (limit_ > 0 && static_cast<int>(racks_.size()) >= limit_)) {
        return ring;
      }
    }
    return visit([](ServerId) { return true; });
  }

 private:
  [[nodiscard]] RackId rack_of(ServerId server) const { return placer_.cluster().server(server).rack; }

  /// The first allowed server on which the ring closes.
  template <typename Allowed>
  std::optional<Embedding> visit(const Allowed& allowed) {
    const bool reserves = job_.job->edge_bandwidth.limited();
    int tries = 0;
    for (std::size_t from = 0; !reserves || tries < kMaxTries;) {
      const ServerId server = placer_.rooms().next(from, job_.job->demand);
      if (!server.valid()) {
        break;
      }
      from = server.index() + 1;
      if (!allowed(server) || std::ranges::find(shares_, server, &ServerShare::server) != shares_.end()) {
        continue;
      }
      ++tries;
      Embedding ring = placer_.embed(*job_.job, ring_of(with(server)));
      if (placer_.fits(*job_.job, ring)) {
        return ring;
      }
    }
    return std::nullopt;
  }

  /// The new server goes behind the last of its rack; behind the whole ring, where there is none.
  [[nodiscard]] std::vector<ServerShare> with(ServerId server) const {
    std::vector<ServerShare> shares = shares_;
    std::size_t at = shares.size();
    for (std::size_t k = 0; k < shares.size(); ++k) {
      if (rack_of(shares[k].server) == rack_of(server)) {
        at = k + 1;
      }
    }
    shares.insert(shares.begin() + static_cast<std::ptrdiff_t>(at), ServerShare{server, 1});
    return shares;
  }

  RingPlacer& placer_;
  const ActiveJob& job_;
  std::vector<ServerShare> shares_;
  int limit_;
  std::vector<RackId> racks_;
};

}  // namespace

std::optional<Embedding> one_more(RingPlacer& placer, const ActiveJob& job, const Embedding& ring) {
  return Growth(placer, job, ring).run();
}

Embedding fewer(RingPlacer& placer, const ActiveJob& job, const Embedding& ring, int workers) {
  MAYPOLE_CHECK_GE(workers, 1);
  std::vector<ServerShare> shares = shares_of(ring);
  for (int left = ring.workers(); left > workers;) {
    // Of equals the last, so that the ring keeps its beginning.
    std::size_t smallest = 0;
    for (std::size_t k = 1; k < shares.size(); ++k) {
      smallest = shares[k].workers <= shares[smallest].workers ? k : smallest;
    }
    const int gone = std::min(shares[smallest].workers, left - workers);
    shares[smallest].workers -= gone;
    left -= gone;
    if (shares[smallest].workers == 0) {
      shares.erase(shares.begin() + static_cast<std::ptrdiff_t>(smallest));
    }
  }
  return placer.embed(*job.job, ring_of(shares));
}

}  // namespace maypole::sched
