// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/agent.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/cli/agent_link.h"
#include "maypole/cli/messages.h"
#include "maypole/cli/version.h"
#include "maypole/cli/worker_environment.h"
#include "maypole/net/child_process.h"
#include "maypole/net/machine.h"
#include "maypole/net/ports.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

namespace maypole::cli {

namespace {

/// The agent stops reading its workers while this much waits for the launcher, so a slow reader slows the job and costs no memory.
constexpr std::size_t kMaxWaitingBytes = 1U << 20U;
constexpr std::chrono::seconds kKillLimit{5};

struct Worker {
  int rank = 0;
  net::Child child;
  base::Fd control;                 // our end of an elastic worker's control socket
  std::deque<std::string> packets;  // on their way to it
  std::optional<net::ExitStatus> ended;
  bool running = false;
};

/// Hands over what the worker's socket takes now. Packets for a worker that has closed it are dropped.
void send_packets(Worker& worker) {
  while (!worker.packets.empty()) {
    const std::string& packet = worker.packets.front();
    if (::send(worker.control.get(), packet.data(), packet.size(), MSG_NOSIGNAL) < 0 && errno == EAGAIN) {
      return;
    }
    worker.packets.pop_front();
  }
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

class Agent {
 public:
  Agent() = default;
  ~Agent() { leave_nothing(); }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  int run();

 private:
  absl::Status handle(const Message& message);
  absl::Status prepare(const JobSpec& spec);
  absl::Status start(const StartOrder& order);
  void start_worker(int rank, const StartOrder& order);
  void signal_workers(int signal);
  bool read_launcher();
  void read_signals();
  void reap();
  bool pass_on(base::Fd& pipe, MessageKind kind, int rank);
  absl::Status pass_to_worker(const Message& message);
  void finish(Worker& worker);
  void send_file(MessageKind kind, const std::string& path, int rank);
  void finish_job();
  void leave_nothing();
  void send(MessageKind kind, std::string_view body) { to_launcher_.push(encode_message(kind, body)); }

  net::Subreaper subreaper_;
  base::Fd signals_;
  MessageReader from_launcher_;
  WriteQueue to_launcher_;
  std::optional<JobSpec> spec_;
  std::string folder_;  // of reports and timelines; removed at the end
  base::Fd rendezvous_;
  std::vector<Worker> workers_;
  base::TimePoint started_;
  bool done_ = false;
};

/// The pipes of all workers at once, and poll(), whose entries must not outnumber the files that a process may have open.
absl::Status check_open_files(int num_workers) {
  constexpr int kPolledPerWorker = 3;
  constexpr int kOthers = 8;
  const auto needed = static_cast<rlim_t>(kPolledPerWorker * num_workers + kOthers);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < needed) {
    return base::error(absl::StatusCode::kResourceExhausted,
                       "{} workers need {} open files and the limit is {}: raise it, as `ulimit -n {}` does", num_workers, needed,
                       limit.rlim_cur, std::max<rlim_t>(1024, needed));
  }
  return absl::OkStatus();
}

absl::Status Agent::prepare(const JobSpec& spec) {
  MAYPOLE_RETURN_IF_ERROR(check_open_files(spec.num_workers));
  if (spec.version != kVersion) {
    return base::error(absl::StatusCode::kFailedPrecondition, "runs maypole {} and the launcher {}: install the same version on both",
                       kVersion, spec.version);
  }
  std::error_code failed;
  if (!std::filesystem::is_directory(spec.directory, failed)) {
    return base::error(absl::StatusCode::kNotFound, "has no directory '{}', where the job was started: share it or make it there",
                       spec.directory);
  }
  const char* temporary = ::getenv("TMPDIR");
  std::string folder = fmt::format("{}/maypole-XXXXXX", temporary != nullptr && *temporary != '\0' ? temporary : "/tmp");
  if (::mkdtemp(folder.data()) == nullptr) {
    return base::errno_error(errno, "cannot make a temporary folder {}", folder);
  }
  folder_ = folder;
  for (const char* inside : {"report", "timeline"}) {
    if (!std::filesystem::create_directory(folder_ + "/" + inside, failed)) {
      return base::error(absl::StatusCode::kInternal, "cannot make the temporary folder {}/{}: {}", folder_, inside, failed.message());
    }
  }
  AgentReady ready;
  ready.directory = folder_;
  ready.cores = usable_cores();
  MAYPOLE_ASSIGN_OR_RETURN(const std::string identity, net::machine_identity());
  ready.machine = boot_of(identity);
  if (spec.first_rank == 0 || spec.elastic) {
    MAYPOLE_ASSIGN_OR_RETURN(net::BoundPort bound, net::listen_on(spec.bind_address));
    rendezvous_ = std::move(bound.socket);
    ready.rendezvous_port = bound.port;
    MAYPOLE_ASSIGN_OR_RETURN(ready.master_port, net::find_free_port());
  }
  spec_ = spec;
  send(MessageKind::kReady, to_json(ready));
  return absl::OkStatus();
}

void Agent::start_worker(int rank, const StartOrder& order) {
  WorkerSetting setting{*spec_, order, rank, usable_cores(), folder_, rank == spec_->first_rank ? rendezvous_.get() : -1};
  base::Fd control;
  base::Fd control_of_worker;
  if (spec_->elastic) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0) {
      control = base::Fd(ends[0]);
      control_of_worker = base::Fd(ends[1]);
      set_non_blocking(control.get());
    }
    setting.control_fd = control_of_worker.get();
  }
  net::ChildOptions options;
  options.command = spec_->command;
  options.environment = worker_environment(net::current_environment(), setting);
  options.directory = spec_->directory;
  options.standard_input = net::Stdio::kNull;
  options.standard_output = net::Stdio::kPipe;
  options.standard_error = net::Stdio::kPipe;
  options.new_session = true;
  options.death_signal = SIGKILL;
  for (const int fd : {setting.rendezvous_fd, setting.control_fd}) {
    if (fd >= 0) {
      options.inherited_fds.push_back(fd);
    }
  }
  auto child = net::start_child(options);
  if (!child.ok()) {
    constexpr int kNotFound = 127;  // as shells do
    constexpr int kNotExecutable = 126;
    WorkerExit exit{rank, absl::IsNotFound(child.status()) ? kNotFound : kNotExecutable, 0, 0, base::message(child.status())};
    send(MessageKind::kExit, to_json(exit));
    return;
  }
  Worker& worker = workers_.emplace_back();
  worker.rank = rank;
  worker.child = std::move(child).value();
  worker.control = std::move(control);
  set_non_blocking(worker.child.output.get());
  set_non_blocking(worker.child.error.get());
  worker.running = true;
}

absl::Status Agent::start(const StartOrder& order) {
  if (!spec_ || !workers_.empty()) {
    return base::error(absl::StatusCode::kFailedPrecondition, "was told to start workers at the wrong time");
  }
  started_ = std::chrono::steady_clock::now();
  for (int rank = spec_->first_rank; rank < spec_->first_rank + spec_->num_workers; ++rank) {
    start_worker(rank, order);
  }
  rendezvous_.reset();
  if (workers_.empty()) {
    finish_job();
  }
  return absl::OkStatus();
}

void Agent::signal_workers(int signal) {
  // Signals that a script asks for go to it alone; those that end a job go to all it started, as from a terminal.
  const bool for_script = signal == SIGUSR1 || signal == SIGUSR2;
  for (const Worker& worker : workers_) {
    if (worker.running && !worker.ended) {
      ::kill(for_script ? worker.child.pid : -worker.child.pid, signal);
      if (signal == SIGTERM) {
        ::kill(-worker.child.pid, SIGCONT);  // a stopped process would not see it
      }
    }
  }
}

absl::Status Agent::handle(const Message& message) {
  switch (message.kind) {
    case MessageKind::kSpec: {
      MAYPOLE_ASSIGN_OR_RETURN(const JobSpec spec, from_json<JobSpec>(message.body));
      return prepare(spec);
    }
    case MessageKind::kStart: {
      MAYPOLE_ASSIGN_OR_RETURN(const StartOrder order, from_json<StartOrder>(message.body));
      return start(order);
    }
    case MessageKind::kSignal:
      if (!message.body.empty()) {
        signal_workers(message.body[0]);
      }
      return absl::OkStatus();
    case MessageKind::kControl:
      return pass_to_worker(message);
    case MessageKind::kReady:
    case MessageKind::kOutput:
    case MessageKind::kErrorOutput:
    case MessageKind::kExit:
    case MessageKind::kReport:
    case MessageKind::kTimeline:
    case MessageKind::kDone:
    case MessageKind::kError:
      break;
  }
  return base::error(absl::StatusCode::kInvalidArgument, "got a message of kind {} that it does not take", static_cast<int>(message.kind));
}

/// Returns false at the end of the launcher's stream, or when it cannot be understood.
bool Agent::read_launcher() {
  const std::optional<std::string> bytes = read_some(STDIN_FILENO);
  if (!bytes) {
    return false;
  }
  from_launcher_.append(*bytes);
  while (true) {
    auto message = from_launcher_.next();
    if (message.ok() && !message->has_value()) {
      return true;
    }
    const absl::Status status = message.ok() ? handle(**message) : message.status();
    if (!status.ok()) {
      send(MessageKind::kError, base::message(status));
      done_ = true;
      return true;
    }
  }
}

void Agent::read_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
  }
  reap();
}

void Agent::reap() {
  for (const net::Reaped& reaped : net::reap_children()) {
    const auto worker =
        std::ranges::find_if(workers_, [&](const Worker& each) { return each.running && !each.ended && each.child.pid == reaped.pid; });
    if (worker != workers_.end()) {
      worker->ended = reaped.status;
      ::kill(-reaped.pid, SIGKILL);  // what the worker left in its process group
    }
  }
}

/// Passes on what is in the pipe now; false (and the pipe is closed) at its end.
bool Agent::pass_on(base::Fd& pipe, MessageKind kind, int rank) {
  const std::optional<std::string> bytes = read_some(pipe.get());
  if (!bytes) {
    pipe.reset();
    return false;
  }
  if (!bytes->empty()) {
    to_launcher_.push(encode_worker_bytes(kind, rank, *bytes));
  }
  return !bytes->empty();
}

absl::Status Agent::pass_to_worker(const Message& message) {
  MAYPOLE_ASSIGN_OR_RETURN(const WorkerBytes packet, decode_worker_bytes(message));
  for (Worker& worker : workers_) {
    if (worker.rank == packet.rank && worker.control.valid()) {
      worker.packets.emplace_back(packet.bytes);
      send_packets(worker);
    }
  }
  return absl::OkStatus();
}

void Agent::send_file(MessageKind kind, const std::string& path, int rank) {
  std::ifstream file(path, std::ios::binary);
  std::string part(1U << 20U, '\0');
  while (file && (file.read(part.data(), static_cast<std::streamsize>(part.size())), file.gcount() > 0)) {
    to_launcher_.push(encode_worker_bytes(kind, rank, std::string_view(part).substr(0, static_cast<std::size_t>(file.gcount()))));
  }
}

/// Sends what the worker wrote last, how it ended, and what it measured. A process that it left in another session may still hold the
/// pipes; so they are closed when they are empty, not when they end.
void Agent::finish(Worker& worker) {
  constexpr int kMaxReads = 64;  // more than a pipe holds
  for (int i = 0; i < kMaxReads && worker.child.output.valid() && pass_on(worker.child.output, MessageKind::kOutput, worker.rank); ++i) {
  }
  for (int i = 0; i < kMaxReads && worker.child.error.valid() && pass_on(worker.child.error, MessageKind::kErrorOutput, worker.rank); ++i) {
  }
  while (worker.control.valid() && pass_on(worker.control, MessageKind::kControl, worker.rank)) {
  }
  worker.child = {};
  worker.control.reset();
  worker.running = false;
  if (worker.ended->success()) {
    send_file(MessageKind::kReport, fmt::format("{}/report/rank-{}.json", folder_, worker.rank), worker.rank);
    send_file(MessageKind::kTimeline, fmt::format("{}/timeline/rank-{}.json", folder_, worker.rank), worker.rank);
  }
  const double seconds = base::to_seconds(std::chrono::steady_clock::now() - started_);
  send(MessageKind::kExit, to_json(WorkerExit{worker.rank, worker.ended->code, worker.ended->signal, seconds, ""}));
}

void Agent::finish_job() {
  leave_nothing();
  send(MessageKind::kDone, "");
  done_ = true;
}

void Agent::leave_nothing() {
  const std::size_t left = subreaper_.kill_descendants(kKillLimit);
  if (left > 0) {
    fmt::print(stderr, "maypole: {} processes of the job did not end within {} s of SIGKILL\n", left, kKillLimit.count());
  }
  if (!folder_.empty()) {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
    folder_.clear();
  }
}

int Agent::run() {
  sigset_t handled;
  ::sigemptyset(&handled);
  ::sigaddset(&handled, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &handled, nullptr);
  // A batch system signals every process that it sees; what becomes of the workers is the launcher's to say, and the end of its stream.
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    ::signal(signal, SIG_IGN);
  }
  signals_ = base::Fd(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  set_non_blocking(STDIN_FILENO);
  set_non_blocking(STDOUT_FILENO);
  if (!signals_.valid()) {
    return 1;
  }
  while (!done_ || to_launcher_.size() > 0) {
    std::vector<pollfd> polled = {{STDIN_FILENO, POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    polled.push_back({to_launcher_.size() > 0 ? STDOUT_FILENO : -1, POLLOUT, 0});
    const bool room = to_launcher_.size() < kMaxWaitingBytes;
    for (const Worker& worker : workers_) {
      polled.push_back({room ? worker.child.output.get() : -1, POLLIN, 0});
      polled.push_back({room ? worker.child.error.get() : -1, POLLIN, 0});
      polled.push_back({room ? worker.control.get() : -1, static_cast<short>(worker.packets.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    }
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) {
      return 1;
    }
    if (polled[1].revents != 0) {
      read_signals();
    }
    if ((polled[0].revents != 0 && !read_launcher()) || !to_launcher_.flush(STDOUT_FILENO)) {
      return 1;  // the launcher is gone: the destructor ends everything
    }
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      Worker& worker = workers_[i];
      const std::size_t at = 3 + 3 * i;
      if (at + 2 < polled.size()) {  // not one that was started in this round
        if (polled[at].revents != 0) {
          pass_on(worker.child.output, MessageKind::kOutput, worker.rank);
        }
        if (polled[at + 1].revents != 0) {
          pass_on(worker.child.error, MessageKind::kErrorOutput, worker.rank);
        }
        if (polled[at + 2].revents != 0 && worker.control.valid()) {
          send_packets(worker);
          pass_on(worker.control, MessageKind::kControl, worker.rank);
        }
      }
      if (worker.running && worker.ended && to_launcher_.size() < kMaxWaitingBytes) {
        finish(worker);
      }
    }
    if (!workers_.empty() && !done_ && std::ranges::none_of(workers_, [](const Worker& worker) { return worker.running; })) {
      finish_job();
    }
  }
  return 0;
}

}  // namespace

int run_agent() {
  ::setsid();  // a terminal's Ctrl-C and the end of the launcher's process group do not reach it; the launcher decides
  Agent agent;
  return agent.run();
}

}  // namespace maypole::cli
