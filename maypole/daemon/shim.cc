// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/shim.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/daemon/process_group.h"
#include "maypole/daemon/worker_files.h"
#include "maypole/net/child_process.h"
#include "maypole/net/socket.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

namespace maypole::daemon {

namespace {

constexpr std::chrono::seconds kAfterTerminate{3};

double wall_seconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

void end_group_of(const WorkerOrder& order) {
  for (const std::string& group : {order.group, order.quota_group}) {
    while (!group.empty() && !end_group(group)) {
      ::poll(nullptr, 0, 2);  // the kernel needs a moment to take them down
    }
  }
}

class Shim {
 public:
  Shim(std::string folder, ExitFile exit) : output_(std::move(folder)), exit_(std::move(exit)) {}
  int run(WorkerOrder order);

 private:
  absl::Status meet(WorkerOrder& order);
  bool start(const WorkerOrder& order);
  void watch();
  void on_signal(int signal);
  bool keep_output();

  net::Subreaper subreaper_;
  base::Fd signals_;
  OutputWriter output_;
  ExitFile exit_;
  net::Child worker_;
  std::optional<net::ExitStatus> ended_;
  std::optional<base::TimePoint> kill_at_;
};

/// Keeps what is in the pipe now; false at its end.
bool Shim::keep_output() {
  std::array<char, 64U << 10U> bytes{};
  const ssize_t got = ::read(worker_.output.get(), bytes.data(), bytes.size());
  if (got > 0) {
    output_.write(std::string_view(bytes.data(), static_cast<std::size_t>(got)));
    return true;
  }
  if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    worker_.output.reset();
  }
  return false;
}

bool Shim::start(const WorkerOrder& order) {
  net::ChildOptions options;
  options.command = order.command;
  options.environment = order.environment;
  options.directory = order.directory;
  options.standard_input = net::Stdio::kNull;
  options.standard_output = net::Stdio::kPipe;
  options.standard_error = net::Stdio::kOutput;
  options.new_session = true;
  options.death_signal = SIGKILL;
  if (order.inherited_fd >= 0) {
    options.inherited_fds = {order.inherited_fd};
  }
  for (const std::string& group : {order.group, order.quota_group}) {
    if (!group.empty() && make_group(group).ok()) {
      options.control_groups.push_back(group);
    }
  }
  if (!order.quota_group.empty()) {
    (void)limit_cores(order.quota_group, order.quota_cores);  // the daemon tried it when it came up
  }
  options.cores = order.cores;
  auto child = net::start_child(options);
  if (!child.ok()) {
    constexpr int kNotFound = 127;  // as shells do
    constexpr int kNotExecutable = 126;
    output_.write(base::message(child.status()) + "\n");
    end_group_of(order);
    (void)exit_.write({absl::IsNotFound(child.status()) ? kNotFound : kNotExecutable, 0, wall_seconds(), base::message(child.status())});
    return false;
  }
  worker_ = *std::move(child);
  return net::set_nonblocking(worker_.output.get()).ok();
}

void Shim::on_signal(int signal) {
  if (signal == SIGCHLD) {
    for (const net::Reaped& reaped : net::reap_children()) {
      if (reaped.pid == worker_.pid) {
        ended_ = reaped.status;
      }
    }
  } else if (!kill_at_) {
    ::kill(-worker_.pid, SIGTERM);
    ::kill(-worker_.pid, SIGCONT);  // a stopped process would not see it
    kill_at_ = std::chrono::steady_clock::now() + kAfterTerminate;
  }
}

void Shim::watch() {
  while (!ended_) {
    std::array<pollfd, 2> polled = {{{signals_.get(), POLLIN, 0}, {worker_.output.get(), POLLIN, 0}}};
    if (::poll(polled.data(), polled.size(), kill_at_ ? net::poll_timeout(*kill_at_) : -1) < 0 && errno != EINTR) {
      return;
    }
    if (kill_at_ && std::chrono::steady_clock::now() >= *kill_at_) {
      ::kill(-worker_.pid, SIGKILL);
      kill_at_ = std::chrono::steady_clock::now() + kAfterTerminate;
    }
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      on_signal(static_cast<int>(info.ssi_signo));
    }
    if (worker_.output.valid() && polled[1].revents != 0) {
      keep_output();
    }
  }
}

/// Waits for the other shims of the epoch, and puts what came out into the order.
absl::Status Shim::meet(WorkerOrder& order) {
  while (true) {
    absl::StatusOr<std::optional<MeetingPlace>> place = try_to_meet(order.meeting);
    MAYPOLE_RETURN_IF_ERROR(place.status());
    if (place->has_value()) {
      order.environment.insert(order.environment.end(), (*place)->variables.begin(), (*place)->variables.end());
      if ((*place)->socket.valid()) {
        order.inherited_fd = (*place)->socket.release();
      }
      return absl::OkStatus();
    }
    constexpr int kAgainMs = 5;
    pollfd polled = {signals_.get(), POLLIN, 0};
    if (::poll(&polled, 1, kAgainMs) > 0) {  // it has no child yet: it is to end
      return base::error(absl::StatusCode::kCancelled, "was ended before its ring had met");
    }
  }
}

int Shim::run(WorkerOrder order) {
  sigset_t handled;
  ::sigemptyset(&handled);
  ::sigaddset(&handled, SIGCHLD);
  ::sigaddset(&handled, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &handled, nullptr);
  signals_ = base::Fd(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) {
    return 1;
  }
  if (const absl::Status met = meet(order); !met.ok()) {
    output_.write(base::message(met) + "\n");
    (void)exit_.write({absl::IsCancelled(met) ? 0 : 1, absl::IsCancelled(met) ? SIGTERM : 0, wall_seconds(), base::message(met)});
    return 1;
  }
  if (!start(order)) {
    return 1;
  }
  if (order.inherited_fd >= 0) {
    ::close(order.inherited_fd);  // the worker's alone now: when it ends, its peers are refused and need not wait
  }
  watch();
  // Only when nothing is left may the exit be written: whoever reads it gives the capacity to others.
  constexpr std::chrono::seconds kAtATime{1};
  while (subreaper_.kill_descendants(kAtATime) > 0) {
  }
  end_group_of(order);
  while (worker_.output.valid() && keep_output()) {
  }
  const net::ExitStatus status = ended_.value_or(net::ExitStatus{1, 0});
  return exit_.write({status.code, status.signal, wall_seconds(), ""}).ok() ? 0 : 1;
}

}  // namespace

int run_shim(const std::string& folder) {
  for (const int signal : {SIGPIPE, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    ::signal(signal, SIG_IGN);
  }
  // What is printed before the claim reaches the daemon where a launcher started this.
  const absl::StatusOr<WorkerOrder> order = read_order(folder);
  if (!order.ok()) {
    fmt::print(stderr, "{}\n", base::message(order.status()));
    return 1;
  }
  const ProcessIdentity own = own_identity();
  if (!order->boot.empty() && order->boot != own.boot) {
    fmt::print(stderr, "this is another machine than the daemon's: launchers of this version lead to network namespaces only\n");
    return 1;
  }
  absl::StatusOr<ExitFile> exit = ExitFile::reserve(folder);
  if (!exit.ok()) {
    fmt::print(stderr, "{}\n", base::message(exit.status()));
    return 1;  // unclaimed: the daemon sees that it never started
  }
  const absl::StatusOr<bool> claimed = claim_worker(folder, own);
  if (!claimed.ok() || !*claimed) {
    return 1;
  }
  Shim shim(folder, *std::move(exit));
  return shim.run(*order);
}

}  // namespace maypole::daemon
