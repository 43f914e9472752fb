// SPDX-License-Identifier: Apache-2.0
#include "maypole/net/child_process.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace maypole::net {

namespace {

struct Pipe {
  base::Fd read_end;
  base::Fd write_end;
};

absl::StatusOr<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return base::errno_error(errno, "make a pipe");
  }
  Pipe pipe{base::Fd(ends[0]), base::Fd(ends[1])};
  // The child puts its ends on 0, 1 and 2; ends that already lie there (a caller started with closed streams) would be overwritten.
  for (base::Fd* end : {&pipe.read_end, &pipe.write_end}) {
    if (end->get() <= STDERR_FILENO) {
      const int moved = ::fcntl(end->get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
      if (moved < 0) {
        return base::errno_error(errno, "move a pipe");
      }
      *end = base::Fd(moved);
    }
  }
  return pipe;
}

/// What the child tells its parent when it cannot become the program.
struct Failure {
  enum Step : int { kDirectory, kStdio, kExec } step;
  int error_number;
};

[[noreturn]] void fail_in_child(int report_fd, Failure::Step step) {
  const Failure failure{step, errno};
  [[maybe_unused]] const ssize_t ignored = ::write(report_fd, &failure, sizeof failure);
  ::_exit(127);
}

void reset_signals(const std::vector<int>& ignored) {
  for (int signal = 1; signal < NSIG; ++signal) {
    const bool ignore = std::ranges::find(ignored, signal) != ignored.end();
    ::signal(signal, ignore ? SIG_IGN : SIG_DFL);  // fails for SIGKILL and SIGSTOP, which have no other action anyway
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void place_stdio(int report_fd, Stdio kind, int pipe_end, int target) {
  int source = -1;
  switch (kind) {
    case Stdio::kInherit:
      return;
    case Stdio::kNull:
      source = ::open("/dev/null", target == STDIN_FILENO ? O_RDONLY : O_WRONLY);
      break;
    case Stdio::kPipe:
      source = pipe_end;
      break;
    case Stdio::kOutput:
      source = STDOUT_FILENO;
      break;
  }
  if (source < 0 || (source != target && ::dup2(source, target) < 0)) {
    fail_in_child(report_fd, Failure::kStdio);
  }
}

struct Pipes {
  Pipe input;
  Pipe output;
  Pipe error;
  Pipe report;
};

/// What a child needs beside the options, in the form that system calls take.
struct Program {
  std::vector<char*> argv;
  std::vector<char*> environment;
  std::vector<std::string> group_members;  // files of the control groups
  cpu_set_t cores;
};

void enter_group(const std::string& members) {
  const int fd = ::open(members.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd >= 0) {
    [[maybe_unused]] const ssize_t ignored = ::write(fd, "0", 1);  // the writer itself
    ::close(fd);
  }
}

[[noreturn]] void run_child(const ChildOptions& options, const Pipes& pipes, Program& program, pid_t parent) {
  const int report_fd = pipes.report.write_end.get();
  reset_signals(options.ignored_signals);
  for (const std::string& members : program.group_members) {
    enter_group(members);
  }
  if (!options.cores.empty()) {
    ::sched_setaffinity(0, sizeof program.cores, &program.cores);
  }
  if (options.new_session) {
    ::setsid();
  }
  if (options.death_signal != 0) {
    ::prctl(PR_SET_PDEATHSIG, options.death_signal);
    if (::getppid() != parent) {  // the caller died in between
      ::_exit(127);
    }
  }
  if (!options.directory.empty() && ::chdir(options.directory.c_str()) != 0) {
    fail_in_child(report_fd, Failure::kDirectory);
  }
  place_stdio(report_fd, options.standard_input, pipes.input.read_end.get(), STDIN_FILENO);
  place_stdio(report_fd, options.standard_output, pipes.output.write_end.get(), STDOUT_FILENO);
  place_stdio(report_fd, options.standard_error, pipes.error.write_end.get(), STDERR_FILENO);
  ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  for (const int fd : options.inherited_fds) {
    ::fcntl(fd, F_SETFD, 0);
  }
  ::environ = program.environment.data();  // execvp then searches the PATH of the new environment
  ::execvp(program.argv[0], program.argv.data());
  fail_in_child(report_fd, Failure::kExec);
}

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const std::string& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

absl::Status explain(const Failure& failure, const ChildOptions& options) {
  switch (failure.step) {
    case Failure::kDirectory:
      return base::error(absl::StatusCode::kNotFound, "cannot enter the directory '{}': {}", options.directory,
                         ::strerror(failure.error_number));
    case Failure::kStdio:
      return base::errno_error(failure.error_number, "connect the streams of '{}'", options.command[0]);
    case Failure::kExec:
      break;
  }
  const bool missing = failure.error_number == ENOENT || failure.error_number == ENOTDIR;
  return base::error(missing ? absl::StatusCode::kNotFound : absl::StatusCode::kPermissionDenied, "cannot start '{}': {}",
                     options.command[0], ::strerror(failure.error_number));
}

/// Parent of every process, from /proc. Processes that end meanwhile are left out.
std::map<pid_t, pid_t> parents() {
  std::map<pid_t, pid_t> result;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry("/proc", ignored); entry != std::filesystem::directory_iterator();
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size()) {
      continue;
    }
    const std::string stat = read_small_file(entry->path() / "stat");
    const std::size_t after_name = stat.rfind(") ");  // "pid (name) state parent ...", and the name may hold anything
    if (after_name == std::string::npos || after_name + 4 >= stat.size()) {
      continue;
    }
    pid_t parent = 0;
    std::from_chars(stat.data() + after_name + 4, stat.data() + stat.size(), parent);
    result[pid] = parent;
  }
  return result;
}

std::vector<pid_t> descendants(const std::set<pid_t>& spared) {
  const std::map<pid_t, pid_t> parent_of = parents();
  std::vector<pid_t> found;
  for (const auto& [pid, first_parent] : parent_of) {
    pid_t ancestor = pid;
    for (std::size_t steps = 0; steps <= parent_of.size(); ++steps) {
      if (spared.contains(ancestor)) {
        break;
      }
      const auto up = parent_of.find(ancestor);
      if (up == parent_of.end()) {
        break;
      }
      ancestor = up->second;
      if (ancestor == ::getpid()) {
        found.push_back(pid);
        break;
      }
    }
  }
  return found;
}

}  // namespace

absl::StatusOr<Child> start_child(const ChildOptions& options) {
  MAYPOLE_CHECK(!options.command.empty());
  Pipes pipes;
  const auto make = [](Stdio kind, Pipe& pipe) -> absl::Status {
    if (kind == Stdio::kPipe) {
      MAYPOLE_ASSIGN_OR_RETURN(pipe, make_pipe());
    }
    return absl::OkStatus();
  };
  MAYPOLE_RETURN_IF_ERROR(make(options.standard_input, pipes.input));
  MAYPOLE_RETURN_IF_ERROR(make(options.standard_output, pipes.output));
  MAYPOLE_RETURN_IF_ERROR(make(options.standard_error, pipes.error));
  MAYPOLE_RETURN_IF_ERROR(make(Stdio::kPipe, pipes.report));
  Program program{pointers_to(options.command), pointers_to(options.environment), {}, {}};
  for (const std::string& group : options.control_groups) {
    program.group_members.push_back(group + "/cgroup.procs");
  }
  for (const int core : options.cores) {
    CPU_SET(core, &program.cores);
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    return base::errno_error(errno, "start a process for '{}'", options.command[0]);
  }
  if (pid == 0) {
    run_child(options, pipes, program, parent);
  }
  pipes.report.write_end.reset();
  Failure failure{};
  ssize_t got = 0;
  do {
    got = ::read(pipes.report.read_end.get(), &failure, sizeof failure);  // 0 bytes: exec closed the pipe
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof failure)) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return explain(failure, options);
  }
  return Child{pid, std::move(pipes.input.write_end), std::move(pipes.output.read_end), std::move(pipes.error.read_end)};
}

std::string signal_name(int signal) {
  const char* abbreviation = ::sigabbrev_np(signal);
  return abbreviation != nullptr ? fmt::format("SIG{}", abbreviation) : fmt::format("signal {}", signal);
}

std::string describe(const ExitStatus& status) {
  if (status.signal != 0) {
    return fmt::format("was killed by {}", signal_name(status.signal));
  }
  return fmt::format("exited with code {}", status.code);
}

std::vector<Reaped> reap_children() {
  std::vector<Reaped> reaped;
  while (true) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid <= 0) {
      return reaped;
    }
    reaped.push_back({pid, WIFSIGNALED(status) ? ExitStatus{0, WTERMSIG(status)} : ExitStatus{WEXITSTATUS(status), 0}});
  }
}

Subreaper::Subreaper() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (const pid_t pid : descendants({})) {
    spared_.insert(pid);
  }
}

std::size_t Subreaper::kill_descendants(base::Nanoseconds limit) const {
  const base::TimePoint deadline = std::chrono::steady_clock::now() + limit;
  while (true) {
    static_cast<void>(reap_children());
    const std::vector<pid_t> left = descendants(spared_);
    if (left.empty() || std::chrono::steady_clock::now() >= deadline) {
      return left.size();
    }
    for (const pid_t pid : left) {
      ::kill(pid, SIGKILL);
    }
    ::poll(nullptr, 0, 2);  // the kernel needs a moment to take them down
  }
}

std::string read_small_file(const std::string& path) {
  const base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(4096, '\0');
  const ssize_t got = fd.valid() ? ::read(fd.get(), text.data(), text.size()) : -1;
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

std::vector<std::string> current_environment() {
  std::vector<std::string> result;
  for (char** variable = ::environ; *variable != nullptr; ++variable) {
    result.emplace_back(*variable);
  }
  return result;
}

}  // namespace maypole::net
