// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/schedule.h"

#include "maypole/base/status.h"

#include <algorithm>

namespace maypole::overlap {
namespace {

/// The reduce-scatters that may start now: from the last group down, each only after all above it.
std::vector<Action> ready_reduce_scatters(const IterationProgress& progress) {
  std::vector<Action> actions;
  for (std::size_t g = progress.groups.size(); g-- > 0;) {
    if (progress.groups[g].reduce_started) {
      continue;
    }
    if (!progress.groups[g].ready) {
      break;
    }
    actions.push_back({Phase::kReduceScatter, g});
  }
  return actions;
}

void append_finished_gathers(const IterationProgress& progress, std::vector<Action>& actions) {
  for (std::size_t g = 0; g < progress.groups.size(); ++g) {
    if (progress.groups[g].reduce_done && !progress.groups[g].gather_started) {
      actions.push_back({Phase::kAllGather, g});
    }
  }
}

bool may_gather(const IterationProgress& progress) { return progress.update == UpdateMode::kReplicated || progress.step_called; }

/// All-reduce of everything after backward: no overlap with compute.
class SyncSchedule final : public Schedule {
 public:
  std::string_view name() const override { return "sync"; }
  ScheduleTraits traits() const override { return {.gradients_after_backward = true}; }
  std::vector<Action> next(const IterationProgress& progress) const override {
    if (!progress.backward_done) {
      return {};
    }
    std::vector<Action> actions = ready_reduce_scatters(progress);
    append_finished_gathers(progress, actions);
    return actions;
  }
};

/// All-reduce group by group during backward: the reduce-scatter of a group follows the all-gather of the group before it, as in a
/// queue of all-reduces.
class WfbpSchedule final : public Schedule {
 public:
  std::string_view name() const override { return "wfbp"; }
  ScheduleTraits traits() const override { return {.gradients_after_backward = true}; }
  std::vector<Action> next(const IterationProgress& progress) const override {
    for (std::size_t g = progress.groups.size(); g-- > 0;) {
      const GroupProgress& group = progress.groups[g];
      if (group.gather_started) {
        continue;
      }
      if (group.reduce_done) {
        return {{Phase::kAllGather, g}};
      }
      if (group.ready && !group.reduce_started) {
        return {{Phase::kReduceScatter, g}};
      }
      return {};
    }
    return {};
  }
};

/// The paper's: reduce-scatter during backward, and not one all-gather before the last of them is done and step() was called.
class DearSchedule final : public Schedule {
 public:
  std::string_view name() const override { return "dear"; }
  ScheduleTraits traits() const override { return {.barrier_in_step = true, .allows_sharded = true}; }
  std::vector<Action> next(const IterationProgress& progress) const override {
    std::vector<Action> actions = ready_reduce_scatters(progress);
    const bool all_reduced =
        std::all_of(progress.groups.begin(), progress.groups.end(), [](const GroupProgress& g) { return g.reduce_done; });
    if (progress.step_called && all_reduced) {
      append_finished_gathers(progress, actions);
    }
    return actions;
  }
};

/// Ours: as dear, but without the barrier; an all-gather uses the link whenever no reduce-scatter waits to be started.
class WeaveSchedule final : public Schedule {
 public:
  std::string_view name() const override { return "weave"; }
  ScheduleTraits traits() const override { return {.allows_sharded = true}; }
  std::vector<Action> next(const IterationProgress& progress) const override {
    std::vector<Action> actions = ready_reduce_scatters(progress);
    if (actions.empty() && may_gather(progress)) {
      append_finished_gathers(progress, actions);
    }
    return actions;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Schedule>> make_schedule(std::string_view name) {
  if (name == "sync") {
    return std::make_unique<SyncSchedule>();
  }
  if (name == "wfbp") {
    return std::make_unique<WfbpSchedule>();
  }
  if (name == "dear") {
    return std::make_unique<DearSchedule>();
  }
  if (name == "weave") {
    return std::make_unique<WeaveSchedule>();
  }
  return base::error(absl::StatusCode::kInvalidArgument, "schedule '{}' is unknown; take one of sync, wfbp, dear, weave", name);
}

}  // namespace maypole::overlap
