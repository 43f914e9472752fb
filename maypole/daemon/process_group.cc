// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/process_group.h"

#include "maypole/base/fd.h"
#include "maypole/base/status.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace maypole::daemon {

namespace {

struct Mount {
  std::string root;  // which group the folder shows
  std::string folder;
};

/// The words of a list that is parted by commas, as in "rw,cpu,cpuacct".
bool lists(std::string_view list, std::string_view word) {
  return fmt::format(",{},", list).find(fmt::format(",{},", word)) != std::string::npos;
}

/// Where the hierarchy of cgroup version 2 is mounted, or the one of version 1 that has the controller.
/// "id parent device root folder options ... - type source options"
Mount find_mount(std::string_view controller) {
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) {
      continue;
    }
    std::istringstream right(line.substr(dash + 3));
    std::string type;
    std::string source;
    std::string options;
    right >> type >> source >> options;
    if (controller.empty() ? type != "cgroup2" : type != "cgroup" || !lists(options, controller)) {
      continue;
    }
    std::istringstream words(line);
    std::string skipped;
    Mount mount;
    words >> skipped >> skipped >> skipped >> mount.root >> mount.folder;
    return mount;
  }
  return {};
}

/// "4:cpu,cpuacct:/path"; version 2: "0::/path".
std::string own_path(std::string_view controller) {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? line.starts_with("0::") : lists(controllers, controller)) {
      return line.substr(second + 1);
    }
  }
  return {};
}

/// The folder of this process's group where it may make others and move processes into them.
std::string own_group(std::string_view controller) {
  const Mount mount = find_mount(controller);
  std::string path = own_path(controller);
  if (mount.folder.empty() || !path.starts_with(mount.root)) {
    return {};
  }
  path.erase(0, mount.root == "/" ? 0 : mount.root.size());
  std::string group = mount.folder + (path == "/" ? "" : path);
  const std::string trial = group + "/maypole-trial-" + std::to_string(::getpid());
  // A move into a group needs the right to write in the one above both ends.
  if (::access((group + "/cgroup.procs").c_str(), W_OK) != 0 || ::mkdir(trial.c_str(), 0700) != 0) {
    return {};
  }
  ::rmdir(trial.c_str());
  return group;
}

absl::Status write_to(const std::string& path, std::string_view text) {
  const base::Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid() || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return base::errno_error(errno, "write {}", path);
  }
  return absl::OkStatus();
}

void kill_members(const std::string& group) {
  // At once where the kernel can (since 5.14): a process that starts others as fast as they are killed does not escape.
  if (write_to(group + "/cgroup.kill", "1").ok()) {
    return;
  }
  std::ifstream members(group + "/cgroup.procs");
  for (pid_t pid = 0; members >> pid;) {
    ::kill(pid, SIGKILL);
  }
}

}  // namespace

std::string parent_of_groups() { return own_group(""); }

std::string parent_of_quotas() {
  std::string second = own_group("");
  std::ifstream enabled(second + "/cgroup.subtree_control");
  for (std::string word; enabled >> word;) {
    if (word == "cpu") {
      return second;
    }
  }
  return own_group("cpu");
}

absl::Status make_group(const std::string& group) {
  return ::mkdir(group.c_str(), 0700) == 0 || errno == EEXIST ? absl::OkStatus() : base::errno_error(errno, "make the group {}", group);
}

absl::Status limit_cores(const std::string& group, double cores) {
  constexpr std::int64_t kPeriodUs = 100'000;
  const auto quota_us = static_cast<std::int64_t>(std::llround(cores * kPeriodUs));
  if (::access((group + "/cpu.max").c_str(), W_OK) == 0) {
    return write_to(group + "/cpu.max", fmt::format("{} {}", quota_us, kPeriodUs));
  }
  MAYPOLE_RETURN_IF_ERROR(write_to(group + "/cpu.cfs_period_us", std::to_string(kPeriodUs)));
  return write_to(group + "/cpu.cfs_quota_us", std::to_string(quota_us));
}

bool end_group(const std::string& group) {
  kill_members(group);
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(group, ignored); entry != std::filesystem::directory_iterator();
       entry.increment(ignored)) {
    if (entry->is_directory(ignored) && !end_group(entry->path().string())) {
      return false;
    }
  }
  return ::rmdir(group.c_str()) == 0 || errno == ENOENT;
}

}  // namespace maypole::daemon
