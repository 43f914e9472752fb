// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the daemon keeps what must outlive it. One transaction takes any number of jobs, so that a thousand submissions a second need
// not be a thousand waits for the disk; when commit() returns OK, what it was given survives kill -9 and loss of power.

#include "maypole/daemon/job_row.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace maypole::daemon {

enum class Role { kUser, kAdmin };
[[nodiscard]] std::string_view name_of(Role role);

/// A token's name and what it may do; of the token itself only a digest is kept.
struct TokenRow {
  std::string name;
  Role role = Role::kUser;
  std::string digest;
  double created_s = 0;
  bool operator==(const TokenRow&) const = default;
};

/// A server on which nothing new may start.
struct ClosedServer {
  std::string server;
  std::string reason;  // "drained by ann"
  double since_s = 0;
  bool operator==(const ClosedServer&) const = default;
};

/// Not thread-safe: one thread owns it. Errors: kResourceExhausted: the disk is full, nothing of the transaction was kept; kInternal:
/// anything else the file system or the database says.
class Store {
 public:
  virtual ~Store() = default;
  /// Names this store and no other: workers carry it, so that two data directories never touch each other's processes.
  [[nodiscard]] virtual const std::string& identity() const = 0;
  /// By number.
  [[nodiscard]] virtual absl::StatusOr<std::vector<JobRow>> jobs() = 0;
  /// Writes the rows, new ones and known ones, all or none.
  [[nodiscard]] virtual absl::Status commit(std::span<const JobRow> rows) = 0;
  /// Forgets jobs.
  [[nodiscard]] virtual absl::Status remove_jobs(std::span<const std::int64_t> numbers) = 0;

  [[nodiscard]] virtual absl::StatusOr<std::vector<TokenRow>> tokens() = 0;
  [[nodiscard]] virtual absl::Status add_token(const TokenRow& token) = 0;
  [[nodiscard]] virtual absl::Status remove_token(const std::string& name) = 0;

  /// By name.
  [[nodiscard]] virtual absl::StatusOr<std::vector<ClosedServer>> closed_servers() = 0;
  [[nodiscard]] virtual absl::Status close_server(const ClosedServer& server) = 0;
  /// No effect on one that is open.
  [[nodiscard]] virtual absl::Status open_server(const std::string& server) = 0;
};

struct StoreOptions {
  /// The file may not grow beyond so many pages of 4 KiB; 0: the disk decides. A full disk for tests.
  int max_pages = 0;
};

/// Opens the SQLite file, or makes it, readable by its owner only. Errors: what is there is no store of ours, or one of a later version.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Store>> open_store(const std::string& path, const StoreOptions& options = {});

}  // namespace maypole::daemon
