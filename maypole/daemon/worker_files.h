// SPDX-License-Identifier: Apache-2.0
#pragma once

// What daemon and shim share: a folder per worker, jobs/<job>/<epoch>/<rank>. It outlives both.
//
//   order      what to start, written by the daemon before it starts a shim
//   claim      who may start it: made whole and only once, by the shim before it starts the worker, or by a daemon that found the order
//              unclaimed after a crash and makes sure that nobody ever starts it
//   exit       how the worker ended, written by its shim when nothing of the worker is left
//   output.N   what it wrote, from its byte N on
//
// Invariant: a worker runs, or has run, only where the claim names a shim. The exit is there only when the worker and all that it
// started are gone.

#include "maypole/base/fd.h"
#include "maypole/daemon/meeting.h"
#include "maypole/daemon/process_identity.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::daemon {

struct WorkerOrder {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // NAME=VALUE, all of it
  std::string directory;
  int inherited_fd = -1;    // that the worker inherits through the shim
  std::string group;        // of its processes (process_group.h); empty: has none
  std::vector<int> cores;   // its own ones; empty: runs on any
  std::string quota_group;  // limits its cores; empty: nothing does
  double quota_cores = 0;
  std::string boot;  // of the daemon's machine, whose processes it can watch; empty: it is this one
  MeetingOrder meeting = {};
  bool operator==(const WorkerOrder&) const = default;
};
[[nodiscard]] absl::Status write_order(const std::string& folder, const WorkerOrder& order);
[[nodiscard]] absl::StatusOr<WorkerOrder> read_order(const std::string& folder);

/// Claims the folder for `shim`, or, without one, for nobody. False: somebody did before.
[[nodiscard]] absl::StatusOr<bool> claim_worker(const std::string& folder, const std::optional<ProcessIdentity>& shim);
struct Claim {
  std::optional<ProcessIdentity> shim;  // none: nobody may start it
};
[[nodiscard]] std::optional<Claim> read_claim(const std::string& folder);

struct WorkerExit {
  int code = 0;
  int signal = 0;
  double ended_s = 0;  // since 1970
  std::string reason;  // why it could not start; empty where it did
  bool operator==(const WorkerExit&) const = default;
};

/// Keeps the room for the exit from the start, so that a full disk cannot swallow it.
class ExitFile {
 public:
  [[nodiscard]] static absl::StatusOr<ExitFile> reserve(const std::string& folder);
  [[nodiscard]] absl::Status write(const WorkerExit& exit);

 private:
  ExitFile(std::string folder, base::Fd file) : folder_(std::move(folder)), file_(std::move(file)) {}
  std::string folder_;
  base::Fd file_;
};
[[nodiscard]] std::optional<WorkerExit> read_exit(const std::string& folder);

/// The worker's output on disk: files of 16 MiB, of which the last four are kept. A full disk costs output and nothing else.
class OutputWriter {
 public:
  static constexpr std::uint64_t kFileBytes = 16U << 20U;
  static constexpr std::size_t kKeptFiles = 4;
  explicit OutputWriter(std::string folder) : folder_(std::move(folder)) {}
  void write(std::string_view bytes);

 private:
  void open_next();
  std::string folder_;
  base::Fd file_;
  std::uint64_t next_ = 0;     // position of the next byte
  std::uint64_t started_ = 0;  // position of the open file's first byte
};

struct OutputPart {
  std::uint64_t start = 0;  // where `bytes` begins: later than asked where older output is gone
  std::string bytes;
};
/// At most `limit` bytes from `offset` on; no bytes: there are no more yet.
[[nodiscard]] OutputPart read_output(const std::string& folder, std::uint64_t offset, std::size_t limit);

}  // namespace maypole::daemon
