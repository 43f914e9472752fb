// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is left of servers and links while `gadget` fills a slot, and rings as it handles them: by server, not by worker.

#include "maypole/model/job.h"
#include "maypole/model/routes.h"
#include "maypole/sched/policies/gadget_candidate.h"
#include "maypole/sched/policies/gadget_topology.h"

#include <set>
#include <utility>
#include <vector>

namespace maypole::sched::gadget {

struct Part {
  int server = 0;
  int workers = 0;
  bool operator==(const Part&) const = default;
};

/// One job's ring. No parts: it does not run.
struct Ring {
  std::vector<Part> parts;                        // in ring order; no server twice, except in a kept ring
  std::vector<std::vector<model::LinkId>> paths;  // [part]: to the next part, around; empty for one part
  int workers = 0;
  double value = 0;
  bool kept = false;  // the running ring, unchanged
  bool operator==(const Ring&) const = default;
};

/// Racks in which it has workers.
[[nodiscard]] int num_racks(const Topology& topology, const Ring& ring);
/// The parts of an embedding: runs of equal servers.
[[nodiscard]] Ring ring_of(const model::Embedding& embedding);
[[nodiscard]] model::Embedding embedding_of(const Ring& ring, const model::Job& job);

/// Free amounts of servers and links, in flat arrays, with servers by free accelerators on the side.
class Space {
 public:
  Space(const Topology& topology, const std::vector<Candidate>& candidates);
  /// All is free again.
  void clear();

  /// Workers of the job that fit on the server now, at most `limit`.
  [[nodiscard]] int fit(int server, const model::Job& job, int limit) const;
  /// Whether one edge of `bandwidth` can leave the node's part and one can enter it.
  [[nodiscard]] bool open(int node, double bandwidth) const;
  [[nodiscard]] bool has_room(model::LinkId link, double bandwidth) const;
  /// Whether servers and links hold the ring.
  [[nodiscard]] bool holds(const Ring& ring, const Candidate& candidate) const;
  void take(const Ring& ring, const Candidate& candidate) { add(ring, candidate, -1); }
  void release(const Ring& ring, const Candidate& candidate) { add(ring, candidate, 1); }

  /// Free accelerators (or, in a cluster without, of the first resource) in the rack.
  [[nodiscard]] double free_in_rack(int rack) const { return rack_free_[static_cast<std::size_t>(rack)]; }
  [[nodiscard]] model::ResourceId primary() const { return primary_; }
  /// The server with the least free accelerators on which `workers` fit; -1: none among those looked at (a few for each amount).
  [[nodiscard]] int tightest_server(const model::Job& job, int workers) const;

  /// Finds the ring's paths, in the order of its parts, over links that can still take `bandwidth`; false where there are none.
  [[nodiscard]] bool route(Ring& ring, const Candidate& candidate);
  [[nodiscard]] const Topology& topology() const { return *topology_; }

 private:
  void add(const Ring& ring, const Candidate& candidate, double sign);
  [[nodiscard]] std::size_t bucket_of(int server) const;
  [[nodiscard]] std::vector<model::LinkId> free_path(int from, int to, double bandwidth);

  const Topology* topology_;
  std::size_t num_resources_;
  model::ResourceId primary_;
  double unit_ = 1;                     // of the buckets
  std::vector<double> free_;            // [server * num_resources + resource]
  std::vector<double> slack_;           // the same shape: what a sum of demands may be off by
  std::vector<double> link_;            // [link]
  std::vector<double> rack_free_;       // [rack]
  std::vector<std::set<int>> buckets_;  // [free primary / unit]: servers
  model::Routes routes_;
  std::vector<std::int32_t> seen_;  // [node of the cluster]: the link by which a search came; -1 none
};

}  // namespace maypole::sched::gadget
