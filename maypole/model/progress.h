// SPDX-License-Identifier: Apache-2.0
#pragma once

// Progress models: how much of a job's work w workers on a given ring do per slot.
//
//   kind       progress per slot                                                  unit
//   constant   zeta * w                                                           the paper's constant, whatever the slot length
//   power      zeta * reference * (w / reference)^exponent                        as constant; sub-linear speed
//   ring       slot_s * w / tau(w), tau by GADGET's equation (1)                  minibatches
//   overlap    the same, tau by the overlapped costs of `schedule`                minibatches
//   profile    the same, tau of this very job from its simulated iterations       minibatches
//   table      slot_s * rate, interpolated over measured points                   the table's
//
// Equation (1): tau(w) = d (w-1)/w (2/b + 1/G) + F + B + gamma. With R = A = d (w-1)/w (1/b + 1/(2G)) and C = R + A:
// wfbp F + max(B, C) + gamma, dear max(F, A) + max(B, R) + gamma, weave max(F + B, C) + gamma (DeAR's costs, perfectly fused).
// F is the forward time of a whole minibatch (t_f M in the paper).
//
// `profile` holds iterations that overlap/profile_progress.h has simulated from a job's profile under its schedule and fusion, over numbers
// of workers and the seconds that a byte takes on the slowest edge. An iteration's time is nearly a broken line in those seconds (each
// stretch has one critical path), so interpolation between its bends loses next to nothing.

#include "maypole/base/units.h"

#include <string_view>
#include <vector>

namespace maypole::model {

enum class ProgressKind { kConstant, kPower, kRing, kOverlap, kProfile, kTable };
enum class OverlapSchedule { kSync, kWfbp, kDear, kWeave };

[[nodiscard]] std::string_view name_of(ProgressKind kind);
[[nodiscard]] std::string_view name_of(OverlapSchedule schedule);

/// What a progress model needs to know of an embedding.
struct RingShape {
  int workers = 0;
  int servers = 0;            // distinct ones; 1: no edge uses a link
  base::Bandwidth bandwidth;  // of every edge that uses links; not limited(): reserves nothing, see ProgressModel::bandwidth
};

/// One measured point. `rate` is progress per second of the whole job.
struct RatePoint {
  int workers = 0;
  int servers = 0;
  double rate = 0;
  bool operator==(const RatePoint&) const = default;
};

/// One simulated iteration of a job.
struct IterationPoint {
  int workers = 0;
  bool spread = false;    // over several servers; else all share one
  double s_per_byte = 0;  // on the slowest edge; 0: bytes cost nothing
  double iteration_s = 0;
  bool operator==(const IterationPoint&) const = default;
};

struct ProgressModel {
  ProgressKind kind = ProgressKind::kConstant;
  double zeta = 1;       // constant, power: progress per slot and worker (power: at `reference` workers)
  double exponent = 1;   // power: in (0, 1]
  double reference = 1;  // power: workers, > 0
  // ring, overlap; the two bandwidths also profile
  double gradient_bytes = 0;                           // d
  double reduce_bytes_per_s = 0;                       // G; 0: reducing costs nothing
  double forward_s = 0;                                // F
  double backward_s = 0;                               // B
  double latency_s = 0;                                // gamma
  base::Bandwidth bandwidth = {};                      // b where the job reserves none; not limited(): free
  base::Bandwidth local_bandwidth = {};                // b on one server; not limited(): free
  OverlapSchedule schedule = OverlapSchedule::kWeave;  // overlap
  std::vector<IterationPoint> iterations = {};         // profile: sorted by (spread, workers, s_per_byte), each number from 0 s a byte
  std::vector<RatePoint> points = {};                  // table: sorted by (servers, workers), no two alike, not empty
  double resize_s = 0;                                 // seconds without progress whenever the ring of a running job changes

  /// Progress in a slot of `slot_s` seconds; 0 for no workers. Between two points of a table it is linear in w at the nearest measured
  /// number of servers; beyond the largest it stays (no speed is invented), below the smallest it falls linearly to 0.
  [[nodiscard]] double per_slot(const RingShape& shape, double slot_s) const;
  /// Seconds per iteration (ring, overlap, profile). Of a profile: between simulated points it is linear in the seconds per byte, and in
  /// the workers; beyond the slowest edge the last slope goes on; beyond the most workers the speed of the whole job stays (none is
  /// invented).
  [[nodiscard]] double iteration_s(const RingShape& shape) const;
  /// True where progress does not depend on the servers, only on the number of workers.
  [[nodiscard]] bool depends_on_workers_only() const { return kind == ProgressKind::kConstant || kind == ProgressKind::kPower; }
  bool operator==(const ProgressModel&) const = default;
};

}  // namespace maypole::model
