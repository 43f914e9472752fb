// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which machine is this, and by which of its addresses do others see it.

#include "maypole/net/address.h"

#include <absl/status/statusor.h>

#include <string>
#include <vector>

namespace maypole::net {

/// Boot id and network namespace: equal on two processes exactly when they can meet at local (abstract AF_UNIX) sockets.
[[nodiscard]] absl::StatusOr<std::string> machine_identity();

/// The name that this machine gives itself; "localhost" if it has none.
[[nodiscard]] std::string host_name();

/// The first address of the named interface in `family` (IPv6: a global one before a link-local one). Errors list the interfaces there are.
[[nodiscard]] absl::StatusOr<SocketAddress> interface_address(const std::string& interface, int family);

/// Addresses of the interfaces that are up by which others may see this network namespace: neither loopback nor link-local, IPv4 first.
[[nodiscard]] std::vector<SocketAddress> global_addresses();

/// The local address from which packets to `peer` leave, as the routing table says; nothing is sent.
[[nodiscard]] absl::StatusOr<SocketAddress> local_address_toward(const SocketAddress& peer);

}  // namespace maypole::net
