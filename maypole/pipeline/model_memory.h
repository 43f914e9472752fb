// SPDX-License-Identifier: Apache-2.0
#pragma once

// The memory of one model: arenas of parameters, gradients and optimizer state, and the work on their elements. It knows which elements
// this rank updates (all with replicated updates, its shard with sharded ones) and nothing of threads: callers see to it that no two
// of them touch the same elements.

#include "maypole/comm/communicator.h"
#include "maypole/overlap/fusion_plan.h"
#include "maypole/pipeline/engine.h"
#include "maypole/pipeline/optimizer.h"

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

namespace maypole::pipeline {

/// What one update of a model needs beside memory; indices are those of parameters.
struct UpdateOrder {
  OptimizerKind kind = OptimizerKind::kNone;
  std::span<const Hyperparameters> hyper;      // per param group
  std::span<const std::size_t> param_group;    // [i]
  std::span<const std::uint8_t> used;          // [i]; unused parameters are left alone
  std::span<const std::int64_t> update_count;  // [i]; counts this update
  double gradient_scale = 1;
};

/// Zeros that take no memory before they are written (calloc): state is laid out while the original parameters are still there.
class ZeroedBytes {
 public:
  explicit ZeroedBytes(std::size_t size);
  [[nodiscard]] std::span<std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t size_;
};

class ModelMemory {
 public:
  /// Collective: allocates the arenas, zeroed. `num_slots` state arrays; with `sharded` state only for the own shard. With
  /// `keep_previous` there is room for what update_group() replaces.
  static absl::StatusOr<std::unique_ptr<ModelMemory>> create(comm::Communicator& communicator, overlap::FusionPlan plan, int num_slots,
                                                             bool sharded, bool keep_previous);

  [[nodiscard]] const overlap::FusionPlan& plan() const { return plan_; }
  /// Takes another plan that differs in its groups only.
  void regroup(overlap::FusionPlan plan);
  [[nodiscard]] std::span<std::byte> parameter(std::size_t i) const { return part(arenas_[plan_.tensors[i].arena].parameters->bytes(), i); }
  [[nodiscard]] std::span<std::byte> gradient(std::size_t i) const { return part(arenas_[plan_.tensors[i].arena].gradients->bytes(), i); }
  [[nodiscard]] std::byte* parameters(std::size_t arena) const { return arenas_[arena].parameters->bytes().data(); }
  [[nodiscard]] std::byte* gradients(std::size_t arena) const { return arenas_[arena].gradients->bytes().data(); }
  [[nodiscard]] MemoryHandles handles() const;

  void zero_gradient(std::size_t i) const;
  void copy_gradient(std::size_t i, const std::byte* source) const;
  void add_gradient(std::size_t i, const std::byte* source) const;
  void scale_gradient(std::size_t i, double factor) const;
  /// Powers (elements.h) of gradient i, and of all gradients that lie in this rank's shard.
  [[nodiscard]] double gradient_powers(std::size_t i, double power) const;
  [[nodiscard]] double shard_powers(double power) const;

  /// Updates this rank's elements of group g. keep: puts aside what they were, where keeps_previous().
  void update_group(std::size_t g, const UpdateOrder& order, bool keep);
  /// Puts back what update_group() has put aside for group g, of tensors that were `used` in it.
  void restore_group(std::size_t g, std::span<const std::uint8_t> used);

  [[nodiscard]] int num_slots() const { return num_slots_; }
  /// Replicated: the state array; sharded: empty.
  [[nodiscard]] std::span<std::byte> state(std::size_t i, int slot);
  /// The elements of the state array that this rank keeps, in ascending order.
  [[nodiscard]] std::vector<std::byte> own_state(std::size_t i, int slot) const;
  /// Keeps its part of `values`, the whole array.
  void write_state(std::size_t i, int slot, std::span<const std::byte> values);
  /// Lays the state that rank `owner` keeps into the whole array. Errors: kFailedPrecondition for a wrong size.
  [[nodiscard]] absl::Status place_state(std::size_t i, int owner, std::span<const std::byte> part, std::span<std::byte> whole) const;

  /// The elements of tensor i that `rank` updates, counted from the tensor's first.
  [[nodiscard]] std::vector<model::Interval> shard_elements(std::size_t i, int rank) const;
  [[nodiscard]] bool keeps_previous() const { return keep_previous_; }
  /// Appends the own elements of tensor i, then those of each state array. `replaced(g)`: of group g those before its last update.
  void append_shard(std::size_t i, absl::FunctionRef<bool(std::size_t)> replaced, std::vector<std::byte>& shard) const;

 private:
  struct ArenaMemory {
    // Shared with the front end's tensors (MemoryHandles).
    std::shared_ptr<comm::SharedMemory> parameters;
    std::shared_ptr<comm::SharedMemory> gradients;
    std::vector<std::shared_ptr<ZeroedBytes>> state;     // [slot]; the whole arena, or the own chunks of all blocks one after the other
    std::vector<std::shared_ptr<ZeroedBytes>> previous;  // of own elements of parameters, then of each slot; laid out as state; or none
  };
  /// A run of elements of one tensor that this rank updates.
  struct Piece {
    std::size_t tensor = 0;
    model::Interval elements;       // of the arena
    std::size_t state_element = 0;  // where its state begins
  };

  ModelMemory(overlap::FusionPlan plan, int num_slots, bool sharded, bool keep_previous, int rank, int num_ranks);
  [[nodiscard]] std::span<std::byte> part(std::span<std::byte> arena, std::size_t i) const;
  [[nodiscard]] std::vector<model::Interval> parts_of(model::Interval elements, std::size_t arena, int rank) const;
  [[nodiscard]] std::vector<Piece> pieces_in(std::size_t i, model::Interval range) const;
  /// The bytes of a piece: k = 0 the parameters, k = 1.. the state arrays.
  [[nodiscard]] std::span<std::byte> bytes_of(const Piece& piece, std::size_t k) const;
  [[nodiscard]] std::span<std::byte> previous_bytes_of(const Piece& piece, std::size_t k) const;
  void cut_pieces();
  [[nodiscard]] std::size_t state_element(std::size_t element, std::size_t arena) const;
  [[nodiscard]] std::size_t state_elements(std::size_t arena) const;
  [[nodiscard]] std::size_t element_size(std::size_t arena) const { return base::size_of(plan_.arenas[arena].dtype); }

  overlap::FusionPlan plan_;
  const int num_slots_;
  const bool sharded_;
  const bool keep_previous_;
  const int rank_;
  const int num_ranks_;
  std::vector<ArenaMemory> arenas_;
  std::vector<std::vector<Piece>> group_pieces_;
};

}  // namespace maypole::pipeline
