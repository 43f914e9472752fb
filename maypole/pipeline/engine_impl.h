// SPDX-License-Identifier: Apache-2.0
#pragma once

// The engine's insides. Three threads meet here:
//   the computing thread calls Engine's methods (one at a time);
//   the engine thread (engine_thread.cc) starts operations as the schedules say, and updates;
//   the communicator's progress thread ends operations, and asks for state on behalf of peers.
// One mutex guards the state of all models; nobody holds it while copying, computing, or calling the communicator.

#include "maypole/base/mutex.h"
#include "maypole/pipeline/engine.h"
#include "maypole/pipeline/model_state.h"
#include "maypole/pipeline/timeline.h"

#include <absl/functional/function_ref.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace maypole::pipeline {

/// The plan of a model's parameters. Errors (kInvalidArgument): zero sizes, more groups than tags can name.
[[nodiscard]] absl::StatusOr<overlap::FusionPlan> plan_of(const std::vector<ParameterSpec>& parameters,
                                                          const overlap::FusionOptions& fusion, const Cuts& cuts = {});

class EngineImpl final : public Engine {
 public:
  EngineImpl(std::unique_ptr<comm::Communicator> communicator, const EngineOptions& options);
  ~EngineImpl() override;
  EngineImpl(const EngineImpl&) = delete;
  EngineImpl& operator=(const EngineImpl&) = delete;

  comm::Communicator& communicator() override { return *communicator_; }
  absl::StatusOr<ModelId> add_model(std::vector<ParameterSpec> parameters, const ModelOptions& options) override;
  std::span<std::byte> parameter(ModelId model, std::size_t i) override;
  std::span<std::byte> gradient(ModelId model, std::size_t i) override;
  MemoryHandles handles(ModelId model) override;
  const overlap::FusionPlan& plan(ModelId model) override;

  void mark_forward(ModelId model) override;
  void mark_backward(ModelId model) override;
  absl::Status gradient_ready(ModelId model, std::size_t i, const std::byte* source) override;
  absl::Status end_backward(ModelId model) override;
  absl::Status step(ModelId model, const StepOptions& options) override;
  absl::Status before_use(ModelId model, std::size_t i) override;
  bool in_motion(ModelId model, std::size_t i) override;
  bool notes_first_use(ModelId id) override { return model(id).observing.load(std::memory_order_relaxed); }

  absl::Status synchronize(ModelId model) override;
  bool used(ModelId model, std::size_t i) override;
  void set_used(ModelId model, std::size_t i, bool used) override;
  absl::StatusOr<double> gradient_norm(ModelId model, double norm_type) override;
  void scale_gradients(ModelId model, double factor) override;
  absl::Status discard_gradients(ModelId model) override;
  absl::Status flush(ModelId model) override;
  absl::Status regroup(ModelId model, const overlap::FusionOptions& fusion) override;

  std::int64_t update_count(ModelId model, std::size_t i) override;
  void set_update_count(ModelId model, std::size_t i, std::int64_t count) override;
  std::span<std::byte> state(ModelId model, std::size_t i, int slot) override;
  absl::StatusOr<std::vector<std::byte>> read_state(ModelId model, std::size_t i, int slot) override;
  absl::Status write_state(ModelId model, std::size_t i, int slot, std::span<const std::byte> values) override;

  std::vector<model::Interval> shard_elements(ModelId model, std::size_t i, int rank) override;
  absl::StatusOr<std::vector<std::byte>> read_shard(ModelId model, std::uint64_t steps) override;
  absl::StatusOr<std::uint64_t> take_back(ModelId model) override;
  void offer(std::uint32_t number, std::shared_ptr<const std::vector<std::byte>> bytes) override;
  absl::StatusOr<std::vector<std::byte>> fetch(int peer, std::uint32_t number, std::uint32_t piece) override;

  absl::Status remove_model(ModelId model, bool agreed) override;
  Report report(ModelId model) override;
  TuningReport tuning(ModelId model) override;
  std::size_t times_tuned(ModelId model) override;
  absl::Status write_timeline(const std::string& path) override;
  absl::Status finalize() override;

 private:
  /// An operation that the engine thread decided on under the mutex, to be started without it.
  struct Start {
    ModelState* model = nullptr;
    std::size_t group = 0;
    enum class What { kReduceScatter, kOpenGradients, kOpenParameters, kSupplyGradients, kSupplyParameters } what = What::kReduceScatter;
    std::uint64_t gather_order = 0;  // the model's when this was planned: the computing thread may set the next one meanwhile
  };

  [[nodiscard]] ModelState& model(ModelId id);
  [[nodiscard]] absl::StatusOr<ModelId> agree_on_number();

  // engine.cc: rounds and steps, on the computing thread
  absl::Status open_round(ModelState& m) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status close_open_rounds() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status close_round(ModelState& m) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void agree_on_used(ModelState& m) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void used_agreed(ModelState& m, double code, const std::vector<double>& sums) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Closes an open round, or runs one of zeros when there is none.
  absl::Status ensure_closed(ModelState& m) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Waits until every gradient holds the average on this rank.
  absl::Status gather_averages(ModelState& m) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status await_reduced(ModelState& m) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status await_current(ModelState& m) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// In step(): tells the tuner what the iteration took. Where its window is full, which is in the same step on all ranks, they agree
  /// on what comes next, and wait for each other.
  absl::Status tune(ModelState& m) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void update_now(ModelState& m) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  /// Waits for `done`; the time counts as exposed for `group`. `what` names what is awaited, for the error.
  absl::Status await(ModelState& m, std::size_t group, absl::FunctionRef<bool()> done, absl::FunctionRef<std::string()> what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The first error sticks: every later call returns it, and the engine thread ends the communicator with it.
  void fail(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void notify() {
    work_.notify_one();
    changed_.notify_all();
  }

  /// For the communicator's watch over deadlocks: what the computing thread waits for here, and whether the engine thread is at work.
  comm::CallerState caller_state() ABSL_LOCKS_EXCLUDED(mutex_);

  // engine_thread.cc
  void run();
  void rest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Decides on all operations that may start now. A world of one has none: its groups pass through at once.
  [[nodiscard]] std::vector<Start> plan_starts() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  [[nodiscard]] bool plan_starts_of(ModelState& m, std::vector<Start>& starts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  [[nodiscard]] bool plan_reduce_scatter(ModelState& m, std::size_t g, std::vector<Start>& starts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  [[nodiscard]] bool plan_all_gather(ModelState& m, std::size_t g, std::vector<Start>& starts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  [[nodiscard]] bool earlier_gathers_done(const ModelState& m) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void carry_out(const Start& start) ABSL_LOCKS_EXCLUDED(mutex_);
  void open_gather(const Start& start, bool parameters) ABSL_LOCKS_EXCLUDED(mutex_);
  void reduce_ended(ModelState& m, std::size_t g, const absl::Status& outcome) ABSL_LOCKS_EXCLUDED(mutex_);
  void gather_ended(ModelState& m, std::size_t g, const absl::Status& outcome) ABSL_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] bool advance_update(ModelState& m) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// After an error: goes on with updates that need no peer any more; true if there was one.
  [[nodiscard]] bool finish_updates() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // engine_state.cc, engine_shards.cc
  [[nodiscard]] absl::StatusOr<std::vector<std::byte>> answer_peer(std::uint64_t key) ABSL_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] absl::StatusOr<std::vector<std::byte>> answer_offer(std::uint64_t key) ABSL_LOCKS_EXCLUDED(mutex_);
  /// Whether a question of a peer is about an offer; others have the number of a model here.
  [[nodiscard]] static bool asks_for_offer(std::uint64_t key) { return key >> 56 == kOfferMark; }
  static constexpr std::uint64_t kOfferMark = 255;

  const EngineOptions options_;
  const int rank_;
  const int num_ranks_;
  Timeline timeline_;

  mutable base::Mutex mutex_;
  base::CondVar work_;                                            // wakes the engine thread
  base::CondVar changed_;                                         // wakes the computing thread
  std::map<ModelId, std::unique_ptr<ModelState>> models_;         // changes under the mutex; so do the states, but for memory and atomics
  std::set<ModelId> removed_ ABSL_GUARDED_BY(mutex_);             // numbers that were in use and are not
  std::deque<ModelState*> reduce_order_ ABSL_GUARDED_BY(mutex_);  // models with reduce-scatters to start, in the order of their rounds
  std::size_t reduces_in_motion_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t reduce_bytes_in_motion_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t gather_order_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::uint32_t, std::shared_ptr<const std::vector<std::byte>>> offers_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  struct Awaited {
    base::TimePoint since;
    absl::FunctionRef<std::string()> what;  // of the thread that waits; called under the mutex
  };
  std::optional<Awaited> awaited_ ABSL_GUARDED_BY(mutex_);  // by the computing thread
  bool idle_ ABSL_GUARDED_BY(mutex_) = false;               // the engine thread has nothing to do

  std::unique_ptr<comm::Communicator> communicator_;  // its threads call back into the members above: reset in the destructor first
  std::jthread thread_;
};

}  // namespace maypole::pipeline
