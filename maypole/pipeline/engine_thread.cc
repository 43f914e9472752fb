// SPDX-License-Identifier: Apache-2.0

// The engine thread: asks the schedules what may start, starts it, and updates the groups that are through. It is the only one that
// starts group collectives, so their order is that of its decisions, the same on every rank.

#include "maypole/base/check.h"
#include "maypole/pipeline/engine_impl.h"

#include <algorithm>

namespace maypole::pipeline {
namespace {

base::TimePoint now() { return std::chrono::steady_clock::now(); }

// Several reduce-scatters are in motion, so that the ring never idles between two; more only delays what schedules decide later.
// Gathers have no limit: ranks may supply them in different orders, and a gather ends only when every rank has supplied it, so ranks
// that each held the limit in gathers that another has not supplied yet would wait for one another for ever. Their priority orders them.
constexpr std::size_t kGroupsInMotion = 4;
constexpr std::size_t kBytesInMotion = 16 << 20;

bool lane_is_full(std::size_t groups, std::size_t bytes) { return groups >= kGroupsInMotion && bytes >= kBytesInMotion; }

std::size_t bytes_of(const ModelState& m, std::size_t g) {
  const overlap::Group& group = m.plan().groups[g];
  return group.range.size() * base::size_of(m.plan().arenas[group.arena].dtype);
}

base::DType gradient_wire(const ModelState& m, base::DType dtype) {
  return m.options.compress_bfloat16 && dtype == base::DType::kFloat32 ? base::DType::kBFloat16 : dtype;
}

}  // namespace

void EngineImpl::run() {
  mutex_.lock();
  bool aborted = false;
  while (true) {
    if (!error_.ok() && !aborted) {  // even when stopping: the peers must not wait for what will never come, and learn why
      aborted = true;
      const absl::Status reason = error_;
      mutex_.unlock();
      communicator_->abort(reason);
      mutex_.lock();
      continue;
    }
    if (stopping_) {
      break;
    }
    if (!error_.ok()) {
      if (!finish_updates()) {
        rest();
      }
      continue;
    }
    if (const std::vector<Start> starts = plan_starts(); !starts.empty()) {
      mutex_.unlock();
      for (const Start& start : starts) {
        carry_out(start);
      }
      mutex_.lock();
      continue;
    }
    bool updated = false;
    for (auto m = models_.begin(); m != models_.end() && !updated; ++m) {
      updated = advance_update(*m->second);
    }
    if (!updated) {
      rest();
    }
  }
  mutex_.unlock();
}

void EngineImpl::rest() {
  idle_ = true;
  work_.wait(mutex_);
  idle_ = false;
}

// --- deciding ---

std::vector<EngineImpl::Start> EngineImpl::plan_starts() {
  std::vector<Start> starts;
  for (bool progressed = true; progressed;) {
    progressed = false;
    for (const auto& [id, m] : models_) {
      progressed |= m->stage != Stage::kIdle && plan_starts_of(*m, starts);
    }
    if (progressed && num_ranks_ == 1) {
      changed_.notify_all();
    }
  }
  return starts;
}

bool EngineImpl::plan_starts_of(ModelState& m, std::vector<Start>& starts) {
  bool progressed = false;
  if (m.sharded && m.stage == Stage::kStepped && !m.drop && !m.parameters_open) {
    // Open all at once: a peer may be through with its shard of any group.
    m.parameters_open = true;
    for (std::size_t g = 0; g < m.num_groups() && num_ranks_ > 1; ++g) {
      ++m.gathers_in_motion;
      starts.push_back({&m, g, Start::What::kOpenParameters, m.gather_order});
    }
  }
  for (const overlap::Action& action : m.schedule->next(m.view())) {
    progressed |= action.phase == overlap::Phase::kReduceScatter ? plan_reduce_scatter(m, action.group, starts)
                                                                 : plan_all_gather(m, action.group, starts);
  }
  return progressed;
}

bool EngineImpl::plan_reduce_scatter(ModelState& m, std::size_t g, std::vector<Start>& starts) {
  if (reduce_order_.empty() || reduce_order_.front() != &m || lane_is_full(reduces_in_motion_, reduce_bytes_in_motion_)) {
    return false;
  }
  m.progress[g].reduce_started = true;
  m.groups[g].reduce_begin = now();
  if (g == 0) {  // the last one in plan order
    reduce_order_.pop_front();
  }
  if (num_ranks_ == 1) {
    m.progress[g].reduce_done = true;
    return true;
  }
  ++reduces_in_motion_;
  reduce_bytes_in_motion_ += bytes_of(m, g);
  if (!m.sharded) {  // before any peer can finish an average, which takes this rank's part of the reduce-scatter
    ++m.gathers_in_motion;
    starts.push_back({&m, g, Start::What::kOpenGradients, m.gather_order});
  }
  starts.push_back({&m, g, Start::What::kReduceScatter, m.gather_order});
  return true;
}

bool EngineImpl::plan_all_gather(ModelState& m, std::size_t g, std::vector<Start>& starts) {
  const bool parameters = m.sharded && !m.gather_forced;
  if (parameters && (m.drop || !m.groups[g].updated)) {
    return false;
  }
  if (m.sharded && !earlier_gathers_done(m)) {
    return false;
  }
  m.progress[g].gather_started = true;
  m.groups[g].gather_begin = now();
  if (num_ranks_ == 1) {
    m.progress[g].gather_done = true;
    return true;
  }
  if (m.sharded && !parameters) {
    ++m.gathers_in_motion;
    starts.push_back({&m, g, Start::What::kOpenGradients, m.gather_order});
  }
  starts.push_back({&m, g, parameters ? Start::What::kSupplyParameters : Start::What::kSupplyGradients, m.gather_order});
  return true;
}

/// With sharded updates a peer opens its all-gathers only when its caller gets there. Until then what this rank sends stands still in
/// the lane; nothing that the peer's caller may still need must stand behind it.
bool EngineImpl::earlier_gathers_done(const ModelState& m) {
  return std::ranges::none_of(models_, [&](const auto& entry) {
    const auto& other = entry.second;
    return other.get() != &m && other->gather_order < m.gather_order && other->owes_gathers();
  });
}

// --- starting ---

void EngineImpl::carry_out(const Start& start) {
  ModelState& m = *start.model;
  const std::size_t g = start.group;
  switch (start.what) {
    case Start::What::kReduceScatter: {
      const overlap::Group& group = m.plan().groups[g];
      const base::DType dtype = m.plan().arenas[group.arena].dtype;
      communicator_
          ->reduce_scatter_group(
              {m.tag(g, false), m.memory->gradients(group.arena), group.range, dtype, gradient_wire(m, dtype), comm::ReduceOp::kAverage})
          .on_done([this, &m, g](const absl::Status& outcome) { reduce_ended(m, g, outcome); });
      break;
    }
    case Start::What::kOpenGradients:
      open_gather(start, false);
      break;
    case Start::What::kOpenParameters:
      open_gather(start, true);
      break;
    case Start::What::kSupplyGradients:
      communicator_->supply_all_gather(m.tag(g, false));
      break;
    case Start::What::kSupplyParameters:
      communicator_->supply_all_gather(m.tag(g, true));
      break;
  }
}

void EngineImpl::open_gather(const Start& start, bool parameters) {
  ModelState& m = *start.model;
  const std::size_t g = start.group;
  const overlap::Group& group = m.plan().groups[g];
  const base::DType dtype = m.plan().arenas[group.arena].dtype;
  communicator_
      ->open_all_gather({.tag = m.tag(g, parameters),
                         .priority = static_cast<std::int64_t>(start.gather_order << 20) + static_cast<std::int64_t>(g),
                         .data = parameters ? m.memory->parameters(group.arena) : m.memory->gradients(group.arena),
                         .range = group.range,
                         .dtype = dtype,
                         .wire = parameters ? dtype : gradient_wire(m, dtype)})
      .on_done([this, &m, g](const absl::Status& outcome) { gather_ended(m, g, outcome); });
}

// --- ending, on the progress thread ---

void EngineImpl::reduce_ended(ModelState& m, std::size_t g, const absl::Status& outcome) {
  base::MutexLock lock(mutex_);
  if (!outcome.ok()) {
    fail(outcome);
    return;
  }
  const base::TimePoint end = now();
  m.progress[g].reduce_done = true;
  --reduces_in_motion_;
  reduce_bytes_in_motion_ -= bytes_of(m, g);
  const base::TimePoint begin = m.measurements.add_reduce_scatter(g, m.groups[g].reduce_begin, end);
  timeline_.record(Track::kReduceScatter, {"RS", static_cast<int>(g), m.id}, begin, end);
  notify();
}

void EngineImpl::gather_ended(ModelState& m, std::size_t g, const absl::Status& outcome) {
  base::MutexLock lock(mutex_);
  if (!outcome.ok()) {
    fail(outcome);
    return;
  }
  const base::TimePoint end = now();
  MAYPOLE_CHECK(m.progress[g].gather_started);
  m.progress[g].gather_done = true;
  --m.gathers_in_motion;
  const base::TimePoint begin = m.measurements.add_all_gather(g, m.groups[g].gather_begin, end);
  timeline_.record(Track::kAllGather, {"AG", static_cast<int>(g), m.id}, begin, end);
  notify();
}

// --- updating ---

/// Takes one group of a stepped model a step further; true if it did.
bool EngineImpl::advance_update(ModelState& m) {
  if (m.stage != Stage::kStepped || !m.flags_done) {
    return false;
  }
  for (std::size_t g = 0; g < m.num_groups(); ++g) {
    GroupState& group = m.groups[g];
    const bool final_here = m.sharded ? m.progress[g].reduce_done : m.progress[g].gather_done;
    if (!group.updated && final_here) {
      if (m.updates_begun != m.steps) {
        m.updates_begun = m.steps;
        if (!m.drop) {
          m.count_updates();
        }
      }
      if (!m.drop) {
        const base::TimePoint begin = now();
        m.updating = true;
        group.kept = m.memory->keeps_previous() && (m.sharded || !m.all_gathered());
        mutex_.unlock();
        m.memory->update_group(g, m.update_order(), group.kept);
        mutex_.lock();
        m.updating = false;
        const base::TimePoint end = now();
        m.measurements.add_update(end - begin);
        timeline_.record(Track::kUpdate, {"update", static_cast<int>(g), m.id}, begin, end);
      }
      group.updated = true;
      if (std::ranges::all_of(m.groups, [](const GroupState& each) { return each.updated; })) {
        m.updates_done = m.steps;
      }
      group.current = !m.sharded || m.drop;
      notify();
      return true;
    }
    if (!group.current && group.updated && m.progress[g].gather_done) {
      group.current = true;
      notify();
      return true;
    }
  }
  if (!m.all_current()) {
    return false;
  }
  m.become_idle();
  notify();
  return true;
}

bool EngineImpl::finish_updates() {
  for (const auto& [id, m] : models_) {
    if (m->updates_on_alone() && advance_update(*m)) {
      return true;
    }
  }
  return false;
}

}  // namespace maypole::pipeline
