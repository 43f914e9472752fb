// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/job_signals.h"

#include <signal.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <chrono>

namespace maypole::cli {

base::Fd listen_for_signals() {
  sigset_t handled;
  ::sigemptyset(&handled);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) {
    ::sigaddset(&handled, signal);
  }
  ::sigprocmask(SIG_BLOCK, &handled, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD}) {
    ::signal(signal, SIG_DFL);  // a shell script's `&` ignores SIGINT, and it would never arrive; SIGHUP stays as `nohup` set it
  }
  return base::Fd(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
}

int poll_milliseconds(std::optional<base::TimePoint> due) {
  if (!due) {
    return -1;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*due - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

}  // namespace maypole::cli
