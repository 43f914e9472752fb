// SPDX-License-Identifier: Apache-2.0
#pragma once

// Addresses of sockets: numeric ones as values, names by a resolver that keeps to a deadline.

#include "maypole/base/units.h"

#include <absl/status/statusor.h>

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::net {

/// One IPv4 or IPv6 address with a port. IPv4 addresses mapped into IPv6 are turned back into IPv4.
class SocketAddress {
 public:
  SocketAddress() = default;

  /// Parses a numeric address: `10.0.0.1`, `::1`, `fe80::1%eth0`. Never asks a name server.
  [[nodiscard]] static absl::StatusOr<SocketAddress> parse(std::string_view host, std::uint16_t port);
  /// Copies an AF_INET or AF_INET6 address; anything else gives an empty value.
  [[nodiscard]] static SocketAddress from(const sockaddr* address, socklen_t size);
  /// All addresses of this machine in `family`.
  [[nodiscard]] static SocketAddress wildcard(int family, std::uint16_t port);

  [[nodiscard]] int family() const { return storage_.ss_family; }
  [[nodiscard]] std::uint16_t port() const;
  void set_port(std::uint16_t port);
  /// Sets the interface index that an IPv6 link-local address needs; no effect on others.
  void set_scope(std::uint32_t interface_index);
  [[nodiscard]] std::uint32_t scope() const;

  /// `10.0.0.1`, `fe80::1%eth0`; `""` when empty.
  [[nodiscard]] std::string host() const;
  /// As `host`, without the interface, whose name means nothing on another machine.
  [[nodiscard]] std::string host_without_scope() const;
  /// `10.0.0.1:80`, `[::1]:80`.
  [[nodiscard]] std::string to_string() const;

  [[nodiscard]] bool valid() const { return size_ > 0; }
  [[nodiscard]] bool is_loopback() const;
  [[nodiscard]] bool is_wildcard() const;
  [[nodiscard]] bool is_link_local() const;

  [[nodiscard]] const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t size() const { return size_; }

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

struct HostPort {
  std::string host;  // name or numeric address, without brackets
  std::uint16_t port = 0;
};

/// Splits `host:port` or `[v6]:port`.
[[nodiscard]] absl::StatusOr<HostPort> parse_host_port(std::string_view text);
/// `host:port`, with brackets around an IPv6 address.
[[nodiscard]] std::string format_host_port(std::string_view host, std::uint16_t port);

/// Returns all stream addresses of a name, in the system's order of preference; a numeric host costs no look-up.
/// Blocks until `deadline` (a look-up that is later is left to end by itself in its own thread).
[[nodiscard]] absl::StatusOr<std::vector<SocketAddress>> resolve(const HostPort& target, base::TimePoint deadline);

}  // namespace maypole::net
