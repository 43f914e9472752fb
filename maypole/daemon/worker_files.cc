// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/worker_files.h"

#include "maypole/base/status.h"
#include "maypole/net/message.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

namespace maypole::daemon {

namespace {

constexpr std::size_t kExitBytes = 1024;

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return std::nullopt;
  }
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

absl::Status write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) {
      return base::errno_error(errno, "write {}", path);
    }
    bytes.remove_prefix(written < 0 ? 0 : static_cast<std::size_t>(written));
  }
  return absl::OkStatus();
}

void sync_folder(const std::string& folder) {
  const base::Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid()) {
    ::fsync(fd.get());
  }
}

absl::Status write_new_file(const std::string& path, std::string_view bytes) {
  const base::Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    return base::errno_error(errno, "write {}", path);
  }
  MAYPOLE_RETURN_IF_ERROR(write_all(fd.get(), bytes, path));
  return ::fsync(fd.get()) == 0 ? absl::OkStatus() : base::errno_error(errno, "write {}", path);
}

void put_strings(net::MessageWriter& writer, const std::vector<std::string>& texts) {
  writer.put_u32(static_cast<std::uint32_t>(texts.size()));
  for (const std::string& text : texts) {
    writer.put_string(text);
  }
}

std::vector<std::string> read_strings(net::MessageReader& reader) {
  std::vector<std::string> texts;
  const std::uint32_t size = reader.u32();
  for (std::uint32_t i = 0; i < size && reader.ok(); ++i) {
    texts.push_back(reader.string());
  }
  return texts;
}

/// First positions of the output files, ascending.
std::vector<std::uint64_t> output_starts(const std::string& folder) {
  std::vector<std::uint64_t> starts;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(folder, ignored); entry != std::filesystem::directory_iterator();
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    std::uint64_t start = 0;
    if (name.starts_with("output.") && std::from_chars(name.data() + 7, name.data() + name.size(), start).ec == std::errc()) {
      starts.push_back(start);
    }
  }
  std::ranges::sort(starts);
  return starts;
}

std::string output_path(const std::string& folder, std::uint64_t start) { return fmt::format("{}/output.{}", folder, start); }

}  // namespace

absl::Status write_order(const std::string& folder, const WorkerOrder& order) {
  net::MessageWriter writer;
  put_strings(writer, order.command);
  put_strings(writer, order.environment);
  writer.put_string(order.directory);
  writer.put_u32(static_cast<std::uint32_t>(order.inherited_fd));
  writer.put_string(order.group);
  writer.put_u32(static_cast<std::uint32_t>(order.cores.size()));
  for (const int core : order.cores) {
    writer.put_u32(static_cast<std::uint32_t>(core));
  }
  writer.put_string(order.quota_group);
  writer.put_f64(order.quota_cores);
  writer.put_string(order.boot);
  writer.put_u32(static_cast<std::uint32_t>(order.meeting.role));
  writer.put_string(order.meeting.folder);
  const std::vector<std::byte>& bytes = writer.bytes();
  return write_new_file(folder + "/order", std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

absl::StatusOr<WorkerOrder> read_order(const std::string& folder) {
  const std::optional<std::string> text = read_file(folder + "/order");
  if (!text) {
    return base::error(absl::StatusCode::kNotFound, "{}/order cannot be read", folder);
  }
  net::MessageReader reader(std::as_bytes(std::span(*text)));
  WorkerOrder order;
  order.command = read_strings(reader);
  order.environment = read_strings(reader);
  order.directory = reader.string();
  order.inherited_fd = static_cast<int>(reader.u32());
  order.group = reader.string();
  const std::uint32_t num_cores = reader.u32();
  for (std::uint32_t i = 0; i < num_cores && reader.ok(); ++i) {
    order.cores.push_back(static_cast<int>(reader.u32()));
  }
  order.quota_group = reader.string();
  order.quota_cores = reader.f64();
  order.boot = reader.string();
  order.meeting.role = static_cast<MeetingRole>(reader.u32());
  order.meeting.folder = reader.string();
  MAYPOLE_RETURN_IF_ERROR(reader.finish(folder + "/order"));
  return order;
}

absl::StatusOr<bool> claim_worker(const std::string& folder, const std::optional<ProcessIdentity>& shim) {
  const std::string text = shim ? fmt::format("{} {} {}\n", shim->pid, shim->start_ticks, shim->boot) : "nobody\n";
  const std::string own = fmt::format("{}/claim.{}", folder, ::getpid());
  MAYPOLE_RETURN_IF_ERROR(write_new_file(own, text));
  // A link fails where the name exists, and the claim is never there without its text.
  const bool first = ::link(own.c_str(), (folder + "/claim").c_str()) == 0;
  const int error_number = errno;
  ::unlink(own.c_str());
  if (!first && error_number != EEXIST) {
    return base::errno_error(error_number, "claim {}", folder);
  }
  sync_folder(folder);
  return first;
}

std::optional<Claim> read_claim(const std::string& folder) {
  const std::optional<std::string> text = read_file(folder + "/claim");
  if (!text) {
    return std::nullopt;
  }
  std::istringstream words(*text);
  ProcessIdentity shim;
  return words >> shim.pid >> shim.start_ticks >> shim.boot ? Claim{shim} : Claim{};
}

absl::StatusOr<ExitFile> ExitFile::reserve(const std::string& folder) {
  const std::string path = folder + "/exit.reserved";
  base::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) {
    return base::errno_error(errno, "write {}", path);
  }
  MAYPOLE_RETURN_IF_ERROR(write_all(file.get(), std::string(kExitBytes, ' '), path));
  if (::fsync(file.get()) != 0) {
    return base::errno_error(errno, "write {}", path);
  }
  return ExitFile(folder, std::move(file));
}

absl::Status ExitFile::write(const WorkerExit& exit) {
  std::string reason = exit.reason.substr(0, kExitBytes / 2);
  std::ranges::replace(reason, '\n', ' ');
  const std::string text = fmt::format("{} {} {:.6f} {}\n", exit.code, exit.signal, exit.ended_s, reason);
  if (::pwrite(file_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) || ::fsync(file_.get()) != 0 ||
      std::rename((folder_ + "/exit.reserved").c_str(), (folder_ + "/exit").c_str()) != 0) {
    return base::errno_error(errno, "write {}/exit", folder_);
  }
  sync_folder(folder_);
  return absl::OkStatus();
}

std::optional<WorkerExit> read_exit(const std::string& folder) {
  const std::optional<std::string> text = read_file(folder + "/exit");
  if (!text) {
    return std::nullopt;
  }
  std::istringstream words(*text);
  WorkerExit exit;
  if (!(words >> exit.code >> exit.signal >> exit.ended_s)) {
    return std::nullopt;
  }
  words.get();  // the space
  std::getline(words, exit.reason);
  return exit;
}

void OutputWriter::open_next() {
  file_ = base::Fd(::open(output_path(folder_, next_).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  started_ = next_;
  const std::vector<std::uint64_t> starts = output_starts(folder_);
  for (std::size_t i = 0; i + kKeptFiles < starts.size(); ++i) {
    ::unlink(output_path(folder_, starts[i]).c_str());
  }
}

void OutputWriter::write(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!file_.valid() || next_ - started_ >= kFileBytes) {
      open_next();
    }
    const std::size_t part = std::min<std::size_t>(bytes.size(), kFileBytes - (next_ - started_));
    const ssize_t written = file_.valid() ? ::write(file_.get(), bytes.data(), part) : -1;
    if (written < 0 && file_.valid() && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      return;  // a full disk: what does not fit is lost, the worker goes on
    }
    next_ += static_cast<std::uint64_t>(written);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

OutputPart read_output(const std::string& folder, std::uint64_t offset, std::size_t limit) {
  OutputPart part{offset, {}};
  const std::vector<std::uint64_t> starts = output_starts(folder);
  if (starts.empty()) {
    return part;
  }
  part.start = std::max(offset, starts.front());
  while (part.bytes.size() < limit) {
    const std::uint64_t at = part.start + part.bytes.size();
    const std::uint64_t start = *(std::ranges::upper_bound(starts, at) - 1);
    const base::Fd file(::open(output_path(folder, start).c_str(), O_RDONLY | O_CLOEXEC));
    std::string bytes(limit - part.bytes.size(), '\0');
    const ssize_t got = file.valid() ? ::pread(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(at - start)) : 0;
    if (got <= 0) {
      return part;
    }
    part.bytes.append(bytes, 0, static_cast<std::size_t>(got));
  }
  return part;
}

}  // namespace maypole::daemon
