// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/elastic_launch.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/cli/control_socket.h"
#include "maypole/cli/job_output.h"
#include "maypole/cli/job_signals.h"
#include "maypole/cli/messages.h"
#include "maypole/cli/results.h"
#include "maypole/cli/worker_places.h"
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
  ElasticLaunch(const RunOptions& options, const ElasticOptions& elastic, std::vector<AgentLink> hosts, std::unique_ptr<RunControl> control,
                bool said, base::Fd signals)
      : options_(options),
        elastic_(elastic),
        places_(std::move(hosts)),
        said_(said),
        secret_(net::random_hex(32)),
        signals_(std::move(signals)),
        control_(std::move(control)),
        output_(elastic.max_workers, options.json),
        coordinator_({.min_workers = elastic.min_workers,
                      .max_workers = elastic.max_workers,
                      .workers = elastic.workers,
                      .seats = seats_of(elastic.ring),
                      .edges = {elastic.bandwidth},
                      .retries = elastic.retries,
                      .checkpoints = elastic.checkpoints,
                      .silence = elastic.silence},
                     Clock::now()) {}

  int run();

 private:
  struct Worker {
    AgentLink agent;
    WorkerPlaces::Place place;
    bool exited = false;
  };
  /// What the run waits for; each step but the first two has a deadline, at which the next begins.
  enum class Phase { kRunning, kInterrupted, kLastWords, kTerminated, kKilled };

  void start_worker(WorkerId id, const std::string& host);
  void on_request(const RunControl::Request& request);
  void tell();
  void carry_out();
  void carry_out(const elastic::StartWorker& start) { start_worker(start.worker, start.host); }
  void carry_out(const elastic::KillWorker& kill);
  void carry_out(const elastic::Send& send);
  void carry_out(const elastic::Say& say) { output_.say(fmt::format("maypole: {}\n", say.text)); }
  void carry_out(const elastic::Fail& fail);
  void carry_out(const elastic::Answer& answer) { control_->answer(answer.request, answer.status, answer.text); }
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
  WorkerPlaces places_;
  bool said_;
  std::string secret_;
  net::Subreaper subreaper_;
  base::Fd signals_;
  std::unique_ptr<RunControl> control_;
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
  int master_port_ = 0;
  bool give_up_output_ = false;
};

// --- workers ---

void ElasticLaunch::start_worker(WorkerId id, const std::string& host) {
  std::vector<WorkerPlaces::Place> taken;
  for (const auto& [other, worker] : workers_) {
    if (!worker.agent.over()) {
      taken.push_back(worker.place);
    }
  }
  Worker& worker = workers_[id];
  worker.place = places_.choose(host, taken);
  worker.agent = places_.agent(worker.place, id.value());
  AgentLink& agent = worker.agent;
  const absl::Status status = start_agent(agent);
  if (!status.ok()) {
    return lose(id, worker, base::message(status));
  }
  agent.send(MessageKind::kSpec, to_json(elastic_spec(options_, elastic_, agent, secret_, worker.place.devices)));
}

void ElasticLaunch::on_ready(WorkerId id, Worker& worker, const Message& message) {
  AgentLink& agent = worker.agent;
  auto ready = from_json<AgentReady>(message.body);
  if (!ready.ok() || agent.state != AgentLink::State::kStarting) {
    return lose(id, worker, "its agent gave an answer that cannot be understood");
  }
  agent.ready = std::move(ready).value();
  agent.state = AgentLink::State::kRunning;
  master_port_ = master_port_ == 0 ? agent.ready.master_port : master_port_;  // one for all, where founders meet without us
  // Threads are shared out once, by the number of workers at the start: a worker that joins or leaves changes nobody's sums.
  const int sharing = std::min(elastic_.workers, places_.host(worker.place.host).place.num_workers);
  agent.send(MessageKind::kStart, to_json(StartOrder{"", places_.host(0).address, master_port_, sharing}));
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

// --- who else asks ---

void ElasticLaunch::on_request(const RunControl::Request& request) {
  if (request.ring.empty()) {
    return coordinator_.on_resize(request.number, request.range, Clock::now());
  }
  places_.set_ring(request.ring);
  coordinator_.on_seats(request.number, seats_of(request.ring), Clock::now(), {elastic_.bandwidth});
}

void ElasticLaunch::tell() {
  std::vector<std::string> living;
  for (const auto& [id, worker] : workers_) {
    if (!worker.agent.over()) {
      living.push_back(worker.agent.place.host.name);
    }
  }
  control_->tell(coordinator_, living);
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
  control_->add_to(polled);
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
  const auto requests = control_->read_ready(&polled[1 + JobOutput::kNumPolled]);
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
  std::ranges::for_each(requests, [this](const RunControl::Request& request) { on_request(request); });
  if (listen && phase_ == Phase::kRunning) {
    coordinator_.on_time(Clock::now());
  }
  carry_out();
  tell();
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
  Summary summary{elastic_.name, static_cast<int>(coordinator_.membership().members.size()), seconds, 0, std::nullopt, ""};
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
  } else if (said_) {
    output_.say(fmt::format("maypole: run {} ended well after {}, with {} resizes and {} workers lost\n", elastic_.name,
                            base::format_seconds(seconds), coordinator_.num_resizes(), coordinator_.num_failures()));
  }
  summary.exit_code = code;
  if (options_.json) {
    output_.answer(Results().summary_json(summary));
  }
  return code;
}

int ElasticLaunch::run() {
  places_.set_ring(elastic_.ring);
  if (said_) {
    output_.say(fmt::format("maypole: run {0} begins with {1} of {2}:{3} workers; `maypole resize {0} N` changes their number\n",
                            elastic_.name, elastic_.workers, elastic_.min_workers, elastic_.max_workers));
  }
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
  ElasticOptions named = elastic;
  named.name = elastic.name.empty() ? net::random_hex(4) : elastic.name;
  absl::StatusOr<ControlSocket> control = ControlSocket::open(named.name);
  if (!control.ok()) {
    fmt::print(stderr, "maypole run: --name: {}\n", base::message(control.status()));
    return 2;  // wrong use
  }
  return launch_elastic(options, named, std::move(hosts), std::make_unique<ControlSocket>(std::move(control).value()), true);
}

int launch_elastic(const RunOptions& options, const ElasticOptions& elastic, std::vector<AgentLink> hosts,
                   std::unique_ptr<RunControl> control, bool said) {
  absl::StatusOr<base::Fd> signals = listen_for_signals();
  if (!signals.ok()) {
    fmt::print(stderr, "maypole run: {}\n", base::message(signals.status()));
    return 1;
  }
  return ElasticLaunch(options, elastic, std::move(hosts), std::move(control), said, std::move(signals).value()).run();
}

}  // namespace maypole::cli
