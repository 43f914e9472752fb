// SPDX-License-Identifier: Apache-2.0
#pragma once

// The engine that runs schedules: it knows arenas, groups, collectives and updates, and neither Python nor torch.
//
//     gradient ready -> RS(group) -> [update of my shard] -> AG(group) -> [update of all] -> first use of the group's tensors
//
// A model is the set of parameters of one optimizer. One engine serves all models of a process. An iteration of a model is one or
// more rounds (each outermost backward outside no_sync is a round: every group is reduced once, missing gradients count as zeros)
// and one step. Within a round all calls come from the thread that computes; the engine's own thread starts operations, updates and
// records. Nothing that a script can see (parameters) changes between end_backward() and step().
//
// Memory: one shared-memory arena of parameters and one of gradients per dtype. Averaged gradients land in the gradient arena, which
// is private to the engine while a round is in motion: an averaged element can only arrive after this rank's own contribution to it
// has been consumed.

#include "maypole/base/dtype.h"
#include "maypole/base/units.h"
#include "maypole/comm/communicator.h"
#include "maypole/model/block_layout.h"
#include "maypole/overlap/fusion_plan.h"
#include "maypole/overlap/schedule.h"
#include "maypole/pipeline/optimizer.h"
#include "maypole/pipeline/report.h"

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace maypole::pipeline {

struct EngineOptions {
  base::Nanoseconds timeout = std::chrono::minutes(30);  // how long a live but busy peer may keep this rank waiting
  bool timeline = false;                                 // record events for write_timeline()
};

struct ParameterSpec {
  std::string name;
  std::size_t count = 0;  // elements
  base::DType dtype = base::DType::kFloat32;
  std::size_t param_group = 0;  // index into StepOptions::hyper
};

struct ModelOptions {
  std::string schedule = "weave";
  overlap::UpdateMode update = overlap::UpdateMode::kReplicated;
  OptimizerKind optimizer = OptimizerKind::kNone;
  int num_state_slots = 0;  // state arrays that the optimizer needs (0, 1, 2)
  overlap::FusionOptions fusion;
  Cuts cuts;                       // groups to begin with instead of those of `fusion`, whose block size they have; empty: none
  TunedFor tuned_for;              // what an earlier run tuned `cuts` for; zeros: nothing is known
  std::string fusion_search;       // tune the groups while training (fusion_tuner.h): auto, plan, bayes, random, grid; empty: they stay
  bool compress_bfloat16 = false;  // float32 travels as bfloat16
  // What updates replace stays beside it until the step is whole here, for read_shard() and take_back(): as much memory as parameters and
  // state that this rank updates.
  bool keep_previous = false;
};

struct StepOptions {
  std::vector<Hyperparameters> hyper;  // one per param group
  bool skip = false;                   // GradScaler found inf: drop the gradients, update nothing
};

using ModelId = std::size_t;

/// What keeps memory where it is: the front end's tensors over it may outlive the model and the engine.
struct MemoryHandles {
  using List = std::vector<std::shared_ptr<const void>>;
  List parameters;
  List gradients;
  List state;
};

/// Shared where it has to outlive the interpreter (process_end.h).
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  /// Takes the communicator. Starts the engine thread.
  static absl::StatusOr<std::unique_ptr<Engine>> create(std::unique_ptr<comm::Communicator> communicator, const EngineOptions& options);
  virtual ~Engine() = default;

  [[nodiscard]] virtual comm::Communicator& communicator() = 0;

  /// Collective. Parameters in forward order (rank 0's order; the front end agrees on it beforehand). Checks that names, counts,
  /// dtypes and options are equal on all ranks and names the first difference. Arenas are zero afterwards.
  [[nodiscard]] virtual absl::StatusOr<ModelId> add_model(std::vector<ParameterSpec> parameters, const ModelOptions& options) = 0;

  /// Memory of parameter i, gradient i: `count` elements, stable until the model is removed, valid while any handle lives.
  [[nodiscard]] virtual std::span<std::byte> parameter(ModelId model, std::size_t i) = 0;
  [[nodiscard]] virtual std::span<std::byte> gradient(ModelId model, std::size_t i) = 0;
  /// Keeps the memory of parameter(), gradient() and state() for as long as the front end's tensors live.
  [[nodiscard]] virtual MemoryHandles handles(ModelId model) = 0;
  [[nodiscard]] virtual const overlap::FusionPlan& plan(ModelId model) = 0;

  // --- one iteration, from the computing thread ---

  /// Marks for the report: forward begins / backward begins.
  virtual void mark_forward(ModelId model) = 0;
  virtual void mark_backward(ModelId model) = 0;
  /// A gradient of parameter i for this round. Copies `source` (count elements) into the arena; null: it is there already.
  /// A second call for i in one round adds `source` (re-entrant checkpointing); once the group's reduce-scatter has begun that is an
  /// error by name (schedule sync begins none before backward ends). The first call of a further round before step() waits for the
  /// previous round; the round's gradients are added to its average.
  [[nodiscard]] virtual absl::Status gradient_ready(ModelId model, std::size_t i, const std::byte* source) = 0;
  /// The outermost backward has ended, for every model whose round is open: what is missing counts as zeros. sync, wfbp: waits for the
  /// averages. A no-op when no gradient came since the last one.
  [[nodiscard]] virtual absl::Status end_backward(ModelId model) = 0;
  /// Gradients are final. Updates run with these hyperparameters, in this call (sync, wfbp, kNone does not update) or behind it
  /// (dear, weave). Does not wait for groups that the next forward can wait for itself. Ends a round left open (zeros for what is missing),
  /// and runs one of zeros if there was none. After synchronize(), a replicated update is done when this returns, and is done even where a
  /// peer has been lost since: either all of the step is in the parameters, or nothing.
  [[nodiscard]] virtual absl::Status step(ModelId model, const StepOptions& options) = 0;
  /// Waits until parameter i is current. Cheap when it is.
  [[nodiscard]] virtual absl::Status before_use(ModelId model, std::size_t i) = 0;
  /// Whether before_use(i) would wait.
  [[nodiscard]] virtual bool in_motion(ModelId model, std::size_t i) = 0;
  /// Whether before_use() is to be called at the first use of each parameter, in motion or not, for the tuner's sake.
  [[nodiscard]] virtual bool notes_first_use(ModelId model) = 0;

  // --- gradients before step() ---

  /// Waits until every gradient holds the average over ranks; step() then updates from gradient memory as the front end left it.
  /// Collective in effect: with dear and weave every rank must reach it or step(). Runs a round of zeros if there was no backward since
  /// the last step(): to read gradients after step() take flush().
  [[nodiscard]] virtual absl::Status synchronize(ModelId model) = 0;
  /// After synchronize(): whether any rank had a gradient for parameter i. Unused parameters are not updated.
  [[nodiscard]] virtual bool used(ModelId model, std::size_t i) = 0;
  /// After synchronize(): overrides used(i), for gradients that the script set or removed.
  virtual void set_used(ModelId model, std::size_t i, bool used) = 0;
  /// Norm of the averaged gradient over all parameters, without gathering it (one small all-reduce of shard norms).
  /// norm_type >= 1, or infinity. Collective.
  [[nodiscard]] virtual absl::StatusOr<double> gradient_norm(ModelId model, double norm_type) = 0;
  /// Multiplies the averaged gradient by `factor` at the update (and in synchronize()).
  virtual void scale_gradients(ModelId model, double factor) = 0;
  /// zero_grad: forgets the rounds since the last step(). Collective in effect.
  [[nodiscard]] virtual absl::Status discard_gradients(ModelId model) = 0;

  /// Waits until all parameters are current.
  [[nodiscard]] virtual absl::Status flush(ModelId model) = 0;

  /// Cuts the arenas into other groups, from the next round that begins a step on. Collective: every rank calls it at the same place with
  /// equal sizes, which is checked. Nothing moves, since who owns an element does not depend on groups, and nothing is in motion when it
  /// takes effect. The report begins anew then. Errors: kInvalidArgument for another block size than the model was added with, zero sizes,
  /// too many groups; kFailedPrecondition where ranks differ.
  [[nodiscard]] virtual absl::Status regroup(ModelId model, const overlap::FusionOptions& fusion) = 0;

  // --- optimizer state ---

  /// Number of updates that parameter i has had.
  [[nodiscard]] virtual std::int64_t update_count(ModelId model, std::size_t i) = 0;
  virtual void set_update_count(ModelId model, std::size_t i, std::int64_t count) = 0;
  /// Replicated: the state array itself (count elements). Sharded: an empty span.
  [[nodiscard]] virtual std::span<std::byte> state(ModelId model, std::size_t i, int slot) = 0;
  /// The whole state array of parameter i; with sharded updates the peers' engine threads are asked, without their callers.
  [[nodiscard]] virtual absl::StatusOr<std::vector<std::byte>> read_state(ModelId model, std::size_t i, int slot) = 0;
  /// Sets it from `count` elements; a shard keeps its part.
  [[nodiscard]] virtual absl::Status write_state(ModelId model, std::size_t i, int slot, std::span<const std::byte> values) = 0;

  // --- shards: what a rank that is lost takes with it, for those who keep copies (sharded updates) ---

  /// The elements of parameter i that rank `rank` updates, counted from the parameter's first element, ascending.
  [[nodiscard]] virtual std::vector<model::Interval> shard_elements(ModelId model, std::size_t i, int rank) = 0;
  /// This rank's shard as it was after `steps` step() calls: the update count of each parameter (8 bytes each); then of each parameter its
  /// own elements, and those of each state array. It is there after an error, too. kUnavailable: not on this rank. A step whose parameters
  /// are in motion and the one before it both are (the latter with ModelOptions::keep_previous), so that ranks, of which some had begun
  /// to update when others could not finish the step's last reduce-scatter, have one in common.
  [[nodiscard]] virtual absl::StatusOr<std::vector<std::byte>> read_shard(ModelId model, std::uint64_t steps) = 0;
  /// Peers may fetch() `bytes` under `number` (below 2^24) from now on; null: no more.
  virtual void offer(std::uint32_t number, std::shared_ptr<const std::vector<std::byte>> bytes) = 0;
  /// Piece `piece` of kOfferPiece bytes (the last has what is left) of what `peer` offers; waits until it does. Thread: any.
  [[nodiscard]] virtual absl::StatusOr<std::vector<std::byte>> fetch(int peer, std::uint32_t number, std::uint32_t piece) = 0;
  static constexpr std::size_t kOfferPiece = std::size_t{256} << 10;

  /// Replicated updates, after an error: makes parameters and state what the last step() left that is whole on this rank, and returns how
  /// many came before it, with it. It is the last one called, where all averages had come: its update is then finished without any peer.
  /// Else it is the one before it, whose values ModelOptions::keep_previous has kept. Without an error: waits for nothing that is in
  /// motion. Nothing but reading follows. kFailedPrecondition: sharded, or an update has begun and nothing was kept.
  [[nodiscard]] virtual absl::StatusOr<std::uint64_t> take_back(ModelId model) = 0;

  // --- end ---
  /// Forgets a model: no call may name it any more, and its memory goes when the last handle does. Ranks may do it at different times, and
  /// its number is given to a later model only when all have. With sharded updates peers may read this rank's state until then; so the
  /// memory stays until the next add_model() finds that all have, unless the ranks have `agreed` that nobody reads any more.
  /// kFailedPrecondition while anything of it is in motion or waits for a step(): discard_gradients() and flush() end that.
  [[nodiscard]] virtual absl::Status remove_model(ModelId model, bool agreed) = 0;
  [[nodiscard]] virtual Report report(ModelId model) = 0;
  /// How the groups came about; texts and trials on rank 0 only. Empty without a tuner.
  [[nodiscard]] virtual TuningReport tuning(ModelId model) = 0;
  /// TuningReport::settled alone: cheap enough to ask in every step.
  [[nodiscard]] virtual std::size_t times_tuned(ModelId model) = 0;
  /// Chrome trace event JSON (opens in Perfetto), this rank's events. Errors name the path (full disk, no permission).
  [[nodiscard]] virtual absl::Status write_timeline(const std::string& path) = 0;
  /// Drops gradients without a step(), flushes, says goodbye to the peers and serves them until all have ended.
  [[nodiscard]] virtual absl::Status finalize() = 0;
};

}  // namespace maypole::pipeline
