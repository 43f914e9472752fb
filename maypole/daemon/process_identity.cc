// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/process_identity.h"

#include "maypole/base/status.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

namespace maypole::daemon {

namespace {

/// By read(2): a stream throws where the process ends while its file is read. What was read until then is given.
std::string read_file(const std::string& path) {
  const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> part{};
  ssize_t got = 0;
  while (file.valid() && (got = ::read(file.get(), part.data(), part.size())) > 0) {
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  return text;
}

std::string boot_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

struct ProcessStat {
  char state = '?';
  std::uint64_t start_ticks = 0;
};

/// "pid (name) state parent ... starttime ...", where the name may hold anything; starttime is the 20th word after the name.
std::optional<ProcessStat> stat_of(pid_t pid) {
  const std::string text = read_file("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t after_name = text.rfind(") ");
  if (after_name == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream words(text.substr(after_name + 2));
  ProcessStat stat;
  words >> stat.state;
  constexpr int kBetween = 18;
  std::string skipped;
  for (int i = 0; i < kBetween; ++i) {
    words >> skipped;
  }
  words >> stat.start_ticks;
  return words ? std::optional(stat) : std::nullopt;
}

}  // namespace

ProcessIdentity own_identity() {
  const std::optional<ProcessStat> stat = stat_of(::getpid());
  return {::getpid(), stat ? stat->start_ticks : 0, boot_id()};
}

absl::StatusOr<base::Fd> open_process(const ProcessIdentity& identity) {
  base::Fd process(static_cast<int>(::syscall(SYS_pidfd_open, identity.pid, 0)));
  if (!process.valid() && errno != ESRCH && errno != EINVAL) {  // EINVAL: its leader was reaped, and the number is a thread's now
    return base::error(absl::StatusCode::kUnavailable, "watch process {}: {}", identity.pid, std::generic_category().message(errno));
  }
  const std::string boot = boot_id();
  if (boot.empty()) {
    return base::error(absl::StatusCode::kUnavailable, "the machine's boot number cannot be read now");
  }
  if (identity.boot != boot || !process.valid()) {
    return base::Fd();
  }
  // Only now: from here on the descriptor means one process, and the check tells whether it is the right one.
  const std::optional<ProcessStat> stat = stat_of(identity.pid);
  pollfd polled = {process.get(), POLLIN, 0};
  if (!stat && ::poll(&polled, 1, 0) == 0) {
    return base::error(absl::StatusCode::kUnavailable, "what process {} is cannot be read now", identity.pid);
  }
  if (!stat || stat->start_ticks != identity.start_ticks) {
    return base::Fd();
  }
  return process;
}

void signal_process(const base::Fd& process, int signal) {
  if (process.valid()) {
    ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0);
  }
}

std::size_t kill_marked(const std::string& variable) {
  std::vector<base::Fd> killed;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry("/proc", ignored); entry != std::filesystem::directory_iterator();
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size() || pid == ::getpid()) {
      continue;
    }
    const std::string environment = '\0' + read_file(entry->path().string() + "/environ");
    if (environment.find('\0' + variable + '\0') != std::string::npos) {
      killed.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
      ::kill(pid, SIGKILL);
    }
  }
  // A process that ends has no environment already while it still holds files and devices.
  for (const base::Fd& process : killed) {
    constexpr int kMostMs = 200;
    pollfd polled = {process.get(), POLLIN, 0};
    (void)::poll(&polled, 1, kMostMs);
  }
  return killed.size();
}

}  // namespace maypole::daemon
