// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where one model stands in its iteration. Plain state and its transitions; the engine guards it with its mutex.
//
//     kIdle -> kOpen (first gradient) -> kClosed (end of backward) -> kStepped (step()) -> kIdle (all groups current)
//                 ^------ further round ------'
//
// Invariants: a round begins only when nothing of the model is in motion; parameters change only in kStepped, or within a step() call.

#include "maypole/comm/communicator.h"
#include "maypole/pipeline/engine.h"
#include "maypole/pipeline/fusion_tuner.h"
#include "maypole/pipeline/measurements.h"
#include "maypole/pipeline/model_memory.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace maypole::pipeline {

enum class Stage { kIdle, kOpen, kClosed, kStepped };

struct GroupState {
  std::size_t outstanding = 0;  // tensors whose gradient is still to come in this round
  bool updated = false;         // this rank's part of the update is done
  bool kept = false;            // what it replaced is at hand
  bool current = true;          // the group's parameters may be used
  base::TimePoint reduce_begin{};
  base::TimePoint gather_begin{};
};

struct ModelState {
  ModelState(ModelId model, std::vector<ParameterSpec> parameters, const ModelOptions& model_options,
             std::unique_ptr<overlap::Schedule> model_schedule, std::unique_ptr<ModelMemory> model_memory);

  // Constant.
  const ModelId id;
  const std::vector<ParameterSpec> specs;
  const ModelOptions options;
  const std::unique_ptr<overlap::Schedule> schedule;
  const std::unique_ptr<ModelMemory> memory;
  const bool sharded;
  std::vector<std::size_t> param_group;  // [parameter]

  bool given_up = false;  // removed on this rank, but a peer may still read its shards

  // The round.
  Stage stage = Stage::kIdle;
  std::uint64_t round = 0;  // rounds that this model ever began: part of every tag, equal on all ranks
  int rounds_in_step = 0;
  std::uint64_t discards = 0;  // discard_gradients() calls that dropped a round
  std::vector<overlap::GroupProgress> progress;
  std::vector<GroupState> groups;
  std::vector<std::uint8_t> arrived;  // [parameter]: its gradient came in this round
  std::vector<std::uint8_t> used;     // [parameter]: some rank had a gradient since the last step
  bool flags_done = false;            // `used` has been agreed in this round
  bool gather_forced = false;         // averages are gathered now, whatever the schedule says
  bool synchronized = false;          // every gradient holds the average on this rank
  double scale = 1;                   // still to be applied to the averaged gradient
  std::size_t gathers_in_motion = 0;  // all-gathers that were opened and are not done
  bool parameters_open = false;       // sharded: the all-gathers of this step's parameters are open

  // The step.
  std::uint64_t steps = 0;          // step() calls
  std::uint64_t updates_begun = 0;  // the last step whose update has begun on this rank, and has ended
  std::uint64_t updates_done = 0;
  bool updating = false;           // the engine thread is in the middle of a group
  std::uint64_t gather_order = 0;  // when step() or a forced gather was, among all models
  std::vector<Hyperparameters> hyper;
  bool drop = false;                       // this step updates nothing
  std::vector<std::int64_t> update_count;  // [parameter]
  std::atomic<bool> settled{true};         // all parameters are current: the short cut of before_use()

  Measurements measurements;

  std::optional<FusionTuner> tuner;              // touched by the computing thread only; none: the groups stay
  std::atomic<bool> observing{false};            // the tuner wants to know of every first use
  std::optional<overlap::FusionPlan> next_plan;  // takes effect when the next step's first round begins

  [[nodiscard]] const overlap::FusionPlan& plan() const { return memory->plan(); }
  [[nodiscard]] std::size_t num_groups() const { return groups.size(); }
  /// `parameter 'fc.weight' (3 of model 0)`.
  [[nodiscard]] std::string describe(std::size_t i) const;
  /// `reduce-scatter done for 2 of 5 groups, all-gather for 1`.
  [[nodiscard]] std::string describe_progress() const;

  /// Takes next_plan, if there is one; nothing is in motion.
  void take_next_plan();
  /// Starts the next round; the first of a step forgets what was used.
  void begin_round();
  /// Counts gradient i in; groups that have all theirs become ready. Returns whether one did.
  bool gradient_arrived(std::size_t i);
  /// Takes gradient i out again, for a second contribution. False: a group of it is already being reduced.
  bool reopen_gradient(std::size_t i);
  /// Every gradient that has not come counts as zeros.
  void close_round();
  [[nodiscard]] bool all_reduced() const;
  [[nodiscard]] bool all_gathered() const;
  [[nodiscard]] bool all_current() const;
  /// Replicated, in kStepped: every average is here, so that the update ends whatever becomes of the peers.
  [[nodiscard]] bool updates_on_alone() const;
  /// step() or a wait for averages has asked for all-gathers, and they are not all done: perhaps not even opened yet.
  [[nodiscard]] bool owes_gathers() const;
  /// The tag of the all-gather of group g: unique among models, rounds, and what is gathered.
  [[nodiscard]] std::uint64_t tag(std::size_t g, bool parameters) const;
  [[nodiscard]] overlap::IterationProgress view() const;
  /// Counts an update for every parameter used; called once per step.
  void count_updates();
  [[nodiscard]] UpdateOrder update_order() const;
  /// Forgets the round; nothing is in motion, all parameters are current.
  void become_idle();
};

}  // namespace maypole::pipeline
