// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/supervisor.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/daemon/device_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace maypole::daemon {

namespace {

constexpr double kLastWords = 3;      // survivors of a failure print their own errors, then they are ended
constexpr int kMostFailedStarts = 3;  // in a row, for reasons of the machine
constexpr std::int64_t kMostSteps = 1200;
constexpr double kResizeSeconds = 0.5;  // that a change of a ring costs at least, where the job does not say more
constexpr int kCancelledCode = 130;
constexpr int kTerminatedCode = 143;

int shell_code(const WorkerExit& exit) { return exit.signal != 0 ? 128 + exit.signal : exit.code; }

std::string describe(const WorkerEvent& event, bool elastic = false) {
  if (elastic && event.exit.reason.empty()) {
    return event.exit.signal != 0 ? fmt::format("its head was killed by signal {}", event.exit.signal)
                                  : fmt::format("its workers ended with exit code {}", event.exit.code);
  }
  if (!event.exit.reason.empty()) {
    return fmt::format("rank {}: {}", event.rank, event.exit.reason);
  }
  if (event.exit.signal != 0) {
    return fmt::format("rank {} was killed by signal {}", event.rank, event.exit.signal);
  }
  return fmt::format("rank {} ended with exit code {}", event.rank, event.exit.code);
}

/// What a job is told that waits for more than there is.
std::string too_large(const absl::Status& status) {
  const std::string why = base::message(status);
  constexpr std::string_view kNever = "can never run: ";
  const std::size_t found = why.find(kNever);
  return "waits for a larger cluster: " + (found == std::string::npos ? why : why.substr(found + kNever.size()));
}

bool failed(const WorkerEvent& event) { return event.never_started || event.exit.code != 0 || event.exit.signal != 0; }

}  // namespace

Supervisor::Supervisor(model::Cluster cluster, std::unique_ptr<sched::Policy> policy, const SupervisorOptions& options,
                       const base::Clock& clock, double now_s)
    : options_(options),
      origin_s_(now_s),
      open_part_(cluster),
      controller_(std::move(cluster),
                  make_holding_policy(std::move(policy), &held_, &closed_, {.slot_s = options.slot_s, .age_s = options.age_s}),
                  {.slot_s = kStep, .slots = 0, .seed = options.seed}, clock) {}

std::int64_t Supervisor::step_of(double now_s) const { return static_cast<std::int64_t>(std::floor((now_s - origin_s_) / kStep)); }

absl::StatusOr<formats::JobFile> Supervisor::read(const JobRow& row) const {
  MAYPOLE_ASSIGN_OR_RETURN(formats::JobFile file, formats::parse_job_file(row.description, "job.yaml"));
  const model::Cluster& cluster = controller_.cluster();
  if (file.per_worker.empty()) {  // a core, or whatever the cluster counts first
    file.per_worker = {{cluster.find_resource("cpu") ? "cpu" : cluster.resource(cluster.accelerator()), 1}};
  }
  for (const auto& [name, amount] : file.per_worker) {
    if (name == "gpu" && amount != std::floor(amount)) {
      return base::error(absl::StatusCode::kInvalidArgument, "per_worker.gpu: {} is no whole number of GPUs", amount);
    }
  }
  if (file.job.min_workers < file.job.max_workers) {
    file.job.progress.resize_s = std::max(file.job.progress.resize_s, kResizeSeconds);
  }
  file.job.id = row.id();
  file.job.arrival_s = static_cast<double>(step_of(row.submitted_s)) * kStep;  // the step in which it comes may already start it
  return file;
}

absl::Status Supervisor::demand(formats::JobFile& file) const {
  MAYPOLE_ASSIGN_OR_RETURN(file.job.demand, formats::demand_on(controller_.cluster(), file.per_worker));
  return model::check_job_alone(file.job, controller_.cluster());
}

absl::Status Supervisor::fit(formats::JobFile& file) const {
  MAYPOLE_RETURN_IF_ERROR(demand(file));
  MAYPOLE_RETURN_IF_ERROR(model::check_job_fits(file.job, controller_.cluster()));
  return model::check_bandwidth_fits(file.job, controller_.cluster());
}

model::JobId Supervisor::schedule(const Job& job) {
  const absl::StatusOr<model::JobId> id = controller_.submit(job.file.job);
  MAYPOLE_CHECK(id.ok());  // checked by admit() or restore()
  scheduled_[job.row.number] = *id;
  numbers_.push_back(job.row.number);
  news_ = true;
  return *id;
}

absl::StatusOr<JobRow> Supervisor::admit(const std::string& owner, const std::string& description, double now_s) {
  JobRow row;
  row.number = next_number_;
  row.owner = owner;
  row.description = description;
  row.submitted_s = now_s;
  MAYPOLE_ASSIGN_OR_RETURN(formats::JobFile file, read(row));
  file.job.id = file.name.empty() ? "(without a name)" : file.name;  // errors speak of a job that has no id yet
  if (file.allow_wait) {
    const bool known = formats::demand_on(controller_.cluster(), file.per_worker).ok();  // a resource may come with the cluster, too
    MAYPOLE_RETURN_IF_ERROR(known ? demand(file) : absl::OkStatus());
  } else {
    MAYPOLE_RETURN_IF_ERROR(fit(file));
  }
  ++next_number_;
  return row;
}

void Supervisor::add(const JobRow& row) {
  absl::StatusOr<formats::JobFile> file = read(row);
  MAYPOLE_CHECK(file.ok());  // admit() read it before
  const absl::Status fits = fit(*file);
  Job& job = jobs_.emplace(row.number, Job{row, *std::move(file), std::nullopt}).first->second;
  if (fits.ok()) {
    (void)schedule(job);
    look_at_closed(job);
  } else {
    job.blocked = too_large(fits);
  }
}

void Supervisor::forget(std::int64_t number) {
  MAYPOLE_CHECK(has_ended(jobs_.at(number).row.state));
  jobs_.erase(number);
}

absl::Status Supervisor::restore(std::vector<JobRow> rows) {
  const double now_s = origin_s_;
  for (JobRow& row : rows) {
    row.submitted_s = std::min(row.submitted_s, now_s);  // the machine's clock was ahead when it came
    origin_s_ = has_ended(row.state) ? origin_s_ : std::min(origin_s_, row.submitted_s);
  }
  const formats::NamedCluster names(controller_.cluster());
  for (JobRow& row : rows) {
    next_number_ = std::max(next_number_, row.number + 1);
    absl::StatusOr<formats::JobFile> file = read(row);
    if (has_ended(row.state)) {
      // What it asked for may be unknown to this cluster; it asks no more.
      Job ended{std::move(row), file.ok() ? *std::move(file) : formats::JobFile{}, std::nullopt};
      jobs_.emplace(ended.row.number, std::move(ended));
      continue;
    }
    const absl::Status status = file.ok() ? fit(*file) : file.status();
    if (!status.ok() && !holds_capacity(row.state)) {
      Job blocked{std::move(row), file.ok() ? *std::move(file) : formats::JobFile{}, std::nullopt, too_large(status)};
      jobs_.emplace(blocked.row.number, std::move(blocked));
      continue;
    }
    if (!status.ok()) {
      return base::error(absl::StatusCode::kFailedPrecondition,
                         "job {} runs and does not fit this cluster: {}: start with the cluster that it runs on; before servers leave, "
                         "`maypole drain` them",
                         row.number, base::message(status));
    }
    const std::int64_t number = row.number;
    Job& job = jobs_.emplace(number, Job{std::move(row), *std::move(file), std::nullopt}).first->second;
    const model::JobId id = schedule(job);
    if (!holds_capacity(job.row.state)) {
      continue;
    }
    const auto ring_of = [&](const std::string& text) -> absl::StatusOr<formats::JobLine> {
      const auto line = formats::parse_decision_line(text, "its ring", 1);
      if (!line.ok() || line->jobs.size() != 1) {
        return base::error(absl::StatusCode::kInternal, "the store is damaged: job {} is {} without a ring{}", number,
                           name_of(job.row.state), line.ok() ? "" : fmt::format(": {}", base::message(line.status())));
      }
      return line->jobs.front();
    };
    MAYPOLE_ASSIGN_OR_RETURN(job.ring, ring_of(job.row.ring));
    absl::StatusOr<model::Embedding> ring = names.embedding(*job.ring);
    if (!ring.ok()) {
      return base::error(absl::StatusCode::kFailedPrecondition,
                         "job {} runs where this cluster has nothing: {}: start with the cluster that it runs on; before servers leave, "
                         "`maypole drain` them",
                         number, base::message(ring.status()));
    }
    held_[id].ring = *std::move(ring);
    const std::size_t places = job.ring->ring.size();
    const std::size_t size = job.elastic() ? 1 : places;
    Epoch& epoch = epochs_[number];
    epoch.started.assign(size, false);
    epoch.ended.assign(size, std::nullopt);
    const std::size_t bar = job.row.devices.find('|');
    epoch.devices = parse_devices(job.row.devices.substr(0, bar), places);
    if (!job.row.leaving.empty()) {
      MAYPOLE_ASSIGN_OR_RETURN(job.ring, ring_of(job.row.leaving));
      MAYPOLE_ASSIGN_OR_RETURN(held_[id].leaving, names.embedding(*job.ring));
      epoch.leaving_devices = parse_devices(bar == std::string::npos ? "" : job.row.devices.substr(bar + 1), job.ring->ring.size());
    }
    epoch.running_since_s =
        job.row.state == JobState::kRunning ? std::optional(std::min(job.row.started_s.value_or(now_s), now_s)) : std::nullopt;
    actions_.emplace_back(AdoptEpoch{{number, job.row.epoch}, static_cast<int>(size), job.elastic()});
    if (job.row.stopping) {
      stop(number);
    }
  }
  return absl::OkStatus();
}

const Job* Supervisor::find(std::int64_t number) const {
  const auto found = jobs_.find(number);
  return found == jobs_.end() ? nullptr : &found->second;
}

std::vector<std::int64_t> Supervisor::holding() const {
  std::vector<std::int64_t> numbers;
  for (const auto& [number, epoch] : epochs_) {
    numbers.push_back(number);
  }
  return numbers;
}

model::Amounts Supervisor::held_on(model::ServerId server) const {
  model::Amounts held(controller_.cluster().num_resources(), 0);
  for (const auto& [id, ring] : held_) {
    const bool begun = !planned_.contains(numbers_[id.index()]);
    const auto on_server = [&](const model::Embedding& embedding) { return std::ranges::count(embedding.ring, server); };
    const auto workers = std::max(begun ? on_server(ring.ring) : 0, ring.leaving ? on_server(*ring.leaving) : 0);
    for (std::size_t i = 0; i < held.size(); ++i) {
      const auto resource = model::ResourceId::from_index(i);
      held[resource] += static_cast<double>(workers) * controller_.record(id).job.demand[resource];
    }
  }
  return held;
}

void Supervisor::stop(std::int64_t number) {
  Epoch& epoch = epochs_.at(number);
  epoch.stop_sent = true;
  epoch.stop_at_s.reset();
  actions_.emplace_back(StopEpoch{{number, jobs_.at(number).row.epoch}});
}

void Supervisor::cancel(std::int64_t number, const std::string& reason, double now_s) {
  Job& job = jobs_.at(number);
  if (has_ended(job.row.state) || job.row.stopping) {
    return;
  }
  if (!holds_capacity(job.row.state)) {
    leave(number, JobState::kCancelled, kCancelledCode, reason, now_s);
    return;
  }
  job.row.stopping = true;
  job.row.reason = reason;
  changed(number);
  stop(number);
}

void Supervisor::on_worker(const WorkerEvent& event, double now_s) {
  const auto found = epochs_.find(event.id.job);
  if (found == epochs_.end() || jobs_.at(event.id.job).row.epoch != event.id.epoch) {
    return;
  }
  Epoch& epoch = found->second;
  Job& job = jobs_.at(event.id.job);
  const auto rank = static_cast<std::size_t>(event.rank);
  if (event.kind == WorkerEventKind::kState) {
    return on_head(event.id.job, *event.state, now_s);
  }
  if (event.kind == WorkerEventKind::kStarted) {
    epoch.started[rank] = true;
    if (job.row.state == JobState::kStarting && std::ranges::count(epoch.started, false) == 0) {
      job.row.state = JobState::kRunning;
      job.row.started_s = job.row.started_s.value_or(now_s);
      epoch.running_since_s = now_s;
      changed(event.id.job);
    }
    return;
  }
  epoch.ended[rank] = event;
  // A killed rank goes before those that fail because their peer is gone; else the earliest began it.
  const auto order = [](const WorkerEvent& ended) { return std::pair(ended.exit.signal == 0, ended.exit.ended_s); };
  if (failed(event) && !event.never_started && !epoch.stop_sent && (!epoch.cause || order(event) < order(*epoch.cause))) {
    epoch.cause = event;
  }
  if (std::ranges::all_of(epoch.ended, [](const auto& ended) { return ended.has_value(); })) {
    conclude(event.id.job, now_s);
  } else if (failed(event) && !epoch.stop_sent && !epoch.stop_at_s) {
    epoch.stop_at_s = now_s + kLastWords;
  }
}

void Supervisor::conclude(std::int64_t number, double now_s) {
  const Epoch epoch = std::move(epochs_.at(number));
  Job& job = jobs_.at(number);
  const auto never = std::ranges::find_if(epoch.ended, [](const auto& ended) { return ended->never_started; });
  epochs_.erase(number);
  held_.erase(scheduled_.at(number));
  planned_.erase(number);
  job.ring.reset();
  job.row.leaving.clear();
  news_ = freed_ = true;
  if (job.row.stopping) {
    leave(number, JobState::kCancelled, kCancelledCode, job.row.reason, now_s);
  } else if (!epoch.stopped_because.empty()) {
    leave(number, JobState::kFailed, kTerminatedCode, epoch.stopped_because, now_s);
  } else if (never != epoch.ended.end()) {
    if (++failed_starts_[number] >= kMostFailedStarts) {
      leave(number, JobState::kFailed, 1, fmt::format("could not be started {} times: {}", kMostFailedStarts, describe(**never)), now_s);
    } else {
      wait_again(number, fmt::format("starts again: {}", describe(**never)));
    }
  } else if (!epoch.cause && !epoch.stop_sent) {
    leave(number, JobState::kFinished, 0, "", now_s);
  } else {
    const std::string why = epoch.cause ? describe(*epoch.cause, job.elastic()) : "its workers were ended";
    const int code = epoch.cause ? shell_code(epoch.cause->exit) : kTerminatedCode;
    if (job.row.failures < job.file.retries) {
      failed_starts_.erase(number);
      ++job.row.failures;
      wait_again(number, fmt::format("retry {} of {}: {}", job.row.failures, job.file.retries, why));
    } else {
      leave(number, JobState::kFailed, code, why, now_s);
    }
  }
}

void Supervisor::wait_again(std::int64_t number, std::string reason) {
  JobRow& row = jobs_.at(number).row;
  row.state = JobState::kQueued;
  row.reason = std::move(reason);
  row.order = 0;
  row.ring.clear();
  row.devices.clear();
  changed(number);
}

void Supervisor::leave(std::int64_t number, JobState state, int exit_code, std::string reason, double now_s) {
  JobRow& row = jobs_.at(number).row;
  row.state = state;
  row.reason = std::move(reason);
  row.exit_code = exit_code;
  row.finished_s = now_s;
  row.stopping = false;
  row.ring.clear();
  row.devices.clear();
  planned_.erase(number);
  if (const auto found = scheduled_.find(number); found == scheduled_.end()) {
    // it never fitted
  } else if (held_.erase(found->second); state == JobState::kCancelled) {
    controller_.cancelled(found->second, now_s - origin_s_);
  } else {
    controller_.finished(found->second, now_s - origin_s_);
  }
  scheduled_.erase(number);
  failed_starts_.erase(number);
  changed(number);
  news_ = true;
}

void Supervisor::start(std::int64_t number, const model::Embedding& embedding) {
  Job& job = jobs_.at(number);
  Epoch epoch;
  const std::size_t size = job.elastic() ? 1 : embedding.ring.size();
  epoch.started.assign(size, false);
  epoch.ended.assign(size, std::nullopt);
  epoch.devices = choose_devices(controller_.cluster(), job.file.job, embedding.ring, used_devices());
  job.ring = formats::job_line(job.row.id(), embedding, controller_.cluster());
  ++job.row.epoch;
  job.row.order = 0;
  job.row.state = JobState::kStarting;
  job.row.reason.clear();
  job.row.ring = line_of(job, embedding);
  job.row.devices = devices_text(epoch.devices);
  changed(number);
  actions_.emplace_back(order_of(job, epoch, embedding));
  epochs_[number] = std::move(epoch);
}

void Supervisor::note(const sched::SlotOutcome& outcome) {
  const sched::Decision& decision = outcome.decision;
  DecisionNote note;
  note.at_s = origin_s_ + static_cast<double>(step_) * kStep;
  note.seconds = decision.seconds;
  note.utility = decision.utility;
  note.bound = decision.bound;
  note.gap = decision.gap;
  note.limited = decision.limited;
  note.note = decision.note;
  note.refused = outcome.refused ? outcome.violations.front() : "";
  note.active = controller_.active().size();
  for (const sched::Placement& placement : decision.placements) {
    const std::int64_t number = numbers_[placement.job.index()];
    const Job& job = jobs_.at(number);
    const std::size_t from = job.ring ? job.ring->ring.size() : 0;
    if (from != placement.embedding.ring.size()) {
      note.changes.push_back({number, from, placement.embedding.ring.size()});
    }
  }
  decisions_.push_back(std::move(note));
}

void Supervisor::run_step(std::int64_t step) {
  if (open_) {
    (void)controller_.end_slot();
  }
  open_ = true;
  step_ = step;
  if (!news_ && controller_.repeats_left() > 0) {
    (void)controller_.repeat(step);
    return;
  }
  news_ = false;
  if (const std::int64_t slot = step / std::max<std::int64_t>(1, std::llround(options_.slot_s / kStep)); slot != slot_) {
    slot_ = slot;
    drop_planned();
    mark_resizable(origin_s_ + static_cast<double>(step) * kStep);
  }
  const sched::SlotOutcome outcome = controller_.decide(step);
  if (outcome.refused) {
    refusal_ = outcome.violations.front();
  }
  note(outcome);
  plan(outcome.decision);
}

void Supervisor::decide(double now_s) {
  if (!starts_) {
    return;
  }
  const std::int64_t target = step_of(now_s);
  if (!news_) {  // steps in which nothing happened are made up for; after a long sleep of the machine they are a gap
    for (std::int64_t step = std::max(step_ + 1, target - kMostSteps); step < target; ++step) {
      run_step(step);
    }
  }
  if (target > step_ && (news_ || controller_.repeats_left() == 0)) {
    run_step(target);
  }
}

void Supervisor::advance(double now_s) {
  for (auto& [number, epoch] : epochs_) {
    const Job& job = jobs_.at(number);
    if (epoch.stop_at_s && now_s >= *epoch.stop_at_s) {
      stop(number);
    }
    if (job.file.time_limit_s && epoch.running_since_s && !epoch.stop_sent && now_s - *epoch.running_since_s >= *job.file.time_limit_s) {
      epoch.stopped_because = fmt::format("was ended after its time limit of {:g} s", *job.file.time_limit_s);
      stop(number);
    }
  }
  decide(now_s);
  if (freed_ && !planned_.empty()) {
    begin_planned();
  }
}

double Supervisor::next_s() const {
  // While nothing calls for a decision the next slot is soon enough: the steps between are made up for then.
  const double step_end = origin_s_ + static_cast<double>(step_ + 1) * kStep;
  double next = !starts_ ? std::numeric_limits<double>::infinity()
                : news_  ? step_end
                         : step_end + std::min(60.0, static_cast<double>(controller_.repeats_left()) * kStep);
  for (const auto& [number, epoch] : epochs_) {
    if (epoch.stop_at_s) {
      next = std::min(next, *epoch.stop_at_s);
    }
    const Job& job = jobs_.at(number);
    if (job.file.time_limit_s && epoch.running_since_s && !epoch.stop_sent) {
      next = std::min(next, *epoch.running_since_s + *job.file.time_limit_s);
    }
  }
  return next;
}

std::vector<JobRow> Supervisor::take_changes() {
  std::vector<JobRow> rows;
  for (const std::int64_t number : std::exchange(changes_, {})) {
    rows.push_back(jobs_.at(number).row);
  }
  return rows;
}

void Supervisor::keep_changes(const std::vector<JobRow>& rows) {
  for (const JobRow& row : rows) {
    changes_.insert(row.number);
  }
}

std::vector<Action> Supervisor::take_actions() { return std::exchange(actions_, {}); }

}  // namespace maypole::daemon
