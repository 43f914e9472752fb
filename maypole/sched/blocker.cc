// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/blocker.h"

#include "maypole/base/units.h"
#include "maypole/sched/ring_resize.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

namespace maypole::sched {

namespace {

using model::Embedding;
using model::Job;
using model::LinkId;
using model::ResourceId;
using model::ServerId;

/// The resource of which all servers together have too little for `workers`; kNone where there is none.
Blocker amount_blocker(const RingPlacer& placer, const Job& job, int workers) {
  const model::Cluster& cluster = placer.cluster();
  Blocker worst;
  double worst_share = 1 - kFitTolerance;
  for (std::size_t i = 0; i < cluster.num_resources(); ++i) {
    const ResourceId r = ResourceId::from_index(i);
    double free = 0;
    for (std::size_t s = 0; s < cluster.num_servers(); ++s) {
      free += std::max(0.0, placer.free().left(ServerId::from_index(s), r));
    }
    const double needed = workers * job.demand[r];
    if (needed > 0 && free / needed < worst_share) {
      worst_share = free / needed;
      worst = {BlockerKind::kAmount, cluster.resource(r), "", needed, free};
    }
  }
  return worst;
}

/// The server that comes nearest to holding one more worker, and what it lacks. A server that holds some but too few of the workers lacks
/// what the next worker would need there.
Blocker shape_blocker(const RingPlacer& placer, const Job& job, int workers) {
  const model::Cluster& cluster = placer.cluster();
  Blocker best{BlockerKind::kShape, "", "", 0, 0};
  double best_share = -1;
  for (std::size_t s = 0; s < cluster.num_servers(); ++s) {
    const ServerId server = ServerId::from_index(s);
    const int room = placer.free().workers_that_fit(server, job.demand, workers);
    Blocker here{BlockerKind::kShape, "", cluster.server(server).id, 0, 0};
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < cluster.num_resources(); ++i) {
      const ResourceId r = ResourceId::from_index(i);
      const double left = std::max(0.0, placer.free().left(server, r) - room * job.demand[r]);
      if (job.demand[r] > 0 && left / job.demand[r] < least) {
        least = left / job.demand[r];
        here.name = cluster.resource(r);
        here.needed = job.demand[r];
        here.free = left;
      }
    }
    if (least > best_share) {
      best_share = least;
      best = here;
    }
  }
  return best;
}

/// The link that lacks most for the ring; kNone where all carry it.
Blocker link_blocker(const RingPlacer& placer, const Job& job, const Embedding& ring) {
  std::map<LinkId, double> load;
  for (const std::vector<LinkId>& edge : ring.edges) {
    for (const LinkId link : edge) {
      load[link] += job.edge_bandwidth.bytes_per_second;
    }
  }
  Blocker worst;
  double worst_lack = 0;
  for (const auto& [id, needed] : load) {
    const model::Link& link = placer.cluster().link(id);
    const double lack = needed - placer.free().left(id) - kFitTolerance * link.bandwidth.bytes_per_second;
    if (lack > worst_lack) {
      worst_lack = lack;
      worst = {BlockerKind::kBandwidth, link.id, "", needed, std::max(0.0, placer.free().left(id))};
    }
  }
  return worst;
}

}  // namespace

std::string_view name_of(BlockerKind kind) {
  switch (kind) {
    case BlockerKind::kNone:
      return "none";
    case BlockerKind::kAmount:
      return "amount";
    case BlockerKind::kShape:
      return "shape";
    case BlockerKind::kBandwidth:
      return "bandwidth";
    case BlockerKind::kRacks:
      return "racks";
  }
  return "?";
}

Blocker blocker_of_ring(RingPlacer& placer, const ActiveJob& job, int workers) {
  if (placer.place(job, workers)) {
    return {};
  }
  if (Blocker amount = amount_blocker(placer, *job.job, workers); amount.kind != BlockerKind::kNone) {
    return amount;
  }
  // The same job with fewer wishes: what it then gets says which wish stood in the way.
  Job free_job = *job.job;
  free_job.edge_bandwidth = {};
  ActiveJob wish = job;
  wish.job = &free_job;
  const std::optional<Embedding> within_racks = placer.place(wish, workers);
  free_job.max_racks = 0;
  const std::optional<Embedding> anywhere = placer.place(wish, workers);
  if (!anywhere) {
    return shape_blocker(placer, *job.job, workers);
  }
  if (!within_racks) {
    return {BlockerKind::kRacks, "", "", static_cast<double>(rack_limit(job, placer.cluster()) + 1),
            static_cast<double>(rack_limit(job, placer.cluster()))};
  }
  const Blocker link = link_blocker(placer, *job.job, *within_racks);
  // Another ring than the one looked at may be the only one that is closed to it; links are the reason all the same.
  return link.kind == BlockerKind::kNone ? Blocker{BlockerKind::kBandwidth, "", "", job.job->edge_bandwidth.bytes_per_second, 0} : link;
}

Blocker blocker_of_one_more(RingPlacer& placer, const ActiveJob& job, const Embedding& ring) {
  if (one_more(placer, job, ring)) {
    return {};
  }
  const Job& asked = *job.job;
  placer.take(asked, ring);
  const Blocker amount = amount_blocker(placer, asked, 1);
  const bool has_room = placer.rooms().next(0, asked.demand).valid();
  const Blocker shape = has_room ? Blocker{} : shape_blocker(placer, asked, 1);
  placer.give_back(asked, ring);
  if (amount.kind != BlockerKind::kNone || !has_room) {
    return amount.kind != BlockerKind::kNone ? amount : shape;
  }
  Job free_job = asked;
  free_job.edge_bandwidth = {};
  ActiveJob wish = job;
  wish.job = &free_job;
  const std::optional<Embedding> wider = one_more(placer, wish, ring);
  if (!wider) {
    const int racks = rack_limit(job, placer.cluster());
    return {BlockerKind::kRacks, "", "", static_cast<double>(racks + 1), static_cast<double>(racks)};
  }
  return link_blocker(placer, asked, *wider);
}

std::string text_of(const Blocker& blocker) {
  switch (blocker.kind) {
    case BlockerKind::kNone:
      return "there is room";
    case BlockerKind::kAmount:
      return fmt::format("{:g} {} are needed, {:g} are free in the whole cluster", blocker.needed, blocker.name, blocker.free);
    case BlockerKind::kShape:
      return fmt::format("one worker needs {:g} {} on one server, and {} comes nearest with {:g} to spare", blocker.needed, blocker.name,
                         blocker.where, blocker.free);
    case BlockerKind::kBandwidth:
      if (blocker.name.empty()) {
        return fmt::format("no ring of servers with room has {} left on all its links", base::format_bandwidth({blocker.needed}));
      }
      return fmt::format("the ring needs {} on link {}, {:.4g} Mbit/s are left", base::format_bandwidth({blocker.needed}), blocker.name,
                         blocker.free * 8e-6);
    case BlockerKind::kRacks:
      return fmt::format("there is room on {:g} racks, but the job may span {:g}", blocker.needed, blocker.free);
  }
  return "?";
}

}  // namespace maypole::sched
