// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/base/units.h"
#include "maypole/daemon/event_streams.h"
#include "maypole/daemon/mailbox.h"

#include <absl/status/statusor.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

namespace maypole::daemon {

/// What one client can take away from the others: it need not have a token to connect.
struct HttpLimits {
  std::size_t connections = 256;                         // at once; more are answered 503
  std::size_t threads = 64;                              // each serves one connection at a time
  std::size_t body_bytes = 1U << 20U;                    // of a request; its line and headers may have 64 KiB
  base::Nanoseconds request = std::chrono::seconds(10);  // from its first byte to its last
  base::Nanoseconds write = std::chrono::seconds(30);    // for an answer
};

/// Serves API v1 over HTTP until it is destroyed, in threads of its own; every request goes through the mailbox, which must outlive it and
/// be closed first. A connection that asks for events is given to the streams and keeps no thread. Requests whose Host is not one of this
/// server's addresses, or whose Origin is another page's, are refused: a web page that the user happens to look at must not reach a daemon
/// on their machine.
class HttpServer {
 public:
  /// `host` is a name or a numeric address; port 0: the kernel chooses. Errors: kAlreadyExists: the port is taken; kInvalidArgument.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<HttpServer>> listen(const std::string& host, int port, Mailbox& mailbox,
                                                                          EventStreams& streams, const HttpLimits& limits = {});
  virtual ~HttpServer() = default;
  [[nodiscard]] virtual int port() const = 0;
};

/// Whether a request with these headers may be served by a server at host:port. `origin` is empty where there is none.
[[nodiscard]] bool may_be_served(const std::string& host_header, const std::string& origin, const std::string& host, int port);

}  // namespace maypole::daemon
