// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/model_memory.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/pipeline/elements.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace maypole::pipeline {

ZeroedBytes::ZeroedBytes(std::size_t size) : data_(static_cast<std::byte*>(std::calloc(std::max<std::size_t>(1, size), 1))), size_(size) {
  if (data_ == nullptr) {
    throw std::bad_alloc();  // as a vector would
  }
}

ModelMemory::ModelMemory(overlap::FusionPlan plan, int num_slots, bool sharded, bool keep_previous, int rank, int num_ranks)
    : plan_(std::move(plan)), num_slots_(num_slots), sharded_(sharded), keep_previous_(keep_previous), rank_(rank), num_ranks_(num_ranks) {}

absl::StatusOr<std::unique_ptr<ModelMemory>> ModelMemory::create(comm::Communicator& communicator, overlap::FusionPlan plan, int num_slots,
                                                                 bool sharded, bool keep_previous) {
  std::unique_ptr<ModelMemory> memory(
      new ModelMemory(std::move(plan), num_slots, sharded, keep_previous, communicator.rank(), communicator.num_ranks()));
  for (std::size_t a = 0; a < memory->plan_.arenas.size(); ++a) {
    const std::size_t bytes = std::max<std::size_t>(1, memory->plan_.arenas[a].count * memory->element_size(a));
    ArenaMemory arena;
    MAYPOLE_ASSIGN_OR_RETURN(arena.parameters, communicator.allocate(bytes));
    MAYPOLE_ASSIGN_OR_RETURN(arena.gradients, communicator.allocate(bytes));
    for (int slot = 0; slot < num_slots; ++slot) {
      arena.state.push_back(std::make_shared<ZeroedBytes>(memory->state_elements(a) * memory->element_size(a)));
    }
    for (int k = 0; memory->keep_previous_ && k <= num_slots; ++k) {
      arena.previous.push_back(std::make_shared<ZeroedBytes>(memory->state_elements(a) * memory->element_size(a)));
    }
    memory->arenas_.push_back(std::move(arena));
  }
  memory->cut_pieces();
  return memory;
}

void ModelMemory::cut_pieces() {
  group_pieces_.clear();
  for (const overlap::Group& group : plan_.groups) {
    std::vector<Piece> pieces;
    for (const std::size_t i : group.tensors) {
      for (const Piece& piece : pieces_in(i, {group.range.begin, group.range.end})) {
        pieces.push_back(piece);
      }
    }
    group_pieces_.push_back(std::move(pieces));
  }
}

void ModelMemory::regroup(overlap::FusionPlan plan) {
  MAYPOLE_CHECK_EQ(plan.arenas.size(), plan_.arenas.size());
  for (std::size_t a = 0; a < plan.arenas.size(); ++a) {
    MAYPOLE_CHECK_EQ(plan.arenas[a].count, plan_.arenas[a].count);
    MAYPOLE_CHECK_EQ(plan.arenas[a].block, plan_.arenas[a].block);
  }
  plan_ = std::move(plan);
  cut_pieces();
}

MemoryHandles ModelMemory::handles() const {
  MemoryHandles result;
  for (const ArenaMemory& arena : arenas_) {
    result.parameters.push_back(arena.parameters);
    result.gradients.push_back(arena.gradients);
    result.state.insert(result.state.end(), arena.state.begin(), arena.state.end());
  }
  return result;
}

std::span<std::byte> ModelMemory::part(std::span<std::byte> arena, std::size_t i) const {
  const overlap::TensorPlace& place = plan_.tensors[i];
  const std::size_t size = element_size(place.arena);
  return place.elements.empty() ? std::span<std::byte>() : arena.subspan(place.elements.begin * size, place.elements.size() * size);
}

// --- which elements are whose ---

std::vector<model::Interval> ModelMemory::parts_of(model::Interval elements, std::size_t arena, int rank) const {
  if (elements.empty()) {
    return {};
  }
  if (!sharded_) {
    return {elements};
  }
  const overlap::Arena& a = plan_.arenas[arena];
  return model::owned_parts(elements, a.count, a.block, static_cast<std::size_t>(rank), static_cast<std::size_t>(num_ranks_));
}

std::vector<ModelMemory::Piece> ModelMemory::pieces_in(std::size_t i, model::Interval range) const {
  const overlap::TensorPlace& place = plan_.tensors[i];
  const model::Interval common{std::max(range.begin, place.elements.begin), std::min(range.end, place.elements.end)};
  std::vector<Piece> pieces;
  if (common.begin < common.end) {
    for (const model::Interval& part : parts_of(common, place.arena, rank_)) {
      pieces.push_back({i, part, state_element(part.begin, place.arena)});
    }
  }
  return pieces;
}

std::size_t ModelMemory::state_element(std::size_t element, std::size_t arena) const {
  if (!sharded_) {
    return element;
  }
  const overlap::Arena& a = plan_.arenas[arena];
  const std::size_t block = element / a.block;
  const model::Interval chunk =
      model::BlockRange{0, a.count, a.block}.chunk_at(block, static_cast<std::size_t>(rank_), static_cast<std::size_t>(num_ranks_));
  const std::size_t full = model::chunk_of(a.block, static_cast<std::size_t>(rank_), static_cast<std::size_t>(num_ranks_)).size();
  return block * full + (element - chunk.begin);
}

std::size_t ModelMemory::state_elements(std::size_t arena) const {
  const overlap::Arena& a = plan_.arenas[arena];
  return sharded_ ? model::BlockRange{0, a.count, a.block}.chunk_size(static_cast<std::size_t>(rank_), static_cast<std::size_t>(num_ranks_))
                  : a.count;
}

// --- gradients ---

void ModelMemory::zero_gradient(std::size_t i) const { std::ranges::fill(gradient(i), std::byte{0}); }

void ModelMemory::copy_gradient(std::size_t i, const std::byte* source) const {
  const std::span<std::byte> target = gradient(i);
  if (!target.empty() && source != target.data()) {
    std::memcpy(target.data(), source, target.size());
  }
}

void ModelMemory::add_gradient(std::size_t i, const std::byte* source) const {
  const overlap::TensorPlace& place = plan_.tensors[i];
  add_elements(plan_.arenas[place.arena].dtype, place.elements.size(), gradient(i).data(), source);
}

void ModelMemory::scale_gradient(std::size_t i, double factor) const {
  const overlap::TensorPlace& place = plan_.tensors[i];
  scale_elements(plan_.arenas[place.arena].dtype, place.elements.size(), gradient(i).data(), factor);
}

double ModelMemory::gradient_powers(std::size_t i, double power) const {
  const overlap::TensorPlace& place = plan_.tensors[i];
  return sum_of_powers(plan_.arenas[place.arena].dtype, place.elements.size(), gradient(i).data(), power);
}

double ModelMemory::shard_powers(double power) const {
  double total = 0;
  for (std::size_t a = 0; a < arenas_.size(); ++a) {
    const overlap::Arena& arena = plan_.arenas[a];
    for (const model::Interval& part : model::owned_parts({0, arena.count}, arena.count, arena.block, static_cast<std::size_t>(rank_),
                                                          static_cast<std::size_t>(num_ranks_))) {
      total = combine_powers(total, sum_of_powers(arena.dtype, part.size(), gradients(a) + part.begin * element_size(a), power), power);
    }
  }
  return total;
}

void ModelMemory::update_group(std::size_t g, const UpdateOrder& order, bool keep) {
  for (const Piece& piece : group_pieces_[g]) {
    if (order.used[piece.tensor] == 0) {
      continue;
    }
    for (std::size_t k = 0; keep && keep_previous_ && k <= static_cast<std::size_t>(num_slots_); ++k) {
      std::ranges::copy(bytes_of(piece, k), previous_bytes_of(piece, k).begin());
    }
    const std::size_t a = plan_.tensors[piece.tensor].arena;
    const std::size_t size = element_size(a);
    ArenaMemory& arena = arenas_[a];
    const auto state = [&](std::size_t slot) {
      return arena.state.size() > slot ? arena.state[slot]->bytes().data() + piece.state_element * size : nullptr;
    };
    update(order.kind, plan_.arenas[a].dtype, order.hyper[order.param_group[piece.tensor]], order.update_count[piece.tensor],
           order.gradient_scale, piece.elements.size(), parameters(a) + piece.elements.begin * size,
           gradients(a) + piece.elements.begin * size, state(0), state(1));
  }
}

void ModelMemory::restore_group(std::size_t g, std::span<const std::uint8_t> used) {
  for (const Piece& piece : group_pieces_[g]) {
    for (std::size_t k = 0; used[piece.tensor] != 0 && k <= static_cast<std::size_t>(num_slots_); ++k) {
      std::ranges::copy(previous_bytes_of(piece, k), bytes_of(piece, k).begin());
    }
  }
}

// --- state ---

std::span<std::byte> ModelMemory::state(std::size_t i, int slot) {
  return sharded_ ? std::span<std::byte>() : part(arenas_[plan_.tensors[i].arena].state[static_cast<std::size_t>(slot)]->bytes(), i);
}

std::vector<std::byte> ModelMemory::own_state(std::size_t i, int slot) const {
  const overlap::TensorPlace& place = plan_.tensors[i];
  const std::size_t size = element_size(place.arena);
  const std::span<std::byte> state = arenas_[place.arena].state[static_cast<std::size_t>(slot)]->bytes();
  std::vector<std::byte> result;
  for (const Piece& piece : pieces_in(i, place.elements)) {
    const auto begin = state.begin() + static_cast<std::ptrdiff_t>(piece.state_element * size);
    result.insert(result.end(), begin, begin + static_cast<std::ptrdiff_t>(piece.elements.size() * size));
  }
  return result;
}

void ModelMemory::write_state(std::size_t i, int slot, std::span<const std::byte> values) {
  const overlap::TensorPlace& place = plan_.tensors[i];
  const std::size_t size = element_size(place.arena);
  const std::span<std::byte> state = arenas_[place.arena].state[static_cast<std::size_t>(slot)]->bytes();
  for (const Piece& piece : pieces_in(i, place.elements)) {
    std::memcpy(state.data() + piece.state_element * size, values.data() + (piece.elements.begin - place.elements.begin) * size,
                piece.elements.size() * size);
  }
}

absl::Status ModelMemory::place_state(std::size_t i, int owner, std::span<const std::byte> part, std::span<std::byte> whole) const {
  const overlap::TensorPlace& place = plan_.tensors[i];
  const std::size_t size = element_size(place.arena);
  std::size_t taken = 0;
  const std::vector<model::Interval> parts = parts_of(place.elements, place.arena, owner);
  for (const model::Interval& run : parts) {
    const std::size_t bytes = run.size() * size;
    if (taken + bytes <= part.size()) {
      std::memcpy(whole.data() + (run.begin - place.elements.begin) * size, part.data() + taken, bytes);
    }
    taken += bytes;
  }
  if (taken != part.size()) {
    return base::error(absl::StatusCode::kFailedPrecondition, "rank {} answered with {} bytes of optimizer state, its shard has {}", owner,
                       part.size(), taken);
  }
  return absl::OkStatus();
}

// --- shards ---

std::vector<model::Interval> ModelMemory::shard_elements(std::size_t i, int rank) const {
  const overlap::TensorPlace& place = plan_.tensors[i];
  std::vector<model::Interval> parts = parts_of(place.elements, place.arena, rank);
  for (model::Interval& part : parts) {
    part = {part.begin - place.elements.begin, part.end - place.elements.begin};
  }
  return parts;
}

std::span<std::byte> ModelMemory::bytes_of(const Piece& piece, std::size_t k) const {
  const std::size_t a = plan_.tensors[piece.tensor].arena;
  const std::size_t size = element_size(a);
  return k == 0 ? arenas_[a].parameters->bytes().subspan(piece.elements.begin * size, piece.elements.size() * size)
                : arenas_[a].state[k - 1]->bytes().subspan(piece.state_element * size, piece.elements.size() * size);
}

std::span<std::byte> ModelMemory::previous_bytes_of(const Piece& piece, std::size_t k) const {
  const std::size_t a = plan_.tensors[piece.tensor].arena;
  const std::size_t size = element_size(a);
  return arenas_[a].previous[k]->bytes().subspan(piece.state_element * size, piece.elements.size() * size);
}

void ModelMemory::append_shard(std::size_t i, absl::FunctionRef<bool(std::size_t)> replaced, std::vector<std::byte>& shard) const {
  for (std::size_t k = 0; k <= static_cast<std::size_t>(num_slots_); ++k) {
    for (const std::size_t g : plan_.tensors[i].groups) {
      for (const Piece& piece : pieces_in(i, {plan_.groups[g].range.begin, plan_.groups[g].range.end})) {
        const std::span<std::byte> bytes = replaced(g) ? previous_bytes_of(piece, k) : bytes_of(piece, k);
        shard.insert(shard.end(), bytes.begin(), bytes.end());
      }
    }
  }
}

}  // namespace maypole::pipeline
