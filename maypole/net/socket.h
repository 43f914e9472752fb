// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stream sockets with deadlines. Every socket made here is close-on-exec and non-blocking; the functions that wait do so by poll.

#include "maypole/base/fd.h"
#include "maypole/base/units.h"
#include "maypole/net/address.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace maypole::net {

/// Milliseconds for poll until `deadline`, rounded up; 0 when it has passed.
[[nodiscard]] int poll_timeout(base::TimePoint deadline);

/// Waits until `events` (POLLIN, POLLOUT) or an error state; kDeadlineExceeded names `what`.
[[nodiscard]] absl::Status wait_ready(int fd, short events, base::TimePoint deadline, std::string_view what);

/// Listens on `address` (port 0: the kernel chooses). An IPv6 wildcard takes IPv4 too.
/// A port in use is kAlreadyExists and says which address and what to do.
[[nodiscard]] absl::StatusOr<base::Fd> listen_tcp(const SocketAddress& address);
/// Listens on all addresses of this machine, both families where the kernel has IPv6.
[[nodiscard]] absl::StatusOr<base::Fd> listen_tcp_everywhere(std::uint16_t port);
/// Listens on an abstract AF_UNIX name: it lives as long as the socket, inside this network namespace.
[[nodiscard]] absl::StatusOr<base::Fd> listen_local(const std::string& name);

/// Makes one attempt; `source` binds the local end to an address (its port is ignored).
[[nodiscard]] absl::StatusOr<base::Fd> connect_tcp(const SocketAddress& address, const std::optional<SocketAddress>& source,
                                                   base::TimePoint deadline);
[[nodiscard]] absl::StatusOr<base::Fd> connect_local(const std::string& name, base::TimePoint deadline);

/// Takes a waiting connection; an empty Fd when none waits.
[[nodiscard]] absl::StatusOr<base::Fd> accept_ready(int listener);
[[nodiscard]] absl::StatusOr<base::Fd> accept(int listener, base::TimePoint deadline);

/// Sets TCP_NODELAY, and cubic congestion control where the kernel lets us (a refusal changes nothing but speed).
void tune_tcp(int fd);
[[nodiscard]] absl::Status set_nonblocking(int fd);
[[nodiscard]] absl::Status set_close_on_exec(int fd);
/// Whether `fd` is a listening stream socket.
[[nodiscard]] bool is_listening(int fd);

/// Empty for a socket that is not IPv4 or IPv6.
[[nodiscard]] SocketAddress local_address_of(int fd);
[[nodiscard]] SocketAddress remote_address_of(int fd);

/// Send or receive all bytes of a non-blocking socket; `what` names the peer in errors. A closed connection is kUnavailable. Never raises
/// SIGPIPE.
[[nodiscard]] absl::Status send_all(int fd, std::span<const std::byte> bytes, base::TimePoint deadline, std::string_view what);
[[nodiscard]] absl::Status receive_all(int fd, std::span<std::byte> bytes, base::TimePoint deadline, std::string_view what);

/// Two connected AF_UNIX stream sockets.
struct SocketPair {
  base::Fd first;
  base::Fd second;
};
[[nodiscard]] absl::StatusOr<SocketPair> make_socket_pair();

}  // namespace maypole::net
