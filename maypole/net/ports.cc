// SPDX-License-Identifier: Apache-2.0
#include "maypole/net/ports.h"

#include "maypole/base/status.h"
#include "maypole/net/address.h"
#include "maypole/net/socket.h"

#include <cstdint>
#include <random>
#include <utility>

namespace maypole::net {

namespace {

absl::StatusOr<base::Fd> listen(const std::string& address, std::uint16_t port) {
  if (address.empty()) {
    return listen_tcp_everywhere(port);
  }
  MAYPOLE_ASSIGN_OR_RETURN(const SocketAddress numeric, SocketAddress::parse(address, port));
  return listen_tcp(numeric);
}

}  // namespace

absl::StatusOr<BoundPort> listen_on(const std::string& address) {
  MAYPOLE_ASSIGN_OR_RETURN(base::Fd socket, listen(address, 0));
  const int port = local_address_of(socket.get()).port();
  return BoundPort{std::move(socket), port};
}

absl::StatusOr<int> find_free_port() {
  std::random_device random;  // not part of any result: two jobs that start together should look in different places
  std::uniform_int_distribution<int> low_ports(15000, 32000);  // Linux gives out ports from 32768 on
  constexpr int kTries = 64;
  for (int i = 0; i < kTries; ++i) {
    const int port = low_ports(random);
    if (listen("", static_cast<std::uint16_t>(port)).ok()) {
      return port;
    }
  }
  MAYPOLE_ASSIGN_OR_RETURN(const BoundPort any, listen_on(""));
  return any.port;
}

}  // namespace maypole::net
