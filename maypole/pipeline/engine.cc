// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/pipeline/engine_impl.h"
#include "maypole/pipeline/unlocked.h"

#include <algorithm>
#include <utility>

namespace maypole::pipeline {
namespace {

base::TimePoint now() { return std::chrono::steady_clock::now(); }

/// A number that differs, in all likelihood, when ranks stand at different places; its square is exact in a double.
double place_code(const ModelState& m) {
  return static_cast<double>((m.round + 7919 * m.steps + 104729 * m.discards + 611953 * (m.id + 1)) & 0xfffffu);
}

constexpr std::size_t kNumCodes = 2;  // of the place, and its square, before the flags

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::create(std::unique_ptr<comm::Communicator> communicator, const EngineOptions& options) {
  if (communicator == nullptr) {
    return base::error(absl::StatusCode::kInvalidArgument, "an engine needs a communicator");
  }
  return std::make_unique<EngineImpl>(std::move(communicator), options);
}

// --- waiting ---

void EngineImpl::fail(absl::Status status) {
  if (error_.ok()) {
    error_ = std::move(status);
  }
  notify();
}

absl::Status EngineImpl::await(ModelState& m, std::size_t group, absl::FunctionRef<bool()> done, absl::FunctionRef<std::string()> what) {
  if (error_.ok() && done()) {
    return absl::OkStatus();
  }
  const base::TimePoint begin = now();
  // A timeout of years must not overflow the clock.
  const base::TimePoint deadline = begin + std::min<base::Nanoseconds>(options_.timeout, std::chrono::hours(24 * 365));
  const auto text = [&] { return fmt::format("{} ({})", what(), m.describe_progress()); };
  awaited_.emplace(Awaited{begin, text});
  while (error_.ok() && !done()) {
    if (!changed_.wait_until(mutex_, deadline) && error_.ok() && !done()) {
      fail(base::error(absl::StatusCode::kDeadlineExceeded,
                       "rank {} waited {:.3g} s for {}: a peer is late or has left the loop; MAYPOLE_TIMEOUT sets the limit", rank_,
                       base::to_seconds(options_.timeout), text()));
    }
  }
  awaited_.reset();
  const base::TimePoint end = now();
  m.measurements.add_exposed(group, end - begin);
  timeline_.record(Track::kWait, {"wait for", static_cast<int>(group), m.id}, begin, end);
  return error_;
}

comm::CallerState EngineImpl::caller_state() {
  base::MutexLock lock(mutex_);
  comm::CallerState state;
  state.working = !idle_;
  if (awaited_) {
    state.wait = comm::Wait{awaited_->since, awaited_->what()};
  }
  return state;
}

absl::Status EngineImpl::await_reduced(ModelState& m) {
  for (std::size_t g = m.num_groups(); g-- > 0;) {
    MAYPOLE_RETURN_IF_ERROR(
        await(m, g, [&] { return m.progress[g].reduce_done; }, [&] { return fmt::format("the reduce-scatter of group {}", g); }));
  }
  return await(m, 0, [&] { return m.flags_done; }, [] { return std::string("the flags of used parameters"); });
}

absl::Status EngineImpl::await_current(ModelState& m) {
  for (std::size_t g = 0; g < m.num_groups(); ++g) {
    MAYPOLE_RETURN_IF_ERROR(await(m, g, [&] { return m.groups[g].current; }, [&] { return fmt::format("the parameters of group {}", g); }));
  }
  return await(m, 0, [&] { return m.stage != Stage::kStepped; }, [] { return std::string("the end of the step"); });
}

absl::Status EngineImpl::gather_averages(ModelState& m) {
  if (m.synchronized) {
    return error_;
  }
  m.gather_forced = true;
  m.gather_order = ++gather_order_;
  notify();
  for (std::size_t g = m.num_groups(); g-- > 0;) {
    MAYPOLE_RETURN_IF_ERROR(
        await(m, g, [&] { return m.progress[g].gather_done; }, [&] { return fmt::format("the averaged gradients of group {}", g); }));
  }
  MAYPOLE_RETURN_IF_ERROR(await_reduced(m));
  if (m.scale != 1) {
    const Unlocked unlocked(mutex_);
    for (std::size_t i = 0; i < m.specs.size(); ++i) {
      m.memory->scale_gradient(i, m.scale);
    }
  }
  m.scale = 1;
  m.synchronized = true;
  return absl::OkStatus();
}

// --- rounds ---

absl::Status EngineImpl::open_round(ModelState& m) {
  MAYPOLE_RETURN_IF_ERROR(error_);
  if (m.stage == Stage::kStepped) {
    MAYPOLE_RETURN_IF_ERROR(await_current(m));
  } else if (m.stage == Stage::kClosed) {
    MAYPOLE_RETURN_IF_ERROR(gather_averages(m));
  }
  if (m.stage == Stage::kIdle) {
    m.take_next_plan();
  }
  m.begin_round();
  reduce_order_.push_back(&m);
  m.gather_order = ++gather_order_;  // what is gathered during backward goes before what a later model gathers
  return absl::OkStatus();
}

absl::Status EngineImpl::close_round(ModelState& m) {
  if (m.rounds_in_step == 1) {  // in a further round memory holds the average so far, and zeros add nothing
    const Unlocked unlocked(mutex_);
    for (std::size_t i = 0; i < m.specs.size(); ++i) {
      if (m.arrived[i] == 0) {
        m.memory->zero_gradient(i);
      }
    }
  }
  MAYPOLE_RETURN_IF_ERROR(error_);
  m.close_round();
  notify();
  const base::TimePoint end = now();
  if (m.measurements.backward_begin() != base::TimePoint{}) {
    timeline_.record(Track::kCompute, {"backward", -1, m.id}, m.measurements.backward_begin(), end);
  }
  m.measurements.end_backward(end);
  agree_on_used(m);
  return error_;
}

absl::Status EngineImpl::close_open_rounds() {
  std::vector<ModelState*> closed;
  for (const auto& [id, m] : models_) {
    if (m->stage == Stage::kOpen) {
      MAYPOLE_RETURN_IF_ERROR(close_round(*m));
      closed.push_back(m.get());
    }
  }
  for (ModelState* m : closed) {
    if (m->schedule->traits().gradients_after_backward) {
      MAYPOLE_RETURN_IF_ERROR(gather_averages(*m));
    }
  }
  return error_;
}

void EngineImpl::agree_on_used(ModelState& m) {
  const auto sums = std::make_shared<std::vector<double>>(kNumCodes + m.specs.size());  // shared: must outlive the operation
  const double code = place_code(m);                                                    // now: step() may follow before the sum is here
  (*sums)[0] = code;
  (*sums)[1] = code * code;
  std::ranges::copy(m.arrived, sums->begin() + kNumCodes);
  if (num_ranks_ == 1) {
    used_agreed(m, code, *sums);
    return;
  }
  const Unlocked unlocked(mutex_);
  communicator_->all_reduce(reinterpret_cast<std::byte*>(sums->data()), sums->size(), base::DType::kFloat64, comm::ReduceOp::kSum)
      .on_done([this, &m, code, sums](const absl::Status& outcome) {
        base::MutexLock lock(mutex_);
        if (outcome.ok()) {
          used_agreed(m, code, *sums);
        } else {
          fail(outcome);
        }
      });
}

void EngineImpl::used_agreed(ModelState& m, double code, const std::vector<double>& sums) {
  // The sum of squared differences to this rank's code is zero only when all codes are equal.
  if (sums[0] != num_ranks_ * code || sums[1] != num_ranks_ * code * code) {
    fail(base::error(
        absl::StatusCode::kFailedPrecondition,
        "ranks ran different numbers of backward() or step() calls: rank {} has finished {} steps and is in backward {} of the next "
        "one of model {}, and some other rank is not; run the same calls on every rank, or use join() for uneven data",
        rank_, m.steps, m.rounds_in_step, m.id));
    return;
  }
  for (std::size_t i = 0; i < m.used.size(); ++i) {
    m.used[i] = static_cast<std::uint8_t>(m.used[i] != 0 || sums[kNumCodes + i] > 0);
  }
  m.flags_done = true;
  notify();
}

absl::Status EngineImpl::ensure_closed(ModelState& m) {
  MAYPOLE_RETURN_IF_ERROR(error_);
  if (m.stage == Stage::kIdle || m.stage == Stage::kStepped) {
    MAYPOLE_RETURN_IF_ERROR(open_round(m));
  }
  if (m.stage == Stage::kOpen) {
    MAYPOLE_RETURN_IF_ERROR(close_open_rounds());
  }
  return error_;
}

absl::Status EngineImpl::gradient_ready(ModelId id, std::size_t i, const std::byte* source) {
  ModelState& m = model(id);
  base::MutexLock lock(mutex_);
  if (m.stage != Stage::kOpen) {
    MAYPOLE_RETURN_IF_ERROR(open_round(m));
  }
  if (m.tuner && m.tuner->window().observing()) {
    m.tuner->window().note_ready(i, base::to_seconds(m.measurements.computed_in_backward(now())));
  }
  const bool again = m.arrived[i] != 0;
  if (again && !m.reopen_gradient(i)) {
    fail(base::error(absl::StatusCode::kInvalidArgument,
                     "{} got a second gradient in one backward after its reduce-scatter had begun; use schedule 'sync', which begins none "
                     "before backward ends",
                     m.describe(i)));
  }
  MAYPOLE_RETURN_IF_ERROR(error_);
  if (source != nullptr) {
    const Unlocked unlocked(mutex_);
    if (again || m.rounds_in_step > 1) {
      m.memory->add_gradient(i, source);
    } else {
      m.memory->copy_gradient(i, source);
    }
  }
  if (m.gradient_arrived(i)) {
    work_.notify_one();  // not for every gradient: waking the thread costs more than copying a small one
  }
  return error_;
}

absl::Status EngineImpl::end_backward(ModelId id) {
  (void)model(id);
  base::MutexLock lock(mutex_);
  MAYPOLE_RETURN_IF_ERROR(error_);
  return close_open_rounds();
}

// --- step ---

absl::Status EngineImpl::step(ModelId id, const StepOptions& options) {
  ModelState& m = model(id);
  const bool drop = options.skip || m.options.optimizer == OptimizerKind::kNone;
  for (std::size_t i = 0; !drop && i < m.specs.size(); ++i) {
    if (m.param_group[i] >= options.hyper.size()) {
      return base::error(absl::StatusCode::kInvalidArgument, "{} is in param group {}, but step() got hyperparameters of {} groups",
                         m.describe(i), m.param_group[i], options.hyper.size());
    }
    if (const Hyperparameters& hyper = options.hyper[m.param_group[i]];
        num_state_slots(m.options.optimizer, hyper) > m.memory->num_slots()) {
      return base::error(
          absl::StatusCode::kInvalidArgument,
          "param group {} needs {} state arrays per parameter, the model was added with {}; set momentum before the first step",
          m.param_group[i], num_state_slots(m.options.optimizer, hyper), m.memory->num_slots());
    }
  }
  base::MutexLock lock(mutex_);
  // With every average here, replicated updates are this rank's own business: a peer that is lost now cannot leave it half-way.
  const bool alone = m.stage == Stage::kClosed && m.synchronized && !m.sharded;
  const absl::Status closed = alone ? absl::OkStatus() : ensure_closed(m);
  MAYPOLE_RETURN_IF_ERROR(closed);
  m.measurements.mark_step(now());
  const absl::Status tuned = tune(m);
  if (!alone) {
    MAYPOLE_RETURN_IF_ERROR(tuned);
  }
  ++m.steps;
  m.hyper = options.hyper;
  m.drop = drop;
  if (!m.synchronized) {  // the engine thread does the rest
    for (GroupState& group : m.groups) {
      group.current = false;
    }
  } else if (drop) {
    m.updates_begun = m.updates_done = m.steps;
    m.become_idle();
    return absl::OkStatus();
  } else {
    update_now(m);
    if (!m.sharded) {
      m.become_idle();
      return alone ? absl::OkStatus() : error_;
    }
    for (std::size_t g = 0; g < m.num_groups(); ++g) {  // now the parameters travel
      m.progress[g].gather_started = m.progress[g].gather_done = false;
      m.groups[g].updated = true;
      m.groups[g].current = false;
    }
  }
  m.gather_forced = false;
  if (m.sharded) {  // averages keep the order of their round: a group whose reduce-scatter begins after this must not come last for it
    m.gather_order = ++gather_order_;
  }
  m.stage = Stage::kStepped;
  m.settled.store(false, std::memory_order_relaxed);  // read by this same thread
  notify();
  return error_;
}

absl::Status EngineImpl::tune(ModelState& m) {
  if (!m.tuner || m.steps == 0 || !m.tuner->iteration(m.measurements.last_iteration())) {
    return absl::OkStatus();
  }
  // The windows are full in the same step on all ranks. Buffers are shared: they must outlive the operations should a wait give up.
  std::optional<overlap::FusionPlan> plan;
  {
    const Unlocked unlocked(mutex_);
    const auto sums = std::make_shared<std::vector<double>>(m.tuner->pack());
    const comm::Work summed =
        communicator_->all_reduce(reinterpret_cast<std::byte*>(sums->data()), sums->size(), base::DType::kFloat64, comm::ReduceOp::kSum);
    summed.on_done([sums](const absl::Status&) {});
    {
      const comm::Work::Waiting waiting(summed);
      MAYPOLE_RETURN_IF_ERROR(summed.wait_for(options_.timeout));
    }
    const auto order =
        std::make_shared<std::vector<std::byte>>(rank_ == 0 ? m.tuner->decide(*sums) : std::vector<std::byte>(m.tuner->order_bytes()));
    const comm::Work sent = communicator_->broadcast(order->data(), order->size(), 0);
    sent.on_done([order](const absl::Status&) {});
    const comm::Work::Waiting waiting(sent);
    MAYPOLE_RETURN_IF_ERROR(sent.wait_for(options_.timeout));
    MAYPOLE_ASSIGN_OR_RETURN(plan, m.tuner->follow(*order));
  }
  m.observing.store(m.tuner->window().observing(), std::memory_order_relaxed);  // read by this same thread
  if (plan) {
    m.next_plan = std::move(plan);
  }
  return error_;
}

void EngineImpl::update_now(ModelState& m) {
  m.count_updates();
  m.updates_begun = m.steps;
  const base::TimePoint begin = now();
  {
    const Unlocked unlocked(mutex_);
    for (std::size_t g = 0; g < m.num_groups(); ++g) {
      m.memory->update_group(g, m.update_order(), m.sharded);
    }
  }
  const base::TimePoint end = now();
  m.measurements.add_update(end - begin);
  timeline_.record(Track::kUpdate, {"update", -1, m.id}, begin, end);
  m.updates_done = m.steps;
}

absl::Status EngineImpl::before_use(ModelId id, std::size_t i) {
  ModelState& m = model(id);
  const bool observing = m.observing.load(std::memory_order_relaxed);  // written by this same thread
  if (!observing && m.settled.load(std::memory_order_acquire)) {       // pairs with the store in become_idle
    return absl::OkStatus();
  }
  base::MutexLock lock(mutex_);
  for (const std::size_t g : m.plan().tensors[i].groups) {
    MAYPOLE_RETURN_IF_ERROR(await(m, g, [&] { return m.groups[g].current; }, [&] { return m.describe(i); }));
  }
  if (observing) {
    m.tuner->window().note_need(i, base::to_seconds(m.measurements.computed(now())));
  }
  return absl::OkStatus();
}

bool EngineImpl::in_motion(ModelId id, std::size_t i) {
  ModelState& m = model(id);
  if (m.settled.load(std::memory_order_acquire)) {
    return false;
  }
  base::MutexLock lock(mutex_);
  return std::ranges::any_of(m.plan().tensors[i].groups, [&](std::size_t g) { return !m.groups[g].current; });
}

absl::Status EngineImpl::flush(ModelId id) {
  ModelState& m = model(id);
  base::MutexLock lock(mutex_);
  return m.stage == Stage::kStepped ? await_current(m) : error_;
}

// --- marks ---

void EngineImpl::mark_forward(ModelId id) {
  base::MutexLock lock(mutex_);
  model(id).measurements.mark_forward(now());
}

void EngineImpl::mark_backward(ModelId id) {
  ModelState& m = model(id);
  base::MutexLock lock(mutex_);
  const base::TimePoint begin = now();
  if (m.measurements.forward_begin() > m.measurements.backward_begin()) {
    timeline_.record(Track::kCompute, {"forward", -1, m.id}, m.measurements.forward_begin(), begin);
  }
  m.measurements.mark_backward(begin);
}

}  // namespace maypole::pipeline
