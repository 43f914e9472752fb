// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/data_dir.h"

#include "maypole/base/status.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace maypole::daemon {

namespace {

constexpr mode_t kOwnerOnly = 0700;

std::string lock_path(const std::string& data_dir) { return data_dir + "/lock"; }

/// The whole file, by its open description: a child that has not yet become another program holds it for a moment, another daemon never.
struct flock whole_file() {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

absl::StatusOr<base::Fd> lock_data_dir(const std::string& data_dir) {
  const auto cannot = [&](const std::string& why) {
    return base::error(absl::StatusCode::kInvalidArgument, "cannot make the data directory {}: {}", data_dir, why);
  };
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path(data_dir).parent_path(), failed);
  if (!failed && ::mkdir(data_dir.c_str(), kOwnerOnly) != 0 && errno != EEXIST) {
    failed = std::error_code(errno, std::generic_category());
  }
  struct stat found{};
  if (!failed && ::stat(data_dir.c_str(), &found) != 0) {
    failed = std::error_code(errno, std::generic_category());
  }
  if (failed) {
    return cannot(failed.message());
  }
  if (!S_ISDIR(found.st_mode)) {
    return cannot("it is a file");
  }
  if (found.st_uid != ::geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return base::error(absl::StatusCode::kFailedPrecondition,
                       "the data directory {} belongs to others, or others may write there: give one of your own, `chmod 700` it",
                       data_dir);
  }
  if (::mkdir((data_dir + "/jobs").c_str(), kOwnerOnly) != 0 && errno != EEXIST) {
    return cannot(std::generic_category().message(errno));
  }
  base::Fd file(::open(lock_path(data_dir).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) {
    return base::errno_error(errno, "open {}", lock_path(data_dir));
  }
  struct flock lock = whole_file();
  if (::fcntl(file.get(), F_OFD_SETLK, &lock) != 0) {
    return base::error(absl::StatusCode::kFailedPrecondition, "another daemon runs with the data directory {}: end it by `maypole down`",
                       data_dir);
  }
  return file;
}

bool daemon_has(const std::string& data_dir) {
  const base::Fd file(::open(lock_path(data_dir).c_str(), O_RDWR | O_CLOEXEC));
  struct flock lock = whole_file();
  return file.valid() && ::fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace maypole::daemon
