// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/elastic_launch.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/cli/control_socket.h"
#include "maypole/cli/job_output.h"
#include "maypole/cli/job_signals.h"
#include "maypole/cli/messages.h"
#include "maypole/cli/results.h"
#include "maypole/elastic/coordinator.h"
#include "maypole/net/address.h"
#include "maypole/net/child_process.h"
#include "maypole/net/hmac.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <variant>

namespace maypole::cli {

namespace {

using Clock = std::chrono::steady_clock;
using elastic::Coordinator;
using elastic::WorkerId;

class ElasticLaunch {
 public:
  ElasticLaunch(const RunOptions& options, const ElasticOptions& elastic, std::vector<AgentLink> hosts, std::string name,
                ControlSocket control, base::Fd signals)
      : options_(options),
        elastic_(elastic),
        hosts_(std::move(hosts)),
        name_(std::move(name)),
        secret_(net::random_hex(32)),
        signals_(std::move(signals)),
        control_(std::move(control)),
        output_(elastic.max_workers, options.json),
        coordinator_({.min_workers = elastic.min_workers,
                      .max_workers = elastic.max_workers,
                      .workers = elastic.workers,
                      .edges = {elastic.bandwidth},
                      .retries = elastic.retries,
                      .checkpoints = elastic.checkpoints,
                      .silence = elastic.silence},
                     Clock::now()) {}

  int run();

 private:
  struct Worker {
    AgentLink agent;
    std::size_t host = 0;
    bool exited = false;
  };
  /// What the run waits for; each step but the first two has a deadline, at which the next begins.
  enum class Phase { kRunning, kInterrupted, kLastWords, kTerminated, kKilled };

  void start_worker(WorkerId id);
  [[nodiscard]] JobSpec spec_for(WorkerId id, const AgentLink& agent) const;
  void carry_out();
  void carry_out(const elastic::StartWorker& start) { start_worker(start.worker); }
  void carry_out(const elastic::KillWorker& kill);
  void carry_out(const elastic::Send& send);
  void carry_out(const elastic::Say& say) { output_.say(fmt::format("maypole: {}\n", say.text)); }
  void carry_out(const elastic::Fail& fail);
  void carry_out(const elastic::Answer& answer) { control_.answer(answer.request, answer.status, answer.text); }
  void on_message(WorkerId id, Worker& worker, const Message& message);
  void on_ready(WorkerId id, Worker& worker, const Message& message);
  void lose(WorkerId id, Worker& worker, const std::string& why);
  void worker_ended(WorkerId id, Worker& worker, net::ExitStatus status, const std::string& why);
  void on_signals();
  void on_signal(int signal);
  void on_deadline();
  void enter(Phase phase, base::Nanoseconds limit) {
    phase_ = phase;
    deadline_ = Clock::now() + limit;
  }
  void signal_all(int signal);
  void poll_once();
  [[nodiscard]] int poll_timeout() const;
  void forget_ended();
  void clean_up();
  [[nodiscard]] int conclude();
  [[nodiscard]] bool all_over() const {
    return std::ranges::all_of(workers_, [](const auto& worker) { return worker.second.agent.over(); });
  }

  const RunOptions& options_;
  const ElasticOptions& elastic_;
  std::vector<AgentLink> hosts_;  // patterns of agents, one a host; never started themselves
  std::string name_;
  std::string secret_;
  net::Subreaper subreaper_;
  base::Fd signals_;
  ControlSocket control_;
  JobOutput output_;
  Coordinator coordinator_;
  std::map<WorkerId, Worker> workers_;
  std::map<WorkerId, net::ExitStatus> exits_;  // of those that did not end well
  std::optional<elastic::Fail> failure_;
  Phase phase_ = Phase::kRunning;
  std::optional<base::TimePoint> deadline_;
  base::TimePoint began_ = Clock::now();
  int interrupted_by_ = 0;
  int num_interrupts_ = 0;
  bool give_up_output_ = false;
};

// --- workers ---

JobSpec ElasticLaunch::spec_for(WorkerId id, const AgentLink& agent) const {
  JobSpec spec = spec_of(options_, agent, name_, secret_);
  spec.environment["MAYPOLE_ELASTIC_WORKERS"] = fmt::format("{}:{}:{}", elastic_.min_workers, elastic_.workers, elastic_.max_workers);
  spec.world_size = std::max(elastic_.workers, id.value() + 1);
  spec.first_rank = id.value();
  spec.num_workers = 1;
  spec.bind_address = bind_address(agent);
  spec.elastic = true;
  spec.environment.erase("MAYPOLE_BANDWIDTH");  // each announcement says it
  return spec;
}

void ElasticLaunch::start_worker(WorkerId id) {
  std::vector<int> used(hosts_.size());
  for (const auto& [other, worker] : workers_) {
    used[worker.host] += worker.agent.over() ? 0 : 1;
  }
  std::size_t host = 0;  // the first with a free slot; a host whose lost worker has not ended yet may be over-full for a moment
  while (host + 1 < hosts_.size() && used[host] >= hosts_[host].place.num_workers) {
    ++host;
  }
  Worker& worker = workers_[id];
  worker.host = host;
  AgentLink& agent = worker.agent;
  agent.place = hosts_[host].place;
  agent.place.first_rank = id.value();
  agent.place.num_workers = 1;
  agent.address = hosts_[host].address;
  agent.direct = hosts_[host].direct;
  agent.command = hosts_[host].command;
  const absl::Status status = start_agent(agent);
  if (!status.ok()) {
    return lose(id, worker, base::message(status));
  }
  agent.send(MessageKind::kSpec, to_json(spec_for(id, agent)));
}

void ElasticLaunch::on_ready(WorkerId id, Worker& worker, const Message& message) {
  AgentLink& agent = worker.agent;
  auto ready = from_json<AgentReady>(message.body);
  if (!ready.ok() || agent.state != AgentLink::State::kStarting) {
    return lose(id, worker, "its agent gave an answer that cannot be understood");
  }
  agent.ready = std::move(ready).value();
  agent.state = AgentLink::State::kRunning;
  // Threads are shared out once, by the number of workers at the start: a worker that joins or leaves changes nobody's sums.
  const int sharing = std::min(elastic_.workers, hosts_[worker.host].place.num_workers);
  agent.send(MessageKind::kStart, to_json(StartOrder{"", hosts_[0].address, agent.ready.master_port, sharing}));
  coordinator_.on_started(id, agent.place.host.name,
                          net::format_host_port(agent.address, static_cast<std::uint16_t>(agent.ready.rendezvous_port)), Clock::now());
}

void ElasticLaunch::worker_ended(WorkerId id, Worker& worker, net::ExitStatus status, const std::string& why) {
  if (worker.exited) {
    return;
  }
  worker.exited = true;
  output_.finish(id.value());
  if (!status.success()) {
    exits_[id] = status;
  }
  if (phase_ == Phase::kRunning) {
    coordinator_.on_ended(id, status.success(), why, Clock::now());
  } else if (phase_ == Phase::kInterrupted && !status.success()) {
    enter(Phase::kLastWords, kLastWords);
  }
}

void ElasticLaunch::lose(WorkerId id, Worker& worker, const std::string& why) {
  worker.agent.hang_up();
  worker.agent.state = AgentLink::State::kLost;
  worker_ended(id, worker, {1, 0}, fmt::format("is lost with its agent on host '{}': {}", worker.agent.place.host.name, why));
}

void ElasticLaunch::on_message(WorkerId id, Worker& worker, const Message& message) {
  AgentLink& agent = worker.agent;
  switch (message.kind) {
    case MessageKind::kReady:
      return on_ready(id, worker, message);
    case MessageKind::kOutput:
    case MessageKind::kErrorOutput:
    case MessageKind::kControl: {
      const auto part = decode_worker_bytes(message);
      if (!part.ok()) {
        return lose(id, worker, base::message(part.status()));
      }
      if (message.kind != MessageKind::kControl) {
        return output_.add(id.value(), message.kind == MessageKind::kOutput ? Stream::kOut : Stream::kErr, part->bytes);
      }
      const auto report = elastic::decode_report(std::as_bytes(std::span(part->bytes)));
      return report.ok() ? coordinator_.on_report(id, *report, Clock::now()) : lose(id, worker, base::message(report.status()));
    }
    case MessageKind::kReport:
    case MessageKind::kTimeline:
      return;  // of one worker's stay, which is not the run's
    case MessageKind::kExit: {
      const auto exit = from_json<WorkerExit>(message.body);
      if (!exit.ok()) {
        return lose(id, worker, base::message(exit.status()));
      }
      const net::ExitStatus status{exit->code, exit->signal};
      return worker_ended(id, worker, status, exit->reason.empty() ? net::describe(status) : "could not start: " + exit->reason);
    }
    case MessageKind::kDone:
      agent.state = AgentLink::State::kDone;
      agent.child.input.reset();
      return;
    case MessageKind::kError:
      return lose(id, worker, message.body);
    case MessageKind::kSpec:
    case MessageKind::kStart:
    case MessageKind::kSignal:
      return lose(id, worker, "its agent sent a message that only a launcher sends");
  }
  lose(id, worker, "its agent sent a message of unknown kind: install the same version of maypole on both");
}

// --- what the coordinator wants ---

void ElasticLaunch::carry_out(const elastic::KillWorker& kill) {
  const auto worker = workers_.find(kill.worker);
  if (worker != workers_.end() && !worker->second.agent.over()) {
    worker->second.agent.send(MessageKind::kSignal, std::string(1, static_cast<char>(SIGKILL)));
  }
}

void ElasticLaunch::carry_out(const elastic::Send& send) {
  const auto worker = workers_.find(send.worker);
  if (worker != workers_.end()) {
    const std::vector<std::byte> packet = encode(send.order);
    const std::string_view bytes(reinterpret_cast<const char*>(packet.data()), packet.size());
    worker->second.agent.queue.push(encode_worker_bytes(MessageKind::kControl, send.worker.value(), bytes));
  }
}

void ElasticLaunch::carry_out(const elastic::Fail& fail) {
  failure_ = fail;
  if (phase_ == Phase::kRunning) {
    enter(Phase::kLastWords, kLastWords);
  }
}

void ElasticLaunch::carry_out() {
  for (std::vector<elastic::Action> actions = coordinator_.take_actions(); !actions.empty(); actions = coordinator_.take_actions()) {
    for (const elastic::Action& action : actions) {
      std::visit([this](const auto& each) { carry_out(each); }, action);
    }
  }
}

// --- signals and deadlines ---

void ElasticLaunch::signal_all(int signal) {
  for (auto& [id, worker] : workers_) {
    if (!worker.agent.over()) {
      worker.agent.send(MessageKind::kSignal, std::string(1, static_cast<char>(signal)));
    }
  }
}

void ElasticLaunch::on_signal(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    return signal_all(signal);
  }
  interrupted_by_ = interrupted_by_ == 0 ? signal : interrupted_by_;
  num_interrupts_ += signal == SIGINT ? 1 : 0;
  if (all_over()) {
    give_up_output_ = true;  // only a slow reader is waited for
  } else if (num_interrupts_ >= 2 && phase_ != Phase::kKilled) {
    signal_all(SIGKILL);
    enter(Phase::kKilled, kAfterKill);
  } else if (phase_ == Phase::kRunning) {
    signal_all(signal);
    phase_ = Phase::kInterrupted;  // no worker that ends from here on is replaced
  } else if (phase_ == Phase::kInterrupted) {
    signal_all(signal);
  }
}

void ElasticLaunch::on_signals() {
  read_signals(signals_, [this](int signal) { on_signal(signal); });
  for (const net::Reaped& reaped : net::reap_children()) {
    for (auto& [id, worker] : workers_) {
      if (worker.agent.child.pid == reaped.pid) {
        worker.agent.ended = reaped.status;
      }
    }
  }
}

void ElasticLaunch::on_deadline() {
  if (!deadline_ || Clock::now() < *deadline_) {
    return;
  }
  switch (phase_) {
    case Phase::kRunning:
    case Phase::kInterrupted:
      return;
    case Phase::kLastWords:
      signal_all(SIGTERM);
      return enter(Phase::kTerminated, kAfterTerminate);
    case Phase::kTerminated:
      signal_all(SIGKILL);
      return enter(Phase::kKilled, kAfterKill);
    case Phase::kKilled:
      for (auto& [id, worker] : workers_) {
        worker.agent.hang_up();
        worker.agent.state = worker.agent.over() ? worker.agent.state : AgentLink::State::kLost;
      }
      deadline_.reset();
      return;
  }
}

// --- the loop ---

int ElasticLaunch::poll_timeout() const {
  std::optional<base::TimePoint> due = deadline_;
  const auto also = [&due](const std::optional<base::TimePoint>& other) { due = other && (!due || *other < *due) ? other : due; };
  also(output_.next_due());
  also(phase_ == Phase::kRunning ? coordinator_.next_due() : std::nullopt);
  for (const auto& [id, worker] : workers_) {
    also(worker.agent.over() || worker.agent.ended ? std::nullopt : worker.agent.ends_by);
  }
  return poll_milliseconds(due);
}

void ElasticLaunch::poll_once() {
  std::vector<pollfd> polled = {{signals_.get(), POLLIN, 0}};
  output_.add_to(polled);
  control_.add_to(polled);
  const std::size_t first_agent = polled.size();
  // A slow reader slows the job. While nobody listens to the workers, nobody may call them silent: the coordinator's clock stands still.
  const bool listen = !output_.full() || phase_ == Phase::kTerminated || phase_ == Phase::kKilled;
  std::vector<WorkerId> order;
  for (const auto& [id, worker] : workers_) {
    if (worker.agent.connected()) {
      order.push_back(id);
      polled.push_back({listen ? worker.agent.child.output.get() : -1, POLLIN, 0});
      polled.push_back({worker.agent.queue.size() > 0 ? worker.agent.child.input.get() : -1, POLLOUT, 0});
    }
  }
  ::poll(polled.data(), polled.size(), poll_timeout());
  if (polled[0].revents != 0) {
    on_signals();
  }
  output_.write_ready(&polled[1]);
  const std::vector<ControlSocket::Request> requests = control_.read_ready(&polled[1 + JobOutput::kNumPolled]);
  for (std::size_t i = 0; i < order.size(); ++i) {
    Worker& worker = workers_.at(order[i]);
    AgentLink& agent = worker.agent;
    if (polled[first_agent + 2 * i].revents != 0 && agent.child.output.valid()) {
      if (const auto why = read_messages(agent, [&](const Message& message) { on_message(order[i], worker, message); })) {
        lose(order[i], worker, *why);
      }
    }
    if (polled[first_agent + 2 * i + 1].revents != 0 && agent.child.input.valid() && !agent.queue.flush(agent.child.input.get())) {
      agent.child.input.reset();
    }
  }
  for (auto& [id, worker] : workers_) {
    if (const auto why = find_lost(worker.agent)) {
      lose(id, worker, *why);
    }
  }
  for (const ControlSocket::Request& request : requests) {
    coordinator_.on_resize(request.number, request.range, Clock::now());
  }
  if (listen && phase_ == Phase::kRunning) {
    coordinator_.on_time(Clock::now());
  }
  carry_out();
  output_.show_late(Clock::now());
  on_deadline();
  forget_ended();
}

/// Workers come and go for as long as the run lasts: of those that are gone nothing is kept.
void ElasticLaunch::forget_ended() {
  std::vector<AgentLink> gone;
  for (auto worker = workers_.begin(); worker != workers_.end();) {
    AgentLink& agent = worker->second.agent;
    if (!agent.over() || (!agent.ended && agent.child.pid > 0)) {
      ++worker;
      continue;
    }
    if (agent.state == AgentLink::State::kLost) {
      gone.push_back(std::move(agent));
    }
    worker = workers_.erase(worker);
  }
  remove_folders_left(gone);
}

/// Ends the agents' processes and all that is left of them on this machine.
void ElasticLaunch::clean_up() {
  std::vector<AgentLink> agents;
  for (auto& [id, worker] : workers_) {
    worker.agent.hang_up();
    agents.push_back(std::move(worker.agent));
  }
  workers_.clear();
  static_cast<void>(subreaper_.kill_descendants(kAfterTerminate));
  remove_folders_left(agents);
}

int ElasticLaunch::conclude() {
  int code = 0;
  const double seconds = base::to_seconds(Clock::now() - began_);
  Summary summary{name_, static_cast<int>(coordinator_.membership().members.size()), seconds, 0, std::nullopt, ""};
  if (failure_) {
    const auto cause = exits_.find(failure_->worker);
    code = cause == exits_.end() ? 1 : cause->second.shell_code();
    std::string errors;
    if (failure_->worker.valid()) {
      summary.failed_rank = failure_->worker.value();
      errors = output_.last_errors(failure_->worker.value());
    }
    output_.say(fmt::format("maypole: {}{}\n{}", failure_->text, errors.empty() ? "" : "; its last errors:", errors));
  } else if (interrupted_by_ != 0 && !exits_.empty()) {
    code = exits_.begin()->second.shell_code();
    output_.say(fmt::format("maypole: interrupted by {}\n", net::signal_name(interrupted_by_)));
  } else {
    output_.say(fmt::format("maypole: run {} ended well after {}, with {} resizes and {} workers lost\n", name_,
                            base::format_seconds(seconds), coordinator_.num_resizes(), coordinator_.num_failures()));
  }
  summary.exit_code = code;
  if (options_.json) {
    output_.answer(Results().summary_json(summary));
  }
  return code;
}

int ElasticLaunch::run() {
  output_.say(fmt::format("maypole: run {} begins with {} of {}:{} workers; `maypole resize {} N` changes their number\n", name_,
                          elastic_.workers, elastic_.min_workers, elastic_.max_workers, name_));
  carry_out();
  while (!all_over()) {
    poll_once();
  }
  deadline_.reset();
  clean_up();
  const int code = conclude();
  while (!output_.empty() && !give_up_output_) {
    poll_once();
  }
  return code;
}

}  // namespace

int launch_elastic(const RunOptions& options, const ElasticOptions& elastic, std::vector<AgentLink> hosts) {
  const std::string name = elastic.name.empty() ? net::random_hex(4) : elastic.name;
  absl::StatusOr<ControlSocket> control = ControlSocket::open(name);
  if (!control.ok()) {
    fmt::print(stderr, "maypole run: --name: {}\n", base::message(control.status()));
    return 2;  // wrong use
  }
  absl::StatusOr<base::Fd> signals = listen_for_signals();
  if (!signals.ok()) {
    fmt::print(stderr, "maypole run: {}\n", base::message(signals.status()));
    return 1;
  }
  return ElasticLaunch(options, elastic, std::move(hosts), name, std::move(control).value(), std::move(signals).value()).run();
}

}  // namespace maypole::cli
