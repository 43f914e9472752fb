// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/controller.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/sched/free_capacity.h"
#include "maypole/sched/schedule_checker.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace maypole::sched {

namespace {

bool changes_nothing(const SlotProblem& problem, const Decision& decision) {
  std::size_t running = 0;
  for (const ActiveJob& job : problem.jobs) {
    if (job.running()) {
      ++running;
      const auto found = std::ranges::lower_bound(decision.placements, job.id, {}, &Placement::job);
      if (found == decision.placements.end() || found->job != job.id || found->embedding != *job.current) {
        return false;
      }
    }
  }
  return running == decision.placements.size();
}

}  // namespace

base::Rng slot_rng(std::uint64_t seed, std::int64_t slot) { return base::Rng(seed, fmt::format("policy/{}", slot)); }

Controller::Controller(model::Cluster cluster, std::unique_ptr<Policy> policy, const ControllerOptions& options, const base::Clock& clock)
    : whole_(std::move(cluster)),
      available_(whole_),
      drained_(whole_.num_servers(), false),
      policy_(std::move(policy)),
      options_(options),
      clock_(&clock) {
  policy_->reset();
}

absl::StatusOr<model::JobId> Controller::submit(model::Job job) {
  MAYPOLE_RETURN_IF_ERROR(model::check_job(job, whole_));
  if (!ids_.insert(job.id).second) {
    return base::error(absl::StatusCode::kInvalidArgument, "job '{}' is there already: give each its own id", job.id);
  }
  const auto id = model::JobId::from_index(records_.size());
  JobRecord record;
  record.last_ran_s = job.arrival_s;
  record.job = std::move(job);
  records_.push_back(std::move(record));
  active_.insert(std::ranges::upper_bound(active_, records_.back().job.arrival_s, {},
                                          [this](model::JobId other) { return records_[other.index()].job.arrival_s; }),
                 id);
  changed();
  return id;
}

void Controller::changed() {
  repeats_left_ = 0;
  unchanged_slots_ = 0;
}

void Controller::leave(model::JobId job, JobPhase phase, double at_s) {
  JobRecord& record = records_[job.index()];
  record.phase = phase;
  record.ended_s = at_s;
  record.current.reset();
  history_.add(record.attained_s, phase == JobPhase::kFinished);
  std::erase(active_, job);
  changed();
}

void Controller::end(model::JobId job, JobPhase phase, double at_s) {
  JobRecord& record = records_[job.index()];
  if (!record.active()) {
    return;
  }
  if (record.current && open_) {
    const double start_s = static_cast<double>(slot_) * options_.slot_s;
    const double share = std::clamp((at_s - start_s) / options_.slot_s, 0.0, 1.0);
    (void)credit(record, {start_s, options_.slot_s, share}, whole_.accelerator());
  }
  leave(job, phase, at_s);
}

void Controller::finished(model::JobId job, double at_s) { end(job, JobPhase::kFinished, at_s); }
void Controller::cancelled(model::JobId job, double at_s) { end(job, JobPhase::kCancelled, at_s); }

void Controller::report_progress(model::JobId job, double progress) { records_[job.index()].reported = progress; }

void Controller::drain(model::ServerId server) {
  drained_[server.index()] = true;
  set_capacity();
}

void Controller::restore(model::ServerId server) {
  drained_[server.index()] = false;
  set_capacity();
}

void Controller::set_capacity() {
  model::ClusterParts parts = whole_.parts();
  for (std::size_t i = 0; i < parts.servers.size(); ++i) {
    if (drained_[i]) {
      parts.servers[i].capacity.assign(whole_.num_resources(), 0);
    }
  }
  auto cluster = model::Cluster::make(std::move(parts));
  MAYPOLE_CHECK(cluster.ok());  // it differs from a checked one by zeros only
  available_ = std::move(cluster).value();
  policy_->reset();  // what it kept may be about the other cluster
  changed();
}

const SlotProblem& Controller::pose(std::int64_t slot) {
  problem_.cluster = &available_;
  problem_.slot = slot;
  problem_.slot_s = options_.slot_s;
  problem_.history = &history_;
  problem_.unchanged_slots = slot == slot_ + 1 ? unchanged_slots_ : 0;
  problem_.jobs.clear();
  const double remaining = options_.slots > 0 ? static_cast<double>(options_.slots - slot) : std::numeric_limits<double>::infinity();
  for (const model::JobId id : active_) {
    problem_.jobs.push_back(view_of(records_[id.index()], id, problem_.start_s(), remaining));
  }
  return problem_;
}

Decision Controller::kept(std::int64_t slot) const {
  Decision decision;
  decision.slot = slot;
  FreeCapacity free(available_);
  for (const ActiveJob& job : problem_.jobs) {
    if (job.running() && job.current->workers() <= worker_limit(job) && free.fits(*job.job, *job.current)) {
      free.take(*job.job, *job.current);
      decision.placements.push_back({job.id, *job.current});
    }
  }
  std::ranges::sort(decision.placements, {}, &Placement::job);
  return decision;
}

SlotOutcome Controller::decide(std::int64_t slot) {
  MAYPOLE_CHECK_GT(slot, slot_);
  MAYPOLE_CHECK(!open_);
  const SlotProblem& problem = pose(slot);
  unchanged_slots_ = problem.unchanged_slots + 1;
  base::Rng rng = slot_rng(options_.seed, slot);
  const base::TimePoint before = clock_->now();
  SlotOutcome outcome;
  outcome.decision = policy_->decide(problem, rng);
  const double seconds = base::to_seconds(clock_->now() - before);
  outcome.violations = check_decision(problem, outcome.decision);
  repeats_left_ = changes_nothing(problem, outcome.decision) ? policy_->repeats(problem, outcome.decision) : 0;
  if (!outcome.violations.empty() && options_.refuse_violations) {
    outcome.decision = kept(slot);
    outcome.decision.note = fmt::format("the policy's answer was refused: {}", outcome.violations.front());
    outcome.refused = true;
    changed();
  }
  outcome.decision.slot = slot;
  outcome.decision.seconds = seconds;
  apply(outcome);
  return outcome;
}

SlotOutcome Controller::repeat(std::int64_t slot) {
  MAYPOLE_CHECK_GT(repeats_left_, 0);
  MAYPOLE_CHECK_GT(slot, slot_);
  MAYPOLE_CHECK(!open_);
  --repeats_left_;
  ++unchanged_slots_;
  SlotOutcome outcome;
  outcome.decision.slot = slot;
  outcome.decision.placements = placements_;
  apply(outcome);
  return outcome;
}

void Controller::apply(SlotOutcome& outcome) {
  Decision& decision = outcome.decision;
  if (!outcome.violations.empty()) {  // the policy's own answer stands; what names no active job cannot
    std::erase_if(decision.placements, [this](const Placement& placement) {
      return !placement.job.valid() || placement.job.index() >= records_.size() || !records_[placement.job.index()].active();
    });
    std::ranges::sort(decision.placements, {}, &Placement::job);
    const auto doubled = std::ranges::unique(decision.placements, {}, &Placement::job);
    decision.placements.erase(doubled.begin(), doubled.end());
  }
  slot_ = decision.slot;
  open_ = true;
  const double start_s = static_cast<double>(slot_) * options_.slot_s;
  decision.utility = 0;
  std::size_t next = 0;
  std::vector<model::JobId> by_id = active_;
  std::ranges::sort(by_id);
  for (const model::JobId id : by_id) {
    JobRecord& record = records_[id.index()];
    if (next == decision.placements.size() || decision.placements[next].job != id) {
      if (record.current) {
        record.current.reset();
        record.phase = JobPhase::kSuspended;
        ++record.preemptions;
      }
      record.resized = false;
      continue;
    }
    const model::Embedding& embedding = decision.placements[next++].embedding;
    const ActiveJob view = view_of(record, id, start_s, 0);
    record.resized = record.current && record.current->ring != embedding.ring;
    decision.utility += utility_gain(view, slot_progress(view, model::shape_of(embedding), record.resized, options_.slot_s), start_s);
    record.resizes += record.resized ? 1 : 0;
    record.current = embedding;
    record.phase = JobPhase::kRunning;
    if (!record.started_s) {
      record.started_s = start_s;
    }
  }
  MAYPOLE_CHECK_EQ(next, decision.placements.size());  // the checker let no unknown job and no other order pass
  placements_ = decision.placements;
}

std::vector<EndedJob> Controller::end_slot() {
  MAYPOLE_CHECK(open_);
  open_ = false;
  const double start_s = static_cast<double>(slot_) * options_.slot_s;
  std::vector<EndedJob> ended;
  for (const Placement& placement : placements_) {
    JobRecord& record = records_[placement.job.index()];
    if (!record.current) {
      continue;  // it ended within the slot
    }
    const int limit = worker_limit(view_of(record, placement.job, start_s, 0));
    const Credit gained = credit(record, {start_s, options_.slot_s, 1}, whole_.accelerator());
    if (gained.ended) {
      ended.push_back({placement.job, start_s + gained.used_s});
    } else if (worker_limit(view_of(record, placement.job, start_s, 0)) != limit) {
      changed();  // its budget runs low: the policy must see that
    }
  }
  for (const EndedJob& job : ended) {
    leave(job.job, JobPhase::kFinished, job.at_s);
  }
  return ended;
}

}  // namespace maypole::sched
