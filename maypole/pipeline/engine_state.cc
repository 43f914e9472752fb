// SPDX-License-Identifier: Apache-2.0

// Models, their memory and optimizer state, the service to peers, and the end.

#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/pipeline/agreement.h"
#include "maypole/pipeline/engine_impl.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

namespace maypole::pipeline {
namespace {

/// What read_peer() asks for: 8 bits of model, 20 of parameter, 2 of slot, 34 of step.
struct StateKey {
  ModelId model = 0;
  std::size_t parameter = 0;
  int slot = 0;
  std::uint64_t step = 0;
};

constexpr std::uint64_t kStepMask = (std::uint64_t{1} << 34) - 1;
constexpr std::size_t kMaxModels = 255;  // the last number of 8 bits marks questions about offers
constexpr double kGroupCost = 100e-6;    // seconds: threads that wake for a phase of a group, beside its start-up on the ring
constexpr std::size_t kMaxParameters = std::size_t{1} << 20;
constexpr std::size_t kMaxGroups = std::size_t{1} << 23;

std::uint64_t encode(const StateKey& key) {
  return (static_cast<std::uint64_t>(key.model) << 56) | (static_cast<std::uint64_t>(key.parameter) << 36) |
         (static_cast<std::uint64_t>(key.slot) << 34) | (key.step & kStepMask);
}

StateKey decode(std::uint64_t key) {
  return {static_cast<ModelId>(key >> 56), static_cast<std::size_t>((key >> 36) & (kMaxParameters - 1)), static_cast<int>((key >> 34) & 3u),
          key & kStepMask};
}

absl::Status check_options(const std::vector<ParameterSpec>& parameters, const ModelOptions& options, const overlap::Schedule& schedule) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  std::size_t elements = 0;
  for (const ParameterSpec& spec : parameters) {
    elements += spec.count;
    if (spec.dtype == base::DType::kByte) {
      return base::error(invalid, "parameter '{}' is of bytes; parameters must be float32, float64, bfloat16 or float16", spec.name);
    }
  }
  if (elements == 0 || parameters.size() > kMaxParameters) {
    return base::error(invalid,
                       "a model needs between 1 and {} parameters with at least one element, this one has {} parameters and {} elements",
                       kMaxParameters, parameters.size(), elements);
  }
  if (options.update == overlap::UpdateMode::kSharded) {
    if (!schedule.traits().allows_sharded) {
      return base::error(invalid, "schedule '{}' updates replicated; take update=\"replicated\", or schedule dear or weave",
                         schedule.name());
    }
    if (options.compress_bfloat16) {
      return base::error(invalid,
                         "compression of gradients needs update=\"replicated\": sharded updates gather parameters, which must stay exact");
    }
    if (options.optimizer == OptimizerKind::kNone) {
      return base::error(invalid, "sharded updates need one of the engine's optimizers (optimizer.h); take update=\"replicated\"");
    }
  }
  const int needed = num_state_slots(options.optimizer, {});
  if (options.num_state_slots < needed || options.num_state_slots > 2) {
    return base::error(invalid, "the optimizer needs {} to 2 state arrays per parameter, not {}", needed, options.num_state_slots);
  }
  return absl::OkStatus();
}

std::string describe_fusion(const overlap::FusionOptions& fusion) {
  return fmt::format("fusion sizes block {}, group {}, first {}, split {}", fusion.block_bytes, fusion.group_bytes,
                     fusion.first_group_bytes, fusion.split_bytes);
}

std::vector<std::string> describe_model(const std::vector<ParameterSpec>& parameters, const ModelOptions& options) {
  std::vector<std::string> lines = {
      fmt::format("schedule {}", options.schedule),
      fmt::format("update {}", options.update == overlap::UpdateMode::kSharded ? "sharded" : "replicated"),
      fmt::format("optimizer {}, {} state arrays", static_cast<int>(options.optimizer), options.num_state_slots),
      describe_fusion(options.fusion),
      fmt::format("fusion search {}", options.fusion_search.empty() ? "none" : options.fusion_search),
      fmt::format(
          "fusion cuts [{}], tuned for {} s a byte and {} s",
          fmt::join(options.cuts | std::views::transform([](const auto& arena) { return fmt::format("{}", fmt::join(arena, " ")); }), "; "),
          options.tuned_for.link_s_per_byte, options.tuned_for.compute_s),
      fmt::format("compression {}", options.compress_bfloat16 ? "bf16" : "none")};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParameterSpec& spec = parameters[i];
    lines.push_back(fmt::format("parameter {}: {} {} elements of {}, param group {}", i, spec.name, spec.count, base::name_of(spec.dtype),
                                spec.param_group));
  }
  return lines;
}

std::vector<overlap::PlannedTensor> planned_tensors(const std::vector<ParameterSpec>& parameters) {
  std::vector<overlap::PlannedTensor> tensors;
  for (const ParameterSpec& spec : parameters) {
    tensors.push_back({spec.count, spec.dtype});
  }
  return tensors;
}

}  // namespace

absl::StatusOr<overlap::FusionPlan> plan_of(const std::vector<ParameterSpec>& parameters, const overlap::FusionOptions& fusion,
                                            const Cuts& cuts) {
  const std::vector<overlap::PlannedTensor> tensors = planned_tensors(parameters);
  MAYPOLE_ASSIGN_OR_RETURN(overlap::FusionPlan plan, cuts.empty() ? overlap::plan_fusion(tensors, fusion)
                                                                  : overlap::plan_fusion_at(tensors, fusion.block_bytes, cuts));
  if (plan.groups.size() > kMaxGroups) {
    return base::error(absl::StatusCode::kInvalidArgument, "the model falls into {} groups, at most {} are possible; take larger groups",
                       plan.groups.size(), kMaxGroups);
  }
  return plan;
}

EngineImpl::EngineImpl(std::unique_ptr<comm::Communicator> communicator, const EngineOptions& options)
    : options_(options),
      rank_(communicator->rank()),
      num_ranks_(communicator->num_ranks()),
      timeline_(options.timeline, rank_),
      communicator_(std::move(communicator)) {
  communicator_->serve([this](std::uint64_t key) { return answer_peer(key); });
  communicator_->watch_caller([this] { return caller_state(); });
  thread_ = std::jthread([this] { run(); });
}

EngineImpl::~EngineImpl() {
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
  thread_.join();
  communicator_.reset();
}

ModelState& EngineImpl::model(ModelId id) {
  const auto entry = models_.find(id);
  MAYPOLE_CHECK(entry != models_.end());
  return *entry->second;
}

absl::StatusOr<ModelId> EngineImpl::add_model(std::vector<ParameterSpec> parameters, const ModelOptions& options) {
  MAYPOLE_RETURN_IF_ERROR(check_agreement(*communicator_, describe_model(parameters, options), options_.timeout));
  MAYPOLE_ASSIGN_OR_RETURN(auto schedule, overlap::make_schedule(options.schedule));
  MAYPOLE_RETURN_IF_ERROR(check_options(parameters, options, *schedule));
  MAYPOLE_ASSIGN_OR_RETURN(overlap::FusionPlan plan, plan_of(parameters, options.fusion, options.cuts));
  MAYPOLE_ASSIGN_OR_RETURN(const ModelId id, agree_on_number());
  std::optional<FusionTuner> tuner;
  if (!options.fusion_search.empty() && num_ranks_ > 1) {
    MAYPOLE_ASSIGN_OR_RETURN(
        tuner, FusionTuner::make({.search = options.fusion_search,
                                  .model = {planned_tensors(parameters), options.fusion.block_bytes, options.compress_bfloat16},
                                  .start = plan,
                                  .tuned_for = options.tuned_for,
                                  .schedule = options.schedule,
                                  .update = options.update,
                                  .start_s = (num_ranks_ - 1) * communicator_->edge_cost().alpha_s + kGroupCost,
                                  .num_ranks = num_ranks_,
                                  .rank = rank_}));
  }
  MAYPOLE_ASSIGN_OR_RETURN(std::unique_ptr<ModelMemory> memory,
                           ModelMemory::create(*communicator_, std::move(plan), options.num_state_slots,
                                               options.update == overlap::UpdateMode::kSharded, options.keep_previous));
  base::MutexLock lock(mutex_);
  MAYPOLE_RETURN_IF_ERROR(error_);
  auto added = std::make_unique<ModelState>(id, std::move(parameters), options, std::move(schedule), std::move(memory));
  added->observing = tuner && tuner->window().observing();
  added->tuner = std::move(tuner);
  models_[id] = std::move(added);
  removed_.erase(id);
  return id;
}

/// The lowest number that no rank has in use. A model that is gone here may live on elsewhere: its tags must not come again before it is
/// gone everywhere.
absl::StatusOr<ModelId> EngineImpl::agree_on_number() {
  const auto in_use = std::make_shared<std::vector<double>>(kMaxModels);  // ranks that use it; shared: must outlive the operation
  for (const auto& [id, m] : models_) {
    (*in_use)[id] = m->given_up ? 0 : 1;
  }
  const comm::Work summed =
      communicator_->all_reduce(reinterpret_cast<std::byte*>(in_use->data()), in_use->size(), base::DType::kFloat64, comm::ReduceOp::kSum);
  summed.on_done([in_use](const absl::Status&) {});
  MAYPOLE_RETURN_IF_ERROR(summed.wait_for(options_.timeout));
  std::vector<std::unique_ptr<ModelState>> gone;  // when the mutex is free again
  {
    base::MutexLock lock(mutex_);
    for (auto m = models_.begin(); m != models_.end();) {
      const auto next = std::next(m);
      if ((*in_use)[m->first] == 0) {
        removed_.insert(m->first);
        gone.push_back(std::move(m->second));
        models_.erase(m);
      }
      m = next;
    }
  }
  const auto unused = std::ranges::find(*in_use, 0.0);
  if (unused == in_use->end()) {
    return base::error(
        absl::StatusCode::kInvalidArgument,
        "there are {} models in use, which is the most there can be: close optimizers that are not needed any more, on every "
        "rank",
        kMaxModels);
  }
  return static_cast<ModelId>(unused - in_use->begin());
}

absl::Status EngineImpl::regroup(ModelId id, const overlap::FusionOptions& fusion) {
  ModelState& m = model(id);
  MAYPOLE_RETURN_IF_ERROR(check_agreement(*communicator_, {describe_fusion(fusion)}, options_.timeout));
  if (fusion.block_bytes != m.options.fusion.block_bytes) {
    return base::error(absl::StatusCode::kInvalidArgument, "model {} was laid out in blocks of {} bytes, which stay: regroup with the same",
                       id, m.options.fusion.block_bytes);
  }
  MAYPOLE_ASSIGN_OR_RETURN(overlap::FusionPlan plan, plan_of(m.specs, fusion));
  base::MutexLock lock(mutex_);
  MAYPOLE_RETURN_IF_ERROR(error_);
  m.next_plan = std::move(plan);
  return absl::OkStatus();
}

std::span<std::byte> EngineImpl::parameter(ModelId id, std::size_t i) { return model(id).memory->parameter(i); }
std::span<std::byte> EngineImpl::gradient(ModelId id, std::size_t i) { return model(id).memory->gradient(i); }
MemoryHandles EngineImpl::handles(ModelId id) { return model(id).memory->handles(); }
const overlap::FusionPlan& EngineImpl::plan(ModelId id) { return model(id).plan(); }

// --- optimizer state ---

std::int64_t EngineImpl::update_count(ModelId id, std::size_t i) {
  ModelState& m = model(id);
  base::MutexLock lock(mutex_);
  if (m.stage == Stage::kStepped) {  // the count is known when the ranks have agreed on what was used; an error leaves the last one
    await(m, 0, [&] { return m.updates_begun == m.steps; }, [&] { return "the update of " + m.describe(i); }).IgnoreError();
  }
  return m.update_count[i];
}

void EngineImpl::set_update_count(ModelId id, std::size_t i, std::int64_t count) {
  ModelState& m = model(id);
  base::MutexLock lock(mutex_);
  if (m.stage == Stage::kStepped) {
    await_current(m).IgnoreError();  // the next call returns the error
  }
  m.update_count[i] = count;
}

std::span<std::byte> EngineImpl::state(ModelId id, std::size_t i, int slot) { return model(id).memory->state(i, slot); }

absl::StatusOr<std::vector<std::byte>> EngineImpl::read_state(ModelId id, std::size_t i, int slot) {
  MAYPOLE_RETURN_IF_ERROR(flush(id));
  ModelState& m = model(id);
  if (!m.sharded) {
    const std::span<const std::byte> state = m.memory->state(i, slot);
    return std::vector<std::byte>(state.begin(), state.end());
  }
  std::uint64_t step = 0;
  {
    base::MutexLock lock(mutex_);
    if (m.stage != Stage::kIdle) {
      return base::error(
          absl::StatusCode::kFailedPrecondition,
          "optimizer state of sharded {} can be read before backward() or after step(), not between them: peers may be ahead",
          m.describe(i));
    }
    step = m.steps;
  }
  std::vector<std::byte> whole(m.memory->parameter(i).size());
  for (int r = 0; r < num_ranks_; ++r) {
    if (r == rank_) {
      MAYPOLE_RETURN_IF_ERROR(m.memory->place_state(i, r, m.memory->own_state(i, slot), whole));
      continue;
    }
    MAYPOLE_ASSIGN_OR_RETURN(const std::vector<std::byte> part, communicator_->read_peer(r, encode({id, i, slot, step}), options_.timeout));
    MAYPOLE_RETURN_IF_ERROR(m.memory->place_state(i, r, part, whole));
  }
  return whole;
}

absl::StatusOr<std::vector<std::byte>> EngineImpl::answer_peer(std::uint64_t key) {
  if (asks_for_offer(key)) {
    return answer_offer(key);
  }
  const StateKey wanted = decode(key);
  base::MutexLock lock(mutex_);
  const auto entry = models_.find(wanted.model);
  if (removed_.contains(wanted.model)) {
    return base::error(absl::StatusCode::kFailedPrecondition, "rank {} has closed the optimizer of model {}: its part of the state is gone",
                       rank_, wanted.model);
  }
  if (entry == models_.end()) {
    return base::error(absl::StatusCode::kUnavailable, "rank {} has not added model {} yet", rank_, wanted.model);
  }
  ModelState& m = *entry->second;
  if (wanted.parameter >= m.specs.size() || wanted.slot >= m.memory->num_slots()) {
    return base::error(absl::StatusCode::kInvalidArgument, "rank {} has no state {} of parameter {} of model {}", rank_, wanted.slot,
                       wanted.parameter, wanted.model);
  }
  // The update of the next step cannot begin without the asker, so what is complete now stays as it is while the asker waits.
  if ((m.updates_done & kStepMask) != wanted.step || m.updates_begun != m.updates_done) {
    return base::error(absl::StatusCode::kUnavailable, "rank {} is at step {}, not at {}", rank_, m.updates_done, wanted.step);
  }
  return m.memory->own_state(wanted.parameter, wanted.slot);
}

absl::Status EngineImpl::write_state(ModelId id, std::size_t i, int slot, std::span<const std::byte> values) {
  ModelState& m = model(id);
  if (values.size() != m.memory->parameter(i).size() || slot < 0 || slot >= m.memory->num_slots()) {
    return base::error(absl::StatusCode::kInvalidArgument, "state {} of {} has {} bytes in {} arrays, not {}", slot, m.describe(i),
                       m.memory->parameter(i).size(), m.memory->num_slots(), values.size());
  }
  MAYPOLE_RETURN_IF_ERROR(flush(id));
  base::MutexLock lock(mutex_);  // a peer may be reading
  m.memory->write_state(i, slot, values);
  return absl::OkStatus();
}

// --- the end ---

absl::Status EngineImpl::remove_model(ModelId id, bool agreed) {
  ModelState& m = model(id);
  std::unique_ptr<ModelState> removed;  // goes when the mutex is free again
  base::MutexLock lock(mutex_);
  MAYPOLE_RETURN_IF_ERROR(error_);
  if (m.stage != Stage::kIdle || m.gathers_in_motion > 0) {
    return base::error(absl::StatusCode::kFailedPrecondition, "model {} is in the middle of an iteration ({}) and cannot be removed", id,
                       m.describe_progress());
  }
  if (m.sharded && num_ranks_ > 1 && !agreed) {
    m.given_up = true;
    return absl::OkStatus();
  }
  removed = std::move(models_.at(id));
  models_.erase(id);
  removed_.insert(id);
  return absl::OkStatus();
}

Report EngineImpl::report(ModelId id) {
  ModelState& m = model(id);
  Report report;
  report.schedule = m.options.schedule;
  report.update = m.sharded ? "sharded" : "replicated";
  report.world_size = num_ranks_;
  const double share = static_cast<double>(num_ranks_ - 1) / num_ranks_;  // of a group's bytes, sent by each rank in each half
  double sent = 0;
  for (const overlap::Group& group : m.plan().groups) {
    const base::DType dtype = m.plan().arenas[group.arena].dtype;
    const bool halved = m.options.compress_bfloat16 && dtype == base::DType::kFloat32;
    const std::size_t bytes = group.range.size() * base::size_of(halved ? base::DType::kBFloat16 : dtype);
    report.groups.push_back({.bytes = bytes});
    sent += 2 * share * static_cast<double>(bytes);
  }
  base::MutexLock lock(mutex_);
  m.measurements.fill(report);
  report.fusion = m.tuner && rank_ == 0 ? m.tuner->report().text : "";
  // What the edge has carried says most. When the ring formed it was measured once, with small buffers, which a shaped link lets pass as a
  // burst, perhaps beside other load. Each iteration has carried it all: C is no longer than that.
  const double carried = communicator_->traffic().link_s_per_byte;
  const double measured_s = sent * (carried > 0 ? carried : communicator_->edge_cost().beta_s_per_byte);
  report.communication_s = report.iterations > 0 ? std::min(measured_s, report.iteration_s) : measured_s;
  report.bound_s = std::max(report.forward_s + report.backward_s, report.communication_s);
  return report;
}

TuningReport EngineImpl::tuning(ModelId id) {
  ModelState& m = model(id);
  base::MutexLock lock(mutex_);
  return m.tuner ? m.tuner->report() : TuningReport{};
}

std::size_t EngineImpl::times_tuned(ModelId id) {
  ModelState& m = model(id);
  base::MutexLock lock(mutex_);
  return m.tuner ? m.tuner->report().settled : 0;
}

absl::Status EngineImpl::write_timeline(const std::string& path) { return timeline_.write(path); }

absl::Status EngineImpl::finalize() {
  absl::Status outcome;
  for (auto m = models_.begin(); m != models_.end() && outcome.ok(); ++m) {
    outcome = discard_gradients(m->first);  // of a last backward without step(): what is in motion must end everywhere
    if (outcome.ok()) {
      outcome = flush(m->first);
    }
  }
  if (!outcome.ok()) {
    return outcome;
  }
  return communicator_->finalize(options_.timeout);
}

}  // namespace maypole::pipeline
