// SPDX-License-Identifier: Apache-2.0
#pragma once

// Starting, reaping and ending other programs. Other threads may run: between fork and exec a child makes system calls only, on what was
// prepared before. reap_children() takes every child of the process, whoever started it.

#include "maypole/base/fd.h"
#include "maypole/base/units.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace maypole::net {

/// kOutput: the standard error goes where the standard output goes.
enum class Stdio { kInherit, kNull, kPipe, kOutput };

struct ChildOptions {
  std::vector<std::string> command;      // looked up along PATH of `environment`
  std::vector<std::string> environment;  // NAME=VALUE, the whole environment
  std::string directory;                 // "" = the caller's
  Stdio standard_input = Stdio::kInherit;
  Stdio standard_output = Stdio::kInherit;
  Stdio standard_error = Stdio::kInherit;
  bool new_session = false;                 // a session and process group of its own, so that a terminal's Ctrl-C does not reach it
  int death_signal = 0;                     // sent to the child when the caller dies; 0 = none
  std::vector<int> inherited_fds;           // stay open in the child under the same numbers; every other descriptor is closed
  std::vector<std::string> control_groups;  // folders of cgroups that the child enters first, where it can
  std::vector<int> cores;                   // that it may run on; empty = the caller's
  std::vector<int> ignored_signals;         // all others get their default action and are unblocked
};

/// A running program; the descriptors are the caller's ends of the pipes that the options asked for (close-on-exec).
struct Child {
  pid_t pid = -1;
  base::Fd input;
  base::Fd output;
  base::Fd error;
};

/// Returns when the program has been executed. Errors: kNotFound (no such program or directory), kPermissionDenied, kUnavailable (no
/// process, no descriptors).
[[nodiscard]] absl::StatusOr<Child> start_child(const ChildOptions& options);

/// How a process ended: exactly one of the two is meaningful, `signal` when it is not 0.
struct ExitStatus {
  int code = 0;
  int signal = 0;
  [[nodiscard]] bool success() const { return code == 0 && signal == 0; }
  /// What a shell would show: the code, or 128 + signal.
  [[nodiscard]] int shell_code() const { return signal != 0 ? 128 + signal : code; }
};

/// "exited with code 3", "was killed by SIGKILL".
[[nodiscard]] std::string describe(const ExitStatus& status);
/// "SIGKILL"; "signal 40" where there is no name.
[[nodiscard]] std::string signal_name(int signal);

struct Reaped {
  pid_t pid;
  ExitStatus status;
};
/// Collects every child that has ended; does not block.
[[nodiscard]] std::vector<Reaped> reap_children();

/// Makes the caller the parent of orphaned descendants, so that what it started can be ended even after its parent is gone.
class Subreaper {
 public:
  Subreaper();
  /// Kills all descendants that were born after construction, and reaps them, until none is left or the deadline passes.
  /// Returns how many are left (processes that the kernel cannot end yet).
  [[nodiscard]] std::size_t kill_descendants(base::Nanoseconds limit) const;

 private:
  std::set<pid_t> spared_;  // children inherited across exec
};

/// What a file of /proc holds, at most 4 KiB of it; "" where it cannot be read: a process may end between opening and reading.
[[nodiscard]] std::string read_small_file(const std::string& path);

/// The caller's environment as NAME=VALUE.
[[nodiscard]] std::vector<std::string> current_environment();

}  // namespace maypole::net
