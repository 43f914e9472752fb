// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/iteration_simulator.h"

#include "maypole/base/check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>

namespace maypole::overlap {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kNoTime = 1e-15;  // what rounding leaves of a transfer
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

/// One iteration in motion.
class Run {
 public:
  Run(const Schedule& schedule, std::span<const GroupLoad> loads, const IterationSetting& setting)
      : schedule_(schedule), loads_(loads), setting_(setting), progress_(loads.size()), groups_(loads.size()), gather_left_(loads.size()) {
    by_ready_.resize(loads.size());
    std::iota(by_ready_.rbegin(), by_ready_.rend(), std::size_t{0});  // the last group first, where gradients come at the same time
    std::ranges::stable_sort(by_ready_, {}, [&](std::size_t g) { return loads[g].ready_s; });
    by_need_.resize(loads.size());
    std::iota(by_need_.begin(), by_need_.end(), std::size_t{0});
    std::ranges::stable_sort(by_need_, {}, [&](std::size_t g) { return loads[g].need_s; });
    current_.assign(loads.size(), false);
    updated_.assign(loads.size(), false);
    for (const GroupLoad& load : loads) {
      total_bytes_ += load.bytes;
    }
  }

  SimulatedIteration finish() {
    while (stage_ != Stage::kDone) {
      settle();
      if (stage_ != Stage::kDone) {
        advance();
      }
    }
    return result();
  }

 private:
  enum class Stage { kBackward, kSyncWait, kSyncUpdate, kForward, kDone };

  struct Transfer {
    Phase phase = Phase::kReduceScatter;
    std::size_t group = kNone;
    double left_s = 0;
    double slice_s = kNever;  // until it makes way for something more urgent
    double began_s = 0;
  };

  [[nodiscard]] bool updates_in_step() const { return schedule_.traits().gradients_after_backward; }
  [[nodiscard]] double cost(std::size_t g) const { return setting_.phase(loads_[g].bytes); }
  /// Seconds of computing that a second of this group on the link costs.
  [[nodiscard]] double contention(std::size_t g) const {
    const double workers = static_cast<double>(setting_.workers);
    const double sent = loads_[g].bytes * (workers - 1) / workers;
    return cost(g) > 0 ? setting_.contention_s_per_byte * sent / cost(g) : 0;
  }

  /// Does all that takes no time.
  void settle() {
    while (changed_) {
      changed_ = false;
      if (asks_) {
        asks_ = false;
        ask_schedule();
      }
      choose_transfer();
      choose_update();
      move_compute();
    }
  }

  // --- schedule ---

  void ask_schedule() {
    for (const Action& action : schedule_.next({progress_, backward_done_, step_called_, setting_.update})) {
      if (action.phase == Phase::kReduceScatter) {
        progress_[action.group].reduce_started = true;
        reduces_.push(action.group);
      } else {
        if (setting_.update == UpdateMode::kSharded && !updated_[action.group]) {
          continue;  // new parameters are gathered: asked again once they are there
        }
        progress_[action.group].gather_started = true;
        gather_left_[action.group] = cost(action.group);
        gathers_.push(action.group);
      }
      note();
    }
  }

  void note() {
    changed_ = true;
    asks_ = true;
  }

  // --- link ---

  void choose_transfer() {
    if (transfer_.group == kNone) {
      if (!reduces_.empty()) {
        transfer_ = {Phase::kReduceScatter, reduces_.front(), cost(reduces_.front()), kNever, now_s_};
        reduces_.pop();
        changed_ = true;
      } else if (!gathers_.empty()) {
        const std::size_t g = gathers_.top();
        gathers_.pop();
        transfer_ = {Phase::kAllGather, g, gather_left_[g], kNever, now_s_};
        changed_ = true;
      }
      return;
    }
    const bool outdone =
        transfer_.phase == Phase::kAllGather && (!reduces_.empty() || (!gathers_.empty() && gathers_.top() < transfer_.group));
    if (outdone && transfer_.slice_s == kNever) {
      // The segment on the wire is finished first.
      const double done_s = cost(transfer_.group) - transfer_.left_s;
      const double segment_s = setting_.segment_s;
      const double boundary_s = segment_s > 0 ? std::ceil(done_s / segment_s - 1e-9) * segment_s : done_s;
      transfer_.slice_s = std::max(0.0, boundary_s - done_s);
    }
  }

  void end_transfer(bool whole) {
    const std::size_t g = transfer_.group;
    const bool reduce = transfer_.phase == Phase::kReduceScatter;
    (reduce ? groups_[g].reduce_scatter_s : groups_[g].all_gather_s) += now_s_ - transfer_.began_s;
    record(reduce ? Lane::kReduceScatter : Lane::kAllGather, static_cast<int>(g), transfer_.began_s);
    if (whole) {
      (reduce ? progress_[g].reduce_done : progress_[g].gather_done) = true;
      num_gathered_ += reduce ? 0 : 1;
      note_finished(g);
    } else {
      gather_left_[g] = transfer_.left_s;
      gathers_.push(g);
    }
    transfer_.group = kNone;
    note();
  }

  // --- update ---

  /// A phase of group g has ended: it may be current, or may be updated.
  void note_finished(std::size_t g) {
    const GroupProgress& group = progress_[g];
    if (updates_in_step()) {
      current_[g] = group.gather_done;
      return;
    }
    const bool final_here = setting_.update == UpdateMode::kSharded ? group.reduce_done : group.gather_done;
    if (final_here && !updated_[g] && step_called_ && updating_ != g) {
      if (setting_.update_s == 0) {
        updated_[g] = true;
        note();
      } else {
        updates_.push(g);
      }
    }
    current_[g] = updated_[g] && group.gather_done;
  }

  void choose_update() {
    if (updating_ == kNone && !updates_.empty()) {
      updating_ = updates_.top();
      updates_.pop();
      const double share = setting_.update == UpdateMode::kSharded ? 1.0 / static_cast<double>(setting_.workers) : 1.0;
      update_left_s_ = total_bytes_ > 0 ? setting_.update_s * share * loads_[updating_].bytes / total_bytes_ : 0;
      update_began_s_ = now_s_;
      changed_ = true;
    }
  }

  void end_update() {
    const std::size_t g = updating_;
    record(Lane::kUpdate, static_cast<int>(g), update_began_s_);
    updating_ = kNone;
    updated_[g] = true;
    current_[g] = progress_[g].gather_done;
    note();
  }

  // --- compute ---

  /// Work at which compute next does something else.
  [[nodiscard]] double target() const {
    if (stage_ == Stage::kBackward) {
      return next_ < by_ready_.size() ? std::min(loads_[by_ready_[next_]].ready_s, setting_.backward_s) : setting_.backward_s;
    }
    return next_ < by_need_.size() ? std::min(loads_[by_need_[next_]].need_s, setting_.forward_s) : setting_.forward_s;
  }

  [[nodiscard]] bool computing() const { return (stage_ == Stage::kBackward || stage_ == Stage::kForward) && !blocked_; }

  void move_compute() {
    if (stage_ == Stage::kBackward && work_s_ >= target()) {
      move_backward();
    } else if (stage_ == Stage::kSyncWait && num_gathered_ == loads_.size()) {
      stop_waiting();
      stage_ = Stage::kSyncUpdate;
      step_update_left_s_ = setting_.update_s;
      compute_began_s_ = now_s_;
      changed_ = true;
    } else if (stage_ == Stage::kForward && work_s_ >= target()) {
      move_forward();
    }
  }

  void move_backward() {
    changed_ = true;
    if (next_ < by_ready_.size()) {
      const std::size_t g = by_ready_[next_++];
      if (loads_[g].ready_delay_s > 0) {
        delayed_.push({now_s_ + loads_[g].ready_delay_s, g});
      } else {
        progress_[g].ready = true;
        asks_ = true;
      }
      return;
    }
    record(Lane::kCompute, -1, compute_began_s_);
    backward_done_ = true;
    asks_ = true;
    if (updates_in_step()) {
      stage_ = Stage::kSyncWait;
      wait_began_s_ = now_s_;
      waiting_for_ = kNone;
    } else {
      step();
    }
  }

  void step() {
    step_called_ = true;
    step_s_ = now_s_;
    stage_ = Stage::kForward;
    compute_began_s_ = now_s_;
    work_s_ = 0;
    next_ = 0;
    note();
    if (!updates_in_step()) {
      for (std::size_t g = 0; g < loads_.size(); ++g) {
        note_finished(g);
      }
    }
  }

  void move_forward() {
    if (next_ < by_need_.size()) {
      const std::size_t g = by_need_[next_];
      if (current_[g]) {
        if (blocked_) {
          blocked_ = false;
          stop_waiting();
          compute_began_s_ = now_s_;
        }
        ++next_;
        changed_ = true;
      } else if (!blocked_) {
        blocked_ = true;
        record(Lane::kCompute, -1, compute_began_s_);
        wait_began_s_ = now_s_;
        waiting_for_ = g;
        changed_ = true;
      }
      return;
    }
    record(Lane::kCompute, -1, compute_began_s_);
    stage_ = Stage::kDone;
  }

  void stop_waiting() {
    if (waiting_for_ != kNone) {
      groups_[waiting_for_].exposed_s += now_s_ - wait_began_s_;
      exposed_s_ += now_s_ - wait_began_s_;
      record(Lane::kWait, static_cast<int>(waiting_for_), wait_began_s_);
    }
    waiting_for_ = kNone;
    wait_began_s_ = now_s_;
  }

  // --- time ---

  void advance() {
    const bool link_busy = transfer_.group != kNone;
    const double slowdown = link_busy ? 1 + contention(transfer_.group) : 1;
    const double compute_s = computing() ? (target() - work_s_) * slowdown : stage_ == Stage::kSyncUpdate ? step_update_left_s_ : kNever;
    const double transfer_s = link_busy ? std::min(transfer_.left_s, transfer_.slice_s) : kNever;
    const double update_s = updating_ != kNone ? update_left_s_ : kNever;
    const double ready_s = delayed_.empty() ? kNever : delayed_.top().at_s - now_s_;
    const double elapsed = std::max(0.0, std::min({compute_s, transfer_s, update_s, ready_s}));
    MAYPOLE_CHECK(elapsed < kNever);  // else the schedule has forgotten a group
    attribute_wait();
    now_s_ += elapsed;
    if (computing()) {
      work_s_ = compute_s <= elapsed ? target() : work_s_ + elapsed / slowdown;
    } else if (stage_ == Stage::kSyncUpdate) {
      step_update_left_s_ -= elapsed;
      if (compute_s <= elapsed) {
        record(Lane::kUpdate, -1, compute_began_s_);
        step();
      }
    }
    changed_ = true;
    if (link_busy) {
      transfer_.left_s -= elapsed;
      transfer_.slice_s -= elapsed;
      if (transfer_s <= elapsed) {
        end_transfer(transfer_.left_s <= kNoTime);
      }
    }
    if (updating_ != kNone) {
      update_left_s_ -= elapsed;
      if (update_s <= elapsed) {
        end_update();
      }
    }
    if (ready_s <= elapsed) {
      progress_[delayed_.top().group].ready = true;
      delayed_.pop();
      note();
    }
  }

  /// After backward, compute stands still for the group on the link, or for one whose turn has not come.
  void attribute_wait() {
    if (stage_ != Stage::kSyncWait) {
      return;
    }
    const auto waits = [&](const GroupProgress& group) { return !group.gather_done; };
    const auto missing = static_cast<std::size_t>(std::ranges::find_if(progress_, waits) - progress_.begin());
    const std::size_t group = transfer_.group != kNone ? transfer_.group : missing;
    if (group != waiting_for_) {
      stop_waiting();
      waiting_for_ = group;
    }
  }

  void record(Lane lane, int group, double begin_s) {
    if (setting_.record && now_s_ > begin_s) {
      timeline_.push_back({lane, group, stage_ == Stage::kForward, begin_s, now_s_});
    }
  }

  SimulatedIteration result() {
    SimulatedIteration iteration;
    iteration.iteration_s = now_s_;
    iteration.step_s = step_s_;
    iteration.exposed_s = exposed_s_;
    iteration.bound_s = iteration_bound(setting_, total_bytes_);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      groups_[g].bytes = loads_[g].bytes;
      iteration.reduce_scatter_s += groups_[g].reduce_scatter_s;
      iteration.all_gather_s += groups_[g].all_gather_s;
      iteration.communication_s += 2 * cost(g);
    }
    iteration.groups = std::move(groups_);
    iteration.timeline = std::move(timeline_);
    return iteration;
  }

  struct Delayed {
    double at_s;
    std::size_t group;
    bool operator<(const Delayed& other) const { return at_s > other.at_s || (at_s == other.at_s && group < other.group); }
  };
  using LowestFirst = std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>>;

  const Schedule& schedule_;
  const std::span<const GroupLoad> loads_;
  const IterationSetting& setting_;
  std::vector<GroupProgress> progress_;
  std::vector<SimulatedGroup> groups_;
  std::vector<Span> timeline_;
  std::vector<std::size_t> by_ready_;
  std::vector<std::size_t> by_need_;
  double total_bytes_ = 0;
  double now_s_ = 0;
  bool changed_ = true;  // something happened at this moment
  bool asks_ = true;     // ... that the schedule should hear of

  Stage stage_ = Stage::kBackward;
  bool backward_done_ = false;
  bool step_called_ = false;
  bool blocked_ = false;
  double work_s_ = 0;     // in this pass
  std::size_t next_ = 0;  // in by_ready_ or by_need_
  double step_s_ = 0;
  double step_update_left_s_ = 0;
  double compute_began_s_ = 0;
  double wait_began_s_ = 0;
  double exposed_s_ = 0;
  std::size_t waiting_for_ = kNone;

  std::queue<std::size_t> reduces_;
  LowestFirst gathers_;
  std::vector<double> gather_left_;
  std::size_t num_gathered_ = 0;
  Transfer transfer_;

  LowestFirst updates_;
  std::size_t updating_ = kNone;
  double update_left_s_ = 0;
  double update_began_s_ = 0;
  std::vector<bool> updated_;
  std::vector<bool> current_;
  std::priority_queue<Delayed> delayed_;
};

}  // namespace

std::vector<PlannedTensor> planned_tensors(const model::Profile& profile) {
  std::vector<PlannedTensor> tensors;
  tensors.reserve(profile.tensors.size());
  for (const model::ProfiledTensor& tensor : profile.tensors) {
    tensors.push_back({tensor.elements, tensor.dtype});
  }
  return tensors;
}

std::vector<GroupLoad> group_loads(const model::Profile& profile, const FusionPlan& plan) {
  std::vector<double> forward_before(profile.layers.size() + 1, 0);
  std::vector<double> backward_before(profile.layers.size() + 1, 0);
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    forward_before[l + 1] = forward_before[l] + profile.layers[l].forward.median_s;
    backward_before[l + 1] = backward_before[l] + profile.layers[l].backward.median_s;
  }
  std::vector<GroupLoad> loads;
  loads.reserve(plan.groups.size());
  for (const Group& group : plan.groups) {
    const std::size_t first = profile.tensors[group.tensors.front()].layer;
    loads.push_back({.bytes = static_cast<double>(group.range.size() * base::size_of(plan.arenas[group.arena].dtype)),
                     .ready_s = backward_before.back() - backward_before[first],
                     .need_s = forward_before[first]});
  }
  return loads;
}

IterationSetting setting_of(const model::Profile& profile, const Network& network, std::size_t workers) {
  return {.forward_s = profile.forward_s(),
          .backward_s = profile.backward_s(),
          .update_s = profile.update_s,
          .phase = phase_cost(network, workers),
          .segment_s = segment_s(network, workers),
          .contention_s_per_byte = contention_s_per_byte(network, workers),
          .workers = workers};
}

double iteration_bound(const IterationSetting& setting, double bytes) {
  return std::max(setting.forward_s + setting.backward_s, bytes > 0 ? 2 * setting.phase(bytes) : 0);
}

SimulatedIteration simulate(const Schedule& schedule, std::span<const GroupLoad> groups, const IterationSetting& setting) {
  return Run(schedule, groups, setting).finish();
}

SimulatedIteration simulate(const model::Profile& profile, const Network& network, std::size_t workers, const Schedule& schedule,
                            const FusionPlan& plan) {
  return simulate(schedule, group_loads(profile, plan), setting_of(profile, network, workers));
}

}  // namespace maypole::overlap
