// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/output_file.h"

#include "maypole/base/fd.h"
#include "maypole/base/status.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

namespace maypole::formats {

namespace {

constexpr mode_t kMode = 0666;

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string partial_name(const std::string& target) { return fmt::format("{}.{}.part", target, ::getpid()); }

}  // namespace

absl::StatusOr<OutputFile> OutputFile::open(const std::string& path) {
  OutputFile made;
  made.path_ = path;
  struct stat existing{};
  const bool exists = ::stat(path.c_str(), &existing) == 0;
  base::Fd fd;
  if (exists && !S_ISREG(existing.st_mode)) {
    fd = base::Fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  } else if (exists && ::access(path.c_str(), W_OK) != 0) {
    return made.failure(errno);  // to put another in its place might be possible, and is not meant
  } else {
    std::error_code unresolved;
    made.target_ = exists ? std::filesystem::canonical(path, unresolved).string() : path;
    // Without a name, so that nothing is left of it when the program is killed.
    fd = base::Fd(::open(folder_of(made.target_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode));
    if (!fd.valid() && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {  // not every file system can
      made.partial_ = partial_name(made.target_);
      fd = base::Fd(::open(made.partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode));
    }
    if (fd.valid() && exists) {
      static_cast<void>(::fchmod(fd.get(), existing.st_mode & 07777U));
    }
  }
  if (!fd.valid()) {
    return made.failure(errno);
  }
  made.file_.reset(::fdopen(fd.get(), "w"));
  if (made.file_ == nullptr) {
    return made.failure(errno);
  }
  static_cast<void>(fd.release());  // the stream has it now
  return made;
}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  discard();
  path_ = std::move(other.path_);
  target_ = std::move(other.target_);
  partial_ = std::move(other.partial_);
  file_ = std::move(other.file_);
  error_ = other.error_;
  return *this;
}

void OutputFile::write(std::string_view text) {
  if (error_ == 0 && std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size()) {
    error_ = errno;
  }
}

absl::Status OutputFile::close() {
  if (error_ == 0 && std::fflush(file_.get()) != 0) {
    error_ = errno;
  }
  if (error_ == 0 && !target_.empty() && partial_.empty()) {
    partial_ = partial_name(target_);
    ::unlink(partial_.c_str());  // of a program that was killed, and had our number
    const std::string nameless = fmt::format("/proc/self/fd/{}", ::fileno(file_.get()));
    if (::linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, partial_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      error_ = errno;
    }
  }
  if (std::fclose(file_.release()) != 0 && error_ == 0) {
    error_ = errno;
  }
  if (error_ == 0 && !target_.empty() && ::rename(partial_.c_str(), target_.c_str()) != 0) {
    error_ = errno;
  }
  if (error_ != 0) {
    discard();
    return failure(error_);
  }
  partial_.clear();
  return absl::OkStatus();
}

void OutputFile::discard() {
  file_.reset();
  if (!partial_.empty()) {
    ::unlink(partial_.c_str());
    partial_.clear();
  }
}

absl::Status OutputFile::failure(int error_number) const { return base::errno_error(error_number, "{}: cannot be written", path_); }

}  // namespace maypole::formats
