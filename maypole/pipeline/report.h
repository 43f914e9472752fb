// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace maypole::pipeline {

/// What communication cost, of one rank: medians over the iterations after warm-up, seconds.
struct GroupReport {
  std::size_t bytes = 0;
  double reduce_scatter_s = 0;
  double all_gather_s = 0;
  double exposed_s = 0;  // time that compute stood still for this group
};

/// The blocks at which groups begin, of each arena; as overlap::plan_fusion_at() takes them.
using Cuts = std::vector<std::vector<std::size_t>>;

/// What groups were tuned for.
struct TunedFor {
  double link_s_per_byte = 0;  // of a phase, on the wire
  double compute_s = 0;        // of an iteration
};

struct TriedGroups {
  std::string what;  // default, plan, search
  std::size_t groups = 0;
  double iteration_s = 0;
};

/// How a model's groups came about.
struct TuningReport {
  std::size_t settled = 0;  // how often a choice was made
  std::string text;         // one line for people
  std::vector<TriedGroups> tried;
  Cuts cuts;  // chosen last
  TunedFor tuned_for;
};

struct Report {
  std::size_t iterations = 0;  // measured, without warm-up
  double iteration_s = 0;
  double forward_s = 0;         // without exposed time
  double backward_s = 0;        // without exposed time
  double reduce_scatter_s = 0;  // time in which at least one RS was in motion
  double all_gather_s = 0;
  double exposed_s = 0;        // time that the computing thread stood still for communication
  double update_s = 0;         // updates, in the caller (sync, wfbp) or on the engine thread
  double communication_s = 0;  // C: bytes that one rank sends per iteration, times the measured seconds per byte; at most iteration_s
  double bound_s = 0;          // max(F + B, C)
  std::string schedule;
  std::string update;
  int world_size = 1;
  std::string fusion;  // one line: how the groups came about; empty where they were given
  std::vector<GroupReport> groups;
};

}  // namespace maypole::pipeline
