// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/job_signals.h"

#include "maypole/base/status.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace maypole::cli {

absl::StatusOr<base::Fd> listen_for_signals() {
  sigset_t handled;
  ::sigemptyset(&handled);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) {
    ::sigaddset(&handled, signal);
  }
  base::Fd signals(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) {
    return base::errno_error(errno, "cannot listen for signals");
  }
  ::sigprocmask(SIG_BLOCK, &handled, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD}) {
    ::signal(signal, SIG_DFL);  // a shell script's `&` ignores SIGINT, and it would never arrive; SIGHUP stays as `nohup` set it
  }
  return signals;
}

void read_signals(const base::Fd& signals, absl::FunctionRef<void(int)> on_signal) {
  signalfd_siginfo info{};
  while (::read(signals.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo != SIGCHLD) {
      on_signal(static_cast<int>(info.ssi_signo));
    }
  }
}

int poll_milliseconds(std::optional<base::TimePoint> due) {
  if (!due) {
    return -1;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*due - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

}  // namespace maypole::cli
