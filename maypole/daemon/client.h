// SPDX-License-Identifier: Apache-2.0
#pragma once

// A caller of API v1, for the commands.

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <string>

namespace maypole::daemon {

struct ClientOptions {
  std::string address;   // host:port; "": MAYPOLE_ADDRESS, else what the daemon of the data directory wrote there
  std::string data_dir;  // "": MAYPOLE_DATA_DIR, else default_data_dir()
  double wait_s = 10;    // for a daemon that is starting
};

/// $XDG_STATE_HOME/maypole, or ~/.local/state/maypole.
[[nodiscard]] std::string default_data_dir();
/// The one of the options, of MAYPOLE_DATA_DIR, or the default.
[[nodiscard]] std::string data_dir_of(const std::string& written);

/// Whether the options, or MAYPOLE_ADDRESS, say where the daemon is; else its data directory does.
[[nodiscard]] bool address_given(const ClientOptions& options);

struct Answer {
  int status = 0;
  std::string body;
  std::map<std::string, std::string> headers;  // names that begin with X-Maypole
};

/// Not thread-safe.
class Client {
 public:
  /// Errors: kUnavailable: no daemon answered within wait_s; kUnauthenticated: there is no token to be found.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Client>> connect(const ClientOptions& options);
  virtual ~Client() = default;
  /// host:port that is called.
  [[nodiscard]] virtual std::string address() const = 0;
  /// Errors: kUnavailable: the daemon does not answer (any more); what it answered with a status of 400 or more: its sentence, as
  /// kInvalidArgument (400), kNotFound (404, 405), kPermissionDenied (401, 403), kFailedPrecondition (409), kResourceExhausted (507),
  /// kUnavailable (503), kInternal. `path` with its query.
  [[nodiscard]] virtual absl::StatusOr<Answer> call(const std::string& method, const std::string& path, const std::string& body = "") = 0;
};

/// A part of a path or a value of a query, escaped.
[[nodiscard]] std::string escaped(const std::string& text);

}  // namespace maypole::daemon
