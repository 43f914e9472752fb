// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/launch.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/cli/agent_link.h"
#include "maypole/cli/failure.h"
#include "maypole/cli/job_output.h"
#include "maypole/cli/job_report.h"
#include "maypole/cli/job_signals.h"
#include "maypole/cli/launcher_template.h"
#include "maypole/cli/messages.h"
#include "maypole/cli/results.h"
#include "maypole/cli/version.h"
#include "maypole/cli/worker_environment.h"
#include "maypole/net/child_process.h"
#include "maypole/net/hmac.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>

namespace maypole::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAgentsStart{60};  // all agents answer within this

class Launch {
 public:
  Launch(const RunOptions& options, std::vector<AgentLink> agents, base::Fd signals)
      : options_(options),
        agents_(std::move(agents)),
        world_size_(agents_.back().place.first_rank + agents_.back().place.num_workers),
        job_id_(net::random_hex(8)),
        secret_(net::random_hex(32)),
        signals_(std::move(signals)),
        output_(world_size_, options.json) {}

  int run();

 private:
  /// What the launcher waits for; each step but the first two has a deadline, at which the next begins.
  enum class Phase { kStarting, kRunning, kLastWords, kTerminated, kKilled };

  absl::Status start_agents();
  JobSpec spec_for(const AgentLink& agent) const;
  void loop();
  void poll_once();
  [[nodiscard]] int poll_timeout() const;
  void on_deadline();
  void on_signals();
  void on_signal(int signal);
  void read_agent(AgentLink& agent);
  void on_message(AgentLink& agent, const Message& message);
  void on_ready();
  void on_exit(AgentLink& agent, const WorkerExit& exit);
  void lose(AgentLink& agent, const std::string& why);
  void check_lost();
  void fail(Failure failure);
  void enter(Phase phase, std::optional<base::Nanoseconds> limit);
  void signal_all(int signal);
  void abandon_agents();
  void flush_output();
  void clean_up();
  int conclude();
  [[nodiscard]] bool all_over() const {
    return std::ranges::all_of(agents_, [](const AgentLink& agent) { return agent.over(); });
  }

  const RunOptions& options_;
  std::vector<AgentLink> agents_;
  int world_size_;
  std::string job_id_;
  std::string secret_;
  net::Subreaper subreaper_;
  base::Fd signals_;
  JobOutput output_;
  Results results_;
  std::vector<Failure> failures_;     // in the order seen, until SIGTERM
  std::vector<Failure> ended_by_us_;  // later ones are our own doing
  Phase phase_ = Phase::kStarting;
  std::optional<base::TimePoint> deadline_;
  base::TimePoint began_ = Clock::now();
  base::TimePoint started_;
  int interrupted_by_ = 0;  // SIGINT, SIGTERM or SIGHUP
  int num_interrupts_ = 0;
  bool give_up_output_ = false;
};

JobSpec Launch::spec_for(const AgentLink& agent) const {
  JobSpec spec = spec_of(options_, agent, job_id_, secret_);
  spec.world_size = world_size_;
  spec.first_rank = agent.place.first_rank;
  spec.num_workers = agent.place.num_workers;
  spec.bind_address = bind_address(agent);
  spec.timeline = !options_.timeline.empty();
  return spec;
}

absl::Status Launch::start_agents() {
  for (AgentLink& agent : agents_) {
    const absl::Status status = start_agent(agent);
    if (!status.ok()) {
      return base::error(
          status.code(), "host '{}': {}{}", agent.place.host.name, base::message(status),
          agent.direct || absl::IsResourceExhausted(status) ? "" : ": check --launcher, which starts the programs of that host");
    }
    agent.send(MessageKind::kSpec, to_json(spec_for(agent)));
  }
  return absl::OkStatus();
}

void Launch::enter(Phase phase, std::optional<base::Nanoseconds> limit) {
  phase_ = phase;
  deadline_ = limit ? std::optional<base::TimePoint>(Clock::now() + *limit) : std::nullopt;
}

void Launch::signal_all(int signal) {
  const std::string body(1, static_cast<char>(signal));
  for (AgentLink& agent : agents_) {
    if (!agent.over()) {
      agent.send(MessageKind::kSignal, body);
    }
  }
}

void Launch::fail(Failure failure) {
  const bool by_us = phase_ == Phase::kTerminated || phase_ == Phase::kKilled;
  (by_us ? ended_by_us_ : failures_).push_back(std::move(failure));
  if (phase_ == Phase::kStarting) {
    abandon_agents();  // no worker runs yet
  } else if (phase_ == Phase::kRunning) {
    enter(Phase::kLastWords, kLastWords);
  }
}

void Launch::lose(AgentLink& agent, const std::string& why) {
  agent.hang_up();
  agent.state = AgentLink::State::kLost;
  fail(
      {-1, agent.place.host.name, {}, base::to_seconds(Clock::now() - started_), fmt::format("host '{}': {}", agent.place.host.name, why)});
}

/// Closes every pipe: each agent that lives ends what it started.
void Launch::abandon_agents() {
  for (AgentLink& agent : agents_) {
    agent.hang_up();
    agent.state = agent.over() ? agent.state : AgentLink::State::kLost;
  }
}

void Launch::on_ready() {
  if (std::ranges::any_of(agents_, [](const AgentLink& agent) { return agent.state != AgentLink::State::kReady; })) {
    return;
  }
  const std::vector<StartOrder> orders = start_orders(agents_);
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    agents_[i].send(MessageKind::kStart, to_json(orders[i]));
    agents_[i].state = AgentLink::State::kRunning;
  }
  started_ = Clock::now();
  enter(Phase::kRunning, std::nullopt);
}

void Launch::on_exit(AgentLink& agent, const WorkerExit& exit) {
  output_.finish(exit.rank);
  const net::ExitStatus status{exit.code, exit.signal};
  if (!status.success()) {
    fail({exit.rank, agent.place.host.name, status, exit.seconds, exit.reason});
  }
}

void Launch::on_message(AgentLink& agent, const Message& message) {
  switch (message.kind) {
    case MessageKind::kReady: {
      auto ready = from_json<AgentReady>(message.body);
      if (!ready.ok() || agent.state != AgentLink::State::kStarting) {
        return lose(agent, "its agent gave an answer that cannot be understood");
      }
      agent.ready = std::move(ready).value();
      agent.state = AgentLink::State::kReady;
      return on_ready();
    }
    case MessageKind::kOutput:
    case MessageKind::kErrorOutput:
    case MessageKind::kReport:
    case MessageKind::kTimeline: {
      const auto part = decode_worker_bytes(message);
      if (!part.ok()) {
        return lose(agent, base::message(part.status()));
      }
      if (message.kind == MessageKind::kReport) {
        return results_.add_report(part->rank, part->bytes);
      }
      if (message.kind == MessageKind::kTimeline) {
        return results_.add_timeline(part->rank, part->bytes, agent.place.host.name, agent.ready.machine);
      }
      return output_.add(part->rank, message.kind == MessageKind::kOutput ? Stream::kOut : Stream::kErr, part->bytes);
    }
    case MessageKind::kExit: {
      const auto exit = from_json<WorkerExit>(message.body);
      return exit.ok() ? on_exit(agent, *exit) : lose(agent, base::message(exit.status()));
    }
    case MessageKind::kDone:
      agent.state = AgentLink::State::kDone;
      agent.child.input.reset();
      return;
    case MessageKind::kError:
      return lose(agent, message.body);
    case MessageKind::kSpec:
    case MessageKind::kStart:
    case MessageKind::kSignal:
    case MessageKind::kControl:
      return lose(agent, "its agent sent a message that only a launcher sends");
  }
  lose(agent, fmt::format("its agent sent a message of unknown kind {}: install the same version of maypole on both",
                          static_cast<int>(message.kind)));
}

void Launch::read_agent(AgentLink& agent) {
  if (const auto why = read_messages(agent, [&](const Message& message) { on_message(agent, message); })) {
    lose(agent, *why);
  }
}

void Launch::check_lost() {
  for (AgentLink& agent : agents_) {
    if (const auto why = find_lost(agent)) {
      lose(agent, *why);
    }
  }
}

void Launch::on_signal(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    return signal_all(signal);
  }
  interrupted_by_ = interrupted_by_ == 0 ? signal : interrupted_by_;
  num_interrupts_ += signal == SIGINT ? 1 : 0;
  if (all_over()) {
    give_up_output_ = true;  // only a slow reader is waited for
  } else if (phase_ == Phase::kStarting) {
    abandon_agents();
  } else if (num_interrupts_ >= 2 && phase_ != Phase::kKilled) {
    signal_all(SIGKILL);
    enter(Phase::kKilled, kAfterKill);
  } else {
    signal_all(signal);
  }
}

void Launch::on_signals() {
  read_signals(signals_, [this](int signal) { on_signal(signal); });
  for (const net::Reaped& reaped : net::reap_children()) {
    for (AgentLink& agent : agents_) {
      if (agent.child.pid == reaped.pid) {
        agent.ended = reaped.status;
      }
    }
  }
}

void Launch::on_deadline() {
  if (!deadline_ || Clock::now() < *deadline_) {
    return;
  }
  switch (phase_) {
    case Phase::kStarting:
      for (AgentLink& agent : agents_) {
        if (agent.state == AgentLink::State::kStarting) {
          return lose(agent, fmt::format("`{}` gave no answer within {} s", quote_words(agent.command), kAgentsStart.count()));
        }
      }
      return;
    case Phase::kRunning:
      return;
    case Phase::kLastWords:
      signal_all(SIGTERM);
      return enter(Phase::kTerminated, kAfterTerminate);
    case Phase::kTerminated:
      signal_all(SIGKILL);
      return enter(Phase::kKilled, kAfterKill);
    case Phase::kKilled:
      for (const AgentLink& agent : agents_) {
        if (!agent.over()) {
          output_.say(fmt::format("maypole: host '{}' did not confirm within {} s that its workers are gone\n", agent.place.host.name,
                                  kAfterKill.count()));
        }
      }
      abandon_agents();
      deadline_.reset();
      return;
  }
}

int Launch::poll_timeout() const {
  std::optional<base::TimePoint> due = deadline_;
  const auto also = [&due](const std::optional<base::TimePoint>& other) { due = other && (!due || *other < *due) ? other : due; };
  also(output_.next_due());
  for (const AgentLink& agent : agents_) {
    also(agent.over() || agent.ended ? std::nullopt : agent.ends_by);
  }
  return poll_milliseconds(due);
}

void Launch::poll_once() {
  std::vector<pollfd> polled = {{signals_.get(), POLLIN, 0}};
  output_.add_to(polled);
  // A slow reader slows the job, except when the job is being ended: then its agents are heard at once.
  const bool listen = !output_.full() || phase_ == Phase::kTerminated || phase_ == Phase::kKilled;
  std::vector<AgentLink*> connected;
  for (AgentLink& agent : agents_) {
    if (agent.connected()) {
      connected.push_back(&agent);
      polled.push_back({listen ? agent.child.output.get() : -1, POLLIN, 0});
      polled.push_back({agent.queue.size() > 0 ? agent.child.input.get() : -1, POLLOUT, 0});
    }
  }
  ::poll(polled.data(), polled.size(), poll_timeout());
  if (polled[0].revents != 0) {
    on_signals();
  }
  output_.write_ready(&polled[1]);
  for (std::size_t i = 0; i < connected.size(); ++i) {
    AgentLink& agent = *connected[i];
    const std::size_t at = 1 + JobOutput::kNumPolled + 2 * i;
    if (polled[at].revents != 0 && agent.child.output.valid()) {
      read_agent(agent);
    }
    if (polled[at + 1].revents != 0 && agent.child.input.valid() && !agent.queue.flush(agent.child.input.get())) {
      agent.child.input.reset();
    }
  }
  check_lost();
  output_.show_late(Clock::now());
  on_deadline();
}

void Launch::flush_output() {
  while (!output_.empty() && !give_up_output_) {
    poll_once();
  }
}

/// Ends the agents' processes and all that is left of them on this machine.
void Launch::clean_up() {
  for (AgentLink& agent : agents_) {
    agent.hang_up();
  }
  // An agent that was hung up ends its workers itself and needs a moment; ssh passes the end of the stream on.
  const base::TimePoint limit = Clock::now() + kAfterKill;
  while (Clock::now() < limit && std::ranges::any_of(agents_, [](const AgentLink& agent) { return agent.child.pid > 0 && !agent.ended; })) {
    pollfd polled{signals_.get(), POLLIN, 0};
    ::poll(&polled, 1, 100);
    on_signals();
  }
  static_cast<void>(subreaper_.kill_descendants(kAfterTerminate));
  remove_folders_left(agents_);
}

int Launch::conclude() {
  int code = 0;
  const std::pair<const char*, std::string> files[] = {
      {"--report", options_.report}, {"--timeline", options_.timeline}, {"profile", options_.profile}};
  Summary summary{job_id_, world_size_, base::to_seconds(Clock::now() - began_), 0, std::nullopt, ""};
  if (!failures_.empty()) {
    const Failure& cause = first_cause(failures_, [this](int rank) { return output_.tail(rank); });
    const bool by_us = interrupted_by_ != 0 && num_interrupts_ >= 2;
    code = by_us ? 128 + SIGINT : (cause.rank < 0 ? 1 : cause.status.shell_code());
    const Failure* silent = silent_rank(cause, ended_by_us_, [this](int rank) { return output_.tail(rank); });
    const Failure& named = silent != nullptr ? *silent : cause;
    summary.failed_host = named.host;
    summary.failed_rank = named.rank >= 0 ? std::optional<int>(named.rank) : std::nullopt;
    Results::tell_unwritten(files, output_);
    if (interrupted_by_ != 0) {
      output_.say(fmt::format("maypole: interrupted by {}; {}\n", net::signal_name(interrupted_by_), describe(cause)));
    } else {
      const std::string errors = cause.rank >= 0 ? output_.last_errors(cause.rank) : "";
      const std::string lost =
          silent != nullptr ? fmt::format("rank {} on host {} answered no more and had to be ended; ", silent->rank, silent->host) : "";
      output_.say(fmt::format("maypole: {}{}{}\n{}", lost, describe(cause), errors.empty() ? "" : "; its last errors:", errors));
    }
  } else if (interrupted_by_ != 0 && (phase_ == Phase::kStarting || phase_ == Phase::kKilled)) {
    code = 128 + interrupted_by_;
    Results::tell_unwritten(files, output_);
    output_.say(fmt::format("maypole: interrupted by {}\n", net::signal_name(interrupted_by_)));
  } else {
    code = options_.profile.empty() ? results_.write(options_.report, options_.timeline, hosts_by_rank(agents_), output_)
                                    : results_.write_profile(options_.profile, output_);
  }
  summary.exit_code = code;
  if (options_.json) {
    output_.answer(results_.summary_json(summary));
  }
  return code;
}

int Launch::run() {
  enter(Phase::kStarting, kAgentsStart);
  const absl::Status status = start_agents();
  if (!status.ok()) {
    fail({-1, "", {}, 0, base::message(status)});
  }
  while (!all_over()) {
    poll_once();
  }
  deadline_.reset();
  clean_up();
  const int code = conclude();
  flush_output();
  return code;
}

}  // namespace

JobSpec spec_of(const RunOptions& options, const AgentLink& agent, const std::string& job_id, const std::string& secret) {
  JobSpec spec;
  spec.version = kVersion;
  spec.job_id = job_id;
  spec.secret = secret;
  spec.host = agent.place.host.name;
  std::error_code ignored;
  spec.directory = std::filesystem::current_path(ignored).string();
  spec.command = options.command;
  if (!agent.direct) {
    spec.environment = forwarded_environment(net::current_environment());
  }
  for (const auto& [name, value] : options.settings) {
    spec.environment[name] = value;
  }
  return spec;
}

int launch(const RunOptions& options, std::vector<AgentLink> agents) {
  absl::StatusOr<base::Fd> signals = listen_for_signals();
  if (!signals.ok()) {
    fmt::print(stderr, "maypole run: {}\n", base::message(signals.status()));
    return 1;
  }
  return Launch(options, std::move(agents), std::move(signals).value()).run();
}

}  // namespace maypole::cli
