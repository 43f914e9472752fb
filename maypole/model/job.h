// SPDX-License-Identifier: Apache-2.0
#pragma once

// A job as the scheduler sees it (GADGET's i), and what a slot gives it.

#include "maypole/base/strong_id.h"
#include "maypole/base/units.h"
#include "maypole/model/cluster.h"
#include "maypole/model/progress.h"
#include "maypole/model/utility.h"

#include <absl/status/status.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace maypole::model {

using JobId = base::StrongId<struct JobTag>;  // position in Instance::jobs

struct Job {
  std::string id;
  double arrival_s = 0;
  int min_workers = 1;             // fewer than this is none
  int workers = 1;                 // what a rigid policy gives it
  int max_workers = 1;             // N_i
  Amounts demand;                  // l_i^r, per worker
  base::Bandwidth edge_bandwidth;  // b_i, payload, per ring edge; not limited(): reserves nothing
  std::optional<double> work;      // progress at which it ends
  std::optional<double> budget;    // worker-slots it may use: F_i / l_i
  double weight = 1;               // multiplies the utility: priority
  Utility utility;
  ProgressModel progress;
  int max_racks = 0;       // 0: any number
  double max_racks_s = 0;  // the limit holds for that many seconds of waiting; 0: always

  [[nodiscard]] double value(double progress_made, double late_progress = 0) const {
    return weight * utility.value(progress_made, late_progress);
  }
};

/// Where a job's workers are in a slot, and which links its ring edges use.
struct Embedding {
  std::vector<ServerId> ring;              // [worker], in ring order
  std::vector<std::vector<LinkId>> edges;  // [k]: path from ring[k] to ring[k+1 mod w]; empty on one server; no entry for one worker
  base::Bandwidth bandwidth;               // reserved on each link of each edge

  [[nodiscard]] int workers() const { return static_cast<int>(ring.size()); }
  bool operator==(const Embedding&) const = default;
};

/// Distinct servers of a ring.
[[nodiscard]] int num_servers(std::span<const ServerId> ring);
[[nodiscard]] RingShape shape_of(const Embedding& embedding);

/// A whole scheduling problem: what `--instance` writes.
struct Instance {
  Cluster cluster;
  std::vector<Job> jobs;  // in order of arrival, then as given
  double slot_s = 60;
  int slots = 0;  // the horizon T; 0: until all jobs have ended
  std::uint64_t seed = 1;
};

/// Checks one job by itself and against the cluster, errors naming job, field and remedy: empty id, workers not 1 <= min <= workers <=
/// max <= 100,000, demands negative or all 0, negative bandwidth, work or budget not positive, weight negative, parameters of utility and
/// progress out of range, and a job that can never fit: one worker larger than every server, min_workers more than the whole empty cluster
/// holds (both numbers in the sentence).
[[nodiscard]] absl::Status check_job(const Job& job, const Cluster& cluster);
/// Of that, all but whether it fits, and whether it fits.
[[nodiscard]] absl::Status check_job_alone(const Job& job, const Cluster& cluster);
[[nodiscard]] absl::Status check_job_fits(const Job& job, const Cluster& cluster);
/// Whether links that carry the job's edge_bandwidth join servers for min_workers. Not a part of check_job(): a recorded instance may hold
/// a job that never gets its bandwidth. Whoever passes may still wait for ever where a ring would use one link twice. O(links + servers).
[[nodiscard]] absl::Status check_bandwidth_fits(const Job& job, const Cluster& cluster);
/// check_job for all, duplicate ids, slot length and horizon.
[[nodiscard]] absl::Status check_instance(const Instance& instance);

/// Workers of the job that fit on each empty server, summed, up to `limit`.
[[nodiscard]] std::int64_t empty_cluster_workers(const Job& job, const Cluster& cluster,
                                                 std::int64_t limit = std::numeric_limits<std::int64_t>::max());

}  // namespace maypole::model
