// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/offline.h"

#include "maypole/base/status.h"
#include "maypole/sched/assemble.h"
#include "maypole/sched/policies/exact_columns.h"
#include "maypole/sched/policies/exact_rounding.h"

#include <algorithm>
#include <map>

namespace maypole::sched {

namespace {

using absl::StatusCode;
using base::error;
using model::Instance;

// What a job has from the past. `held`: the column whose ring it had in the last slot, where that matters; else -1.
struct JobState {
  double progress = 0;
  double late_progress = 0;
  double worker_slots = 0;
  int held = -1;
  auto operator<=>(const JobState&) const = default;
};
using State = std::vector<JobState>;

// One joint choice: a column of every job, -1: none.
using Choice = std::vector<int>;

absl::Status check_scope(const Instance& instance) {
  if (instance.slots <= 0) {
    return error(StatusCode::kInvalidArgument, "the offline optimum needs a horizon: give a number of slots");
  }
  const bool tree = instance.cluster.num_links() == 0 || instance.cluster.tree().has_value();
  for (const model::Job& job : instance.jobs) {
    if (job.max_racks > 0 && job.max_racks_s > 0) {
      return error(StatusCode::kUnimplemented, "job '{}': the offline optimum knows no limit of racks that ends with waiting", job.id);
    }
    if (job.progress.resize_s > 0 && !tree) {
      return error(StatusCode::kUnimplemented, "job '{}': the offline optimum knows resize costs in trees only", job.id);
    }
  }
  return absl::OkStatus();
}

class Program {
 public:
  Program(const Instance& instance, const OfflineLimits& limits) : instance_(instance), limits_(limits) {
    for (std::size_t j = 0; j < instance.jobs.size(); ++j) {
      ActiveJob active;
      active.id = model::JobId::from_index(j);
      active.job = &instance.jobs[j];
      slot_.jobs.push_back(active);
    }
    slot_.cluster = &instance.cluster;
    slot_.slot_s = instance.slot_s;
    problem_ = make_exact_problem(slot_);
  }

  absl::StatusOr<OfflineOptimum> run() {
    listed_ = list_columns(problem_, limits_.joint_choices);
    if (!listed_.complete || !list_choices()) {
      return error(StatusCode::kResourceExhausted, "a slot has more than {} joint choices: too many for the offline optimum",
                   limits_.joint_choices);
    }
    seen_.resize(static_cast<std::size_t>(instance_.slots));
    const State start(instance_.jobs.size());
    OfflineOptimum optimum;
    optimum.utility = best_from(0, start);
    if (steps_ > limits_.steps) {
      return error(StatusCode::kResourceExhausted, "more than {} steps in {} slots of {} choices: too many for the offline optimum",
                   limits_.steps, instance_.slots, choices_.size());
    }
    State state = start;
    std::vector<std::optional<model::Embedding>> held(instance_.jobs.size());
    for (int slot = 0; slot < instance_.slots; ++slot) {
      const Choice& choice = choices_[seen_[static_cast<std::size_t>(slot)].at(state).choice];
      SlotProblem problem = pose(slot, state);
      std::vector<std::optional<model::Embedding>> rings;
      for (std::size_t j = 0; j < choice.size(); ++j) {
        problem.jobs[j].current = held[j] ? &*held[j] : nullptr;
        rings.push_back(choice[j] >= 0 ? std::optional(embedding_of(problem_, column(j, choice[j]))) : std::nullopt);
      }
      optimum.decisions.push_back(assemble(problem, rings));
      state = after(problem, state, choice).second;
      held = std::move(rings);
    }
    for (const auto& states : seen_) {
      optimum.states += states.size();
    }
    return optimum;
  }

 private:
  struct Seen {
    double value = 0;
    std::size_t choice = 0;
  };

  [[nodiscard]] const ExactColumn& column(std::size_t job, int index) const { return listed_.of_job[job][static_cast<std::size_t>(index)]; }
  [[nodiscard]] bool resize_costs(std::size_t job) const { return instance_.jobs[job].progress.resize_s > 0; }

  // All choices that fit together, one for each effect on the jobs.
  bool list_choices() {
    std::map<std::vector<int>, Choice> by_effect;
    ExactResidual residual(problem_);
    Choice choice(instance_.jobs.size(), -1);
    std::vector<int> effect;
    std::size_t listed = 0;
    const auto visit = [&](auto&& self, std::size_t j) -> bool {
      if (j == choice.size()) {
        by_effect.try_emplace(effect, choice);
        return ++listed <= limits_.joint_choices;
      }
      const std::size_t size = effect.size();
      effect.insert(effect.end(), {0, 0, -1});
      if (!self(self, j + 1)) {
        return false;
      }
      for (std::size_t c = 0; c < listed_.of_job[j].size(); ++c) {
        const ExactColumn& candidate = listed_.of_job[j][c];
        if (!residual.fits(candidate)) {
          continue;
        }
        residual.take(candidate);
        choice[j] = static_cast<int>(c);
        effect.resize(size);
        effect.insert(effect.end(), {candidate.workers(), problem_.jobs[j].by_servers ? candidate.servers() : 0,
                                     resize_costs(j) ? static_cast<int>(c) : -1});
        const bool more = self(self, j + 1);
        residual.take(candidate, -1);
        choice[j] = -1;
        if (!more) {
          return false;
        }
      }
      effect.resize(size);
      return true;
    };
    if (!visit(visit, 0)) {
      return false;
    }
    for (auto& [key, listed_choice] : by_effect) {
      choices_.push_back(std::move(listed_choice));
    }
    return true;
  }

  // The slot's problem with all jobs, also those that may not run.
  [[nodiscard]] SlotProblem pose(int slot, const State& state) const {
    SlotProblem problem = slot_;
    problem.slot = slot;
    for (std::size_t j = 0; j < state.size(); ++j) {
      problem.jobs[j].progress = state[j].progress;
      problem.jobs[j].late_progress = state[j].late_progress;
      problem.jobs[j].worker_slots = state[j].worker_slots;
    }
    return problem;
  }

  [[nodiscard]] static bool may_run(const ActiveJob& active, double start_s) {
    const model::Job& job = *active.job;
    const bool done = job.work && active.progress >= *job.work * (1 - 1e-9);
    return job.arrival_s <= start_s && !done;
  }

  // What the choice gains in the slot, and the state after it; a negative gain: it is not allowed.
  [[nodiscard]] std::pair<double, State> after(const SlotProblem& problem, const State& state, const Choice& choice) const {
    double gain = 0;
    State next = state;
    for (std::size_t j = 0; j < choice.size(); ++j) {
      next[j].held = -1;
      if (choice[j] < 0) {
        continue;
      }
      const ActiveJob& active = problem.jobs[j];
      const ExactColumn& chosen = column(j, choice[j]);
      if (!may_run(active, problem.start_s()) || chosen.workers() > worker_limit(active)) {
        return {-1, {}};
      }
      double progress = slot_progress(active, {chosen.workers(), chosen.servers(), active.job->edge_bandwidth}, false, problem.slot_s);
      if (state[j].held >= 0 && state[j].held != choice[j]) {
        // As slot_progress does for a running job whose ring changes.
        ActiveJob running = active;
        const model::Embedding any;
        running.current = &any;
        progress = slot_progress(running, {chosen.workers(), chosen.servers(), active.job->edge_bandwidth}, true, problem.slot_s);
      }
      gain += utility_gain(active, progress, problem.start_s());
      const bool late = active.job->utility.kind == model::UtilityKind::kDeadline && problem.start_s() >= active.job->utility.deadline_s;
      next[j].progress += progress;
      next[j].late_progress += late ? progress : 0;
      next[j].worker_slots += active.job->budget ? chosen.workers() : 0;
      next[j].held = resize_costs(j) ? choice[j] : -1;
    }
    return {gain, std::move(next)};
  }

  double best_from(int slot, const State& state) {
    if (slot == instance_.slots) {
      return 0;
    }
    const auto known = seen_[static_cast<std::size_t>(slot)].find(state);
    if (known != seen_[static_cast<std::size_t>(slot)].end()) {
      return known->second.value;
    }
    const SlotProblem problem = pose(slot, state);
    Seen best{-1, 0};
    for (std::size_t c = 0; c < choices_.size() && steps_ <= limits_.steps; ++c) {
      ++steps_;
      auto [gain, next] = after(problem, state, choices_[c]);
      if (gain < 0) {
        continue;
      }
      const double value = gain + best_from(slot + 1, next);
      if (value > best.value) {
        best = {value, c};
      }
    }
    seen_[static_cast<std::size_t>(slot)].emplace(state, best);
    return best.value;
  }

  const Instance& instance_;
  const OfflineLimits limits_;
  SlotProblem slot_;  // all jobs, fresh
  ExactProblem problem_;
  ExactColumnList listed_;
  std::vector<Choice> choices_;
  std::vector<std::map<State, Seen>> seen_;  // [slot]
  std::size_t steps_ = 0;
};

}  // namespace

absl::StatusOr<OfflineOptimum> solve_offline(const Instance& instance, const OfflineLimits& limits) {
  MAYPOLE_RETURN_IF_ERROR(check_scope(instance));
  return Program(instance, limits).run();
}

}  // namespace maypole::sched
