// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/store.h"

#include "maypole/base/status.h"
#include "maypole/net/hmac.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <array>
#include <functional>
#include <utility>

namespace maypole::daemon {

namespace {

// What makes the tables of each version from those of the one before. A change adds one at the end.
constexpr std::array kVersions = {
    R"(
CREATE TABLE store (identity TEXT NOT NULL);
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY, owner TEXT NOT NULL, description TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,
  epoch INTEGER NOT NULL, ring TEXT NOT NULL, devices TEXT NOT NULL, failures INTEGER NOT NULL, stopping INTEGER NOT NULL,
  submitted_s REAL NOT NULL, started_s REAL, finished_s REAL, exit_code INTEGER);
CREATE TABLE tokens (name TEXT PRIMARY KEY, role TEXT NOT NULL, digest TEXT NOT NULL UNIQUE, created_s REAL NOT NULL);
)",
    R"(
CREATE TABLE closed_servers (server TEXT PRIMARY KEY, reason TEXT NOT NULL, since_s REAL NOT NULL);
)",
    R"(
ALTER TABLE jobs ADD COLUMN leaving TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN ring_order INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN resizes INTEGER NOT NULL DEFAULT 0;
)"};
constexpr auto kVersion = static_cast<std::int64_t>(kVersions.size());

struct CloseDatabase {
  void operator()(sqlite3* database) const { ::sqlite3_close_v2(database); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { ::sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;

absl::Status error_of(sqlite3* database, std::string_view what) {
  const int code = ::sqlite3_errcode(database);
  const int system = ::sqlite3_system_errno(database);
  const bool full = code == SQLITE_FULL || (code == SQLITE_IOERR && (system == ENOSPC || system == EDQUOT));
  return base::error(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal, "{}: {}", what,
                     full ? "the disk of the data directory is full" : ::sqlite3_errmsg(database));
}

absl::Status execute(sqlite3* database, const std::string& sql) {
  if (::sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return error_of(database, "the store");
  }
  return absl::OkStatus();
}

/// A prepared statement; parameters are bound in order, columns read in order.
class Statement {
 public:
  static absl::StatusOr<Statement> prepare(sqlite3* database, const char* sql) {
    sqlite3_stmt* statement = nullptr;
    if (::sqlite3_prepare_v3(database, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr) != SQLITE_OK) {
      return error_of(database, "the store");
    }
    return Statement(database, statement);
  }

  void start() {
    ::sqlite3_reset(statement_.get());
    ::sqlite3_clear_bindings(statement_.get());
    next_ = 1;
  }
  void bind(const std::string& text) {
    ::sqlite3_bind_text(statement_.get(), next_++, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
  }
  void bind(std::string_view text) { bind(std::string(text)); }
  void bind(std::int64_t value) { ::sqlite3_bind_int64(statement_.get(), next_++, value); }
  void bind(double value) { ::sqlite3_bind_double(statement_.get(), next_++, value); }
  template <typename T>
  void bind(const std::optional<T>& value) {
    if (value) {
      bind(static_cast<std::conditional_t<std::is_integral_v<T>, std::int64_t, T>>(*value));
    } else {
      ++next_;
    }
  }

  /// True: a row is there; false: there is none any more.
  absl::StatusOr<bool> step() {
    const int result = ::sqlite3_step(statement_.get());
    column_ = 0;
    if (result != SQLITE_ROW && result != SQLITE_DONE) {
      absl::Status status = error_of(database_, "the store");
      ::sqlite3_reset(statement_.get());
      return status;
    }
    return result == SQLITE_ROW;
  }
  absl::Status run() {
    const absl::StatusOr<bool> stepped = step();
    ::sqlite3_reset(statement_.get());
    return stepped.status();
  }

  std::string text() {
    const auto* data = reinterpret_cast<const char*>(::sqlite3_column_text(statement_.get(), column_));
    const int size = ::sqlite3_column_bytes(statement_.get(), column_++);
    return data == nullptr ? std::string() : std::string(data, static_cast<std::size_t>(size));
  }
  std::int64_t integer() { return ::sqlite3_column_int64(statement_.get(), column_++); }
  double number() { return ::sqlite3_column_double(statement_.get(), column_++); }
  std::optional<double> optional_number() { return is_null() ? skip<double>() : std::optional(number()); }
  std::optional<int> optional_integer() { return is_null() ? skip<int>() : std::optional(static_cast<int>(integer())); }

 private:
  Statement(sqlite3* database, sqlite3_stmt* statement) : database_(database), statement_(statement) {}
  [[nodiscard]] bool is_null() const { return ::sqlite3_column_type(statement_.get(), column_) == SQLITE_NULL; }
  template <typename T>
  std::optional<T> skip() {
    ++column_;
    return std::nullopt;
  }

  sqlite3* database_;
  std::unique_ptr<sqlite3_stmt, FinalizeStatement> statement_;
  int next_ = 1;
  int column_ = 0;
};

class SqliteStore final : public Store {
 public:
  SqliteStore(Database database, std::string identity, Statement upsert)
      : database_(std::move(database)), identity_(std::move(identity)), upsert_(std::move(upsert)) {}

  [[nodiscard]] const std::string& identity() const override { return identity_; }
  [[nodiscard]] absl::StatusOr<std::vector<JobRow>> jobs() override;
  [[nodiscard]] absl::Status commit(std::span<const JobRow> rows) override;
  [[nodiscard]] absl::Status remove_jobs(std::span<const std::int64_t> numbers) override;
  [[nodiscard]] absl::StatusOr<std::vector<TokenRow>> tokens() override;
  [[nodiscard]] absl::Status add_token(const TokenRow& token) override;
  [[nodiscard]] absl::Status remove_token(const std::string& name) override;
  [[nodiscard]] absl::StatusOr<std::vector<ClosedServer>> closed_servers() override;
  [[nodiscard]] absl::Status close_server(const ClosedServer& server) override;
  [[nodiscard]] absl::Status open_server(const std::string& server) override;

 private:
  absl::Status write(const JobRow& row);
  /// All or nothing.
  absl::Status transaction(std::size_t steps, const std::function<absl::Status(std::size_t)>& step);

  Database database_;
  std::string identity_;
  Statement upsert_;
};

absl::Status SqliteStore::write(const JobRow& row) {
  upsert_.start();
  upsert_.bind(row.number);
  upsert_.bind(row.owner);
  upsert_.bind(row.description);
  upsert_.bind(name_of(row.state));
  upsert_.bind(row.reason);
  upsert_.bind(std::int64_t{row.epoch});
  upsert_.bind(row.ring);
  upsert_.bind(row.devices);
  upsert_.bind(std::int64_t{row.failures});
  upsert_.bind(std::int64_t{row.stopping ? 1 : 0});
  upsert_.bind(row.submitted_s);
  upsert_.bind(row.started_s);
  upsert_.bind(row.finished_s);
  upsert_.bind(row.exit_code);
  upsert_.bind(row.leaving);
  upsert_.bind(std::int64_t{row.order});
  upsert_.bind(std::int64_t{row.resizes});
  return upsert_.run();
}

absl::Status SqliteStore::transaction(std::size_t steps, const std::function<absl::Status(std::size_t)>& step) {
  absl::Status status = execute(database_.get(), "BEGIN IMMEDIATE");
  for (std::size_t i = 0; i < steps && status.ok(); ++i) {
    status = step(i);
  }
  if (status.ok()) {
    status = execute(database_.get(), "COMMIT");
  }
  if (!status.ok() && ::sqlite3_get_autocommit(database_.get()) == 0) {
    (void)execute(database_.get(), "ROLLBACK");
  }
  return status;
}

absl::Status SqliteStore::commit(std::span<const JobRow> rows) {
  return transaction(rows.size(), [&](std::size_t i) { return write(rows[i]); });
}

absl::Status SqliteStore::remove_jobs(std::span<const std::int64_t> numbers) {
  MAYPOLE_ASSIGN_OR_RETURN(Statement remove, Statement::prepare(database_.get(), "DELETE FROM jobs WHERE number = ?"));
  return transaction(numbers.size(), [&](std::size_t i) {
    remove.start();
    remove.bind(numbers[i]);
    return remove.run();
  });
}

absl::StatusOr<std::vector<JobRow>> SqliteStore::jobs() {
  MAYPOLE_ASSIGN_OR_RETURN(
      Statement all,
      Statement::prepare(database_.get(),
                         "SELECT number, owner, description, state, reason, epoch, ring, devices, failures, "
                         "stopping, submitted_s, started_s, finished_s, exit_code, leaving, ring_order, resizes FROM jobs ORDER BY "
                         "number"));
  std::vector<JobRow> rows;
  while (true) {
    MAYPOLE_ASSIGN_OR_RETURN(const bool there, all.step());
    if (!there) {
      return rows;
    }
    JobRow& row = rows.emplace_back();
    row.number = all.integer();
    row.owner = all.text();
    row.description = all.text();
    const std::string state = all.text();
    const std::optional<JobState> known = job_state(state);
    if (!known) {
      return base::error(absl::StatusCode::kInternal, "the store: job {} has the state '{}', which this version does not know", row.number,
                         state);
    }
    row.state = *known;
    row.reason = all.text();
    row.epoch = static_cast<int>(all.integer());
    row.ring = all.text();
    row.devices = all.text();
    row.failures = static_cast<int>(all.integer());
    row.stopping = all.integer() != 0;
    row.submitted_s = all.number();
    row.started_s = all.optional_number();
    row.finished_s = all.optional_number();
    row.exit_code = all.optional_integer();
    row.leaving = all.text();
    row.order = static_cast<int>(all.integer());
    row.resizes = static_cast<int>(all.integer());
  }
}

absl::StatusOr<std::vector<TokenRow>> SqliteStore::tokens() {
  MAYPOLE_ASSIGN_OR_RETURN(
      Statement all, Statement::prepare(database_.get(), "SELECT name, role, digest, created_s FROM tokens ORDER BY created_s, name"));
  std::vector<TokenRow> rows;
  while (true) {
    MAYPOLE_ASSIGN_OR_RETURN(const bool there, all.step());
    if (!there) {
      return rows;
    }
    TokenRow& row = rows.emplace_back();
    row.name = all.text();
    row.role = all.text() == name_of(Role::kAdmin) ? Role::kAdmin : Role::kUser;
    row.digest = all.text();
    row.created_s = all.number();
  }
}

absl::Status SqliteStore::add_token(const TokenRow& token) {
  MAYPOLE_ASSIGN_OR_RETURN(Statement insert,
                           Statement::prepare(database_.get(), "INSERT INTO tokens (name, role, digest, created_s) VALUES (?, ?, ?, ?)"));
  insert.start();
  insert.bind(token.name);
  insert.bind(name_of(token.role));
  insert.bind(token.digest);
  insert.bind(token.created_s);
  return insert.run();
}

absl::Status SqliteStore::remove_token(const std::string& name) {
  MAYPOLE_ASSIGN_OR_RETURN(Statement remove, Statement::prepare(database_.get(), "DELETE FROM tokens WHERE name = ?"));
  remove.start();
  remove.bind(name);
  return remove.run();
}

absl::StatusOr<std::vector<ClosedServer>> SqliteStore::closed_servers() {
  MAYPOLE_ASSIGN_OR_RETURN(Statement all,
                           Statement::prepare(database_.get(), "SELECT server, reason, since_s FROM closed_servers ORDER BY server"));
  std::vector<ClosedServer> rows;
  while (true) {
    MAYPOLE_ASSIGN_OR_RETURN(const bool there, all.step());
    if (!there) {
      return rows;
    }
    ClosedServer& row = rows.emplace_back();
    row.server = all.text();
    row.reason = all.text();
    row.since_s = all.number();
  }
}

absl::Status SqliteStore::close_server(const ClosedServer& server) {
  MAYPOLE_ASSIGN_OR_RETURN(Statement insert, Statement::prepare(database_.get(), "INSERT OR REPLACE INTO closed_servers VALUES (?, ?, ?)"));
  insert.start();
  insert.bind(server.server);
  insert.bind(server.reason);
  insert.bind(server.since_s);
  return insert.run();
}

absl::Status SqliteStore::open_server(const std::string& server) {
  MAYPOLE_ASSIGN_OR_RETURN(Statement remove, Statement::prepare(database_.get(), "DELETE FROM closed_servers WHERE server = ?"));
  remove.start();
  remove.bind(server);
  return remove.run();
}

/// Makes the tables in a new file, or from those of an earlier version.
absl::StatusOr<std::string> prepare_tables(sqlite3* database, const std::string& path) {
  MAYPOLE_ASSIGN_OR_RETURN(Statement version, Statement::prepare(database, "PRAGMA user_version"));
  MAYPOLE_ASSIGN_OR_RETURN(const bool there, version.step());
  const std::int64_t found = there ? version.integer() : 0;
  if (found > kVersion) {
    return base::error(absl::StatusCode::kFailedPrecondition, "{}: was written by a later version (its tables are version {}, ours {})",
                       path, found, kVersion);
  }
  version.start();
  if (found == 0) {
    MAYPOLE_ASSIGN_OR_RETURN(Statement tables, Statement::prepare(database, "SELECT count(*) FROM sqlite_schema"));
    MAYPOLE_RETURN_IF_ERROR(tables.step().status());
    if (tables.integer() > 0) {
      return base::error(absl::StatusCode::kFailedPrecondition, "is a database of another program: choose another --data-dir");
    }
  }
  for (std::int64_t next = found; next < kVersion; ++next) {
    const std::string first = next == 0 ? fmt::format("INSERT INTO store VALUES ('{}');", net::random_hex(8)) : "";
    MAYPOLE_RETURN_IF_ERROR(execute(database, fmt::format("BEGIN IMMEDIATE; {} {} PRAGMA user_version = {}; COMMIT;",
                                                          kVersions[static_cast<std::size_t>(next)], first, next + 1)));
  }
  MAYPOLE_ASSIGN_OR_RETURN(Statement identity, Statement::prepare(database, "SELECT identity FROM store"));
  MAYPOLE_RETURN_IF_ERROR(identity.step().status());
  return identity.text();
}

}  // namespace

std::string_view name_of(Role role) { return role == Role::kAdmin ? "admin" : "user"; }

absl::StatusOr<std::unique_ptr<Store>> open_store(const std::string& path, const StoreOptions& options) {
  const mode_t old_mask = ::umask(0077);  // SQLite makes its files by the mask
  sqlite3* opened = nullptr;
  const int result = ::sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  Database database(opened);
  absl::Status status = result == SQLITE_OK ? absl::OkStatus() : error_of(opened, path);
  if (status.ok()) {
    // FULL: the log is synced at every commit, which is what "acknowledged means durable" needs in this mode.
    status = execute(opened, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 2000;");
  }
  absl::StatusOr<std::string> identity = status.ok() ? prepare_tables(opened, path) : absl::StatusOr<std::string>(status);
  ::umask(old_mask);
  if (!identity.ok()) {
    return base::error(identity.status().code(), "{}: {}", path, base::message(identity.status()));
  }
  if (options.max_pages > 0) {
    MAYPOLE_RETURN_IF_ERROR(execute(opened, fmt::format("PRAGMA max_page_count = {}", options.max_pages)));
  }
  MAYPOLE_ASSIGN_OR_RETURN(
      Statement upsert,
      Statement::prepare(
          opened,
          "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (number) DO UPDATE SET "
          "state = excluded.state, reason = excluded.reason, epoch = excluded.epoch, ring = excluded.ring, devices = excluded.devices, "
          "failures = excluded.failures, stopping = excluded.stopping, started_s = excluded.started_s, "
          "finished_s = excluded.finished_s, exit_code = excluded.exit_code, leaving = excluded.leaving, ring_order = excluded.ring_order, "
          "resizes = excluded.resizes"));
  return std::make_unique<SqliteStore>(std::move(database), *std::move(identity), std::move(upsert));
}

}  // namespace maypole::daemon
