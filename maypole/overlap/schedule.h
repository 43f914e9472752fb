// SPDX-License-Identifier: Apache-2.0
#pragma once

// Schedules: pure rules that order reduce-scatter (RS) and all-gather (AG) of groups against compute.
//
// A schedule sees the progress of each group in one iteration and answers which operations may start now. It holds no state, so the
// engine, the c10d back end and the iteration simulator run the same objects. Groups are numbered in forward order.
//
//   sync   all-reduce of everything after backward
//   wfbp   all-reduce per group during backward (what DDP does): RS(g), AG(g) back to back, last group first
//   dear   RS during backward, a barrier in step(), then AG in forward order during the next forward (DeAR,
//          ICDCS 2023: docs/README.md)
//   weave  no barrier: RS first; while no RS waits, AG of the finished group that forward needs first

#include <absl/status/statusor.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace maypole::overlap {

enum class UpdateMode { kReplicated, kSharded };

/// Progress of one group in the current iteration; each flag implies those above it.
struct GroupProgress {
  bool ready = false;  // all local gradients are in
  bool reduce_started = false;
  bool reduce_done = false;
  bool gather_started = false;  // own chunks supplied
  bool gather_done = false;
};

struct IterationProgress {
  std::span<const GroupProgress> groups;
  bool backward_done = false;  // the outermost backward has ended
  bool step_called = false;    // step() (or synchronize()) was reached: gradients are final
  UpdateMode update = UpdateMode::kReplicated;
};

enum class Phase { kReduceScatter, kAllGather };

struct Action {
  Phase phase = Phase::kReduceScatter;
  std::size_t group = 0;
  bool operator==(const Action&) const = default;
};

/// When the averaged gradient becomes visible, and how the front end must wait.
struct ScheduleTraits {
  bool gradients_after_backward = false;  // sync, wfbp: after backward() every p.grad is the average
  bool barrier_in_step = false;           // dear: no AG before every RS of the iteration is done on this rank
  bool allows_sharded = false;            // dear, weave
};

class Schedule {
 public:
  virtual ~Schedule() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual ScheduleTraits traits() const = 0;
  /// All operations that may start now, in the order in which to start them. RS is always in the order last group .. group 0
  /// (plan order, the same on every rank). With sharded updates no AG before step_called.
  [[nodiscard]] virtual std::vector<Action> next(const IterationProgress& progress) const = 0;
};

/// Errors: kInvalidArgument names the schedules there are.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Schedule>> make_schedule(std::string_view name);

}  // namespace maypole::overlap
