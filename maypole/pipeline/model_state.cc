// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/model_state.h"

#include "maypole/base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace maypole::pipeline {

ModelState::ModelState(ModelId model, std::vector<ParameterSpec> parameters, const ModelOptions& model_options,
                       std::unique_ptr<overlap::Schedule> model_schedule, std::unique_ptr<ModelMemory> model_memory)
    : id(model),
      specs(std::move(parameters)),
      options(model_options),
      schedule(std::move(model_schedule)),
      memory(std::move(model_memory)),
      sharded(model_options.update == overlap::UpdateMode::kSharded),
      progress(memory->plan().groups.size()),
      groups(memory->plan().groups.size()),
      arrived(specs.size()),
      used(specs.size()),
      update_count(specs.size()),
      measurements(memory->plan().groups.size()) {
  for (const ParameterSpec& spec : specs) {
    param_group.push_back(spec.param_group);
  }
}

std::string ModelState::describe(std::size_t i) const { return fmt::format("parameter '{}' ({} of model {})", specs[i].name, i, id); }

std::string ModelState::describe_progress() const {
  const auto reduced = std::ranges::count_if(progress, [](const overlap::GroupProgress& p) { return p.reduce_done; });
  const auto gathered = std::ranges::count_if(progress, [](const overlap::GroupProgress& p) { return p.gather_done; });
  return fmt::format("of {} groups of model {}, {} are reduced and {} gathered", groups.size(), id, reduced, gathered);
}

void ModelState::take_next_plan() {
  if (!next_plan) {
    return;
  }
  MAYPOLE_CHECK_EQ(gathers_in_motion, 0u);
  memory->regroup(*std::move(next_plan));
  next_plan.reset();
  progress.assign(plan().groups.size(), {});
  groups.assign(plan().groups.size(), {});
  measurements.regroup(plan().groups.size());
}

void ModelState::begin_round() {
  MAYPOLE_CHECK_EQ(gathers_in_motion, 0u);
  if (stage != Stage::kClosed) {
    rounds_in_step = 0;
    std::ranges::fill(used, std::uint8_t{0});
    scale = 1;
  }
  stage = Stage::kOpen;
  ++round;
  ++rounds_in_step;
  std::ranges::fill(progress, overlap::GroupProgress{});
  std::ranges::fill(arrived, std::uint8_t{0});
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g] = GroupState{.outstanding = plan().groups[g].tensors.size()};
  }
  flags_done = false;
  gather_forced = false;
  synchronized = false;
  drop = false;
  parameters_open = false;
}

bool ModelState::gradient_arrived(std::size_t i) {
  if (arrived[i] != 0) {
    return false;
  }
  arrived[i] = 1;
  bool completed = false;
  for (const std::size_t g : plan().tensors[i].groups) {
    progress[g].ready = --groups[g].outstanding == 0;
    completed = completed || progress[g].ready;
  }
  return completed;
}

bool ModelState::reopen_gradient(std::size_t i) {
  const std::vector<std::size_t>& touched = plan().tensors[i].groups;
  if (std::ranges::any_of(touched, [&](std::size_t g) { return progress[g].reduce_started; })) {
    return false;
  }
  arrived[i] = 0;
  for (const std::size_t g : touched) {
    ++groups[g].outstanding;
    progress[g].ready = false;
  }
  return true;
}

void ModelState::close_round() {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g].outstanding = 0;
    progress[g].ready = true;
  }
  stage = Stage::kClosed;
}

bool ModelState::all_reduced() const {
  return std::ranges::all_of(progress, [](const overlap::GroupProgress& p) { return p.reduce_done; });
}
bool ModelState::all_gathered() const {
  return std::ranges::all_of(progress, [](const overlap::GroupProgress& p) { return p.gather_done; });
}
bool ModelState::all_current() const {
  return std::ranges::all_of(groups, [](const GroupState& g) { return g.current; });
}

bool ModelState::updates_on_alone() const { return !sharded && stage == Stage::kStepped && flags_done && all_gathered(); }

bool ModelState::owes_gathers() const {
  const bool asked = gather_forced || (stage == Stage::kStepped && !(sharded && drop));
  return asked && !all_gathered();
}

std::uint64_t ModelState::tag(std::size_t g, bool parameters) const {
  // 8 bits of model, 1 of kind, 32 of round, 23 of group: add_model() checks that they fit.
  return (static_cast<std::uint64_t>(id) << 56) | (static_cast<std::uint64_t>(parameters) << 55) | ((round & 0xffffffffu) << 23) | g;
}

overlap::IterationProgress ModelState::view() const {
  return {.groups = progress,
          .backward_done = stage == Stage::kClosed || stage == Stage::kStepped,
          .step_called = stage == Stage::kStepped || gather_forced,
          .update = sharded && !gather_forced ? overlap::UpdateMode::kSharded : overlap::UpdateMode::kReplicated};
}

void ModelState::count_updates() {
  for (std::size_t i = 0; i < used.size(); ++i) {
    update_count[i] += used[i];
  }
}

UpdateOrder ModelState::update_order() const { return {options.optimizer, hyper, param_group, used, update_count, scale}; }

void ModelState::become_idle() {
  stage = Stage::kIdle;
  for (GroupState& group : groups) {
    group.current = true;
  }
  settled.store(true, std::memory_order_release);  // pairs with the load in before_use: the updates happen before the use
}

}  // namespace maypole::pipeline
