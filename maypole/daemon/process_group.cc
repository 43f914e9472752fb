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
#include <filesystem>
#include <fstream>
#include <sstream>

namespace maypole::daemon {

namespace {

struct Mount {
  std::string root;  // which group the folder shows
  std::string folder;
};

/// "id parent device root folder options ... - type source options"
Mount find_mount() {
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    if (line.find(" - cgroup2 ") == std::string::npos) {
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

/// "0::/path"
std::string own_path() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::")) {
      return line.substr(3);
    }
  }
  return {};
}

void kill_members(const std::string& group) {
  // At once where the kernel can (since 5.14): a process that starts others as fast as they are killed does not escape.
  const base::Fd all(::open((group + "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
  if (all.valid() && ::write(all.get(), "1", 1) == 1) {
    return;
  }
  std::ifstream members(group + "/cgroup.procs");
  for (pid_t pid = 0; members >> pid;) {
    ::kill(pid, SIGKILL);
  }
}

}  // namespace

std::string parent_of_groups() {
  const Mount mount = find_mount();
  std::string path = own_path();
  if (mount.folder.empty() || !path.starts_with(mount.root)) {
    return {};
  }
  path.erase(0, mount.root == "/" ? 0 : mount.root.size());
  const std::string group = mount.folder + (path == "/" ? "" : path);
  const std::string trial = group + "/maypole-trial-" + std::to_string(::getpid());
  // A move into a group needs the right to write in the one above both ends.
  if (::access((group + "/cgroup.procs").c_str(), W_OK) != 0 || ::mkdir(trial.c_str(), 0700) != 0) {
    return {};
  }
  ::rmdir(trial.c_str());
  return group;
}

absl::Status make_group(const std::string& group) {
  return ::mkdir(group.c_str(), 0700) == 0 || errno == EEXIST ? absl::OkStatus() : base::errno_error(errno, "make the group {}", group);
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
