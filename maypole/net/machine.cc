// SPDX-License-Identifier: Apache-2.0
#include "maypole/net/machine.h"

#include "maypole/base/fd.h"
#include "maypole/base/status.h"
#include "maypole/net/socket.h"

#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <memory>
#include <set>

namespace maypole::net {

absl::StatusOr<std::string> machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat status{};
  if (boot.empty() || ::stat("/proc/self/ns/net", &status) != 0) {
    return base::error(absl::StatusCode::kNotFound,
                       "this machine cannot be identified: /proc/sys/kernel/random/boot_id and /proc/self/ns/net must be readable");
  }
  return fmt::format("{}/{}", boot, status.st_ino);
}

std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

absl::StatusOr<SocketAddress> interface_address(const std::string& interface, int family) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) {
    return base::errno_error(errno, "list the network interfaces");
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  SocketAddress link_local;
  bool known = false;
  std::set<std::string> names;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    names.insert(entry->ifa_name);
    if (interface != entry->ifa_name) {
      continue;
    }
    known = true;
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) {
      continue;
    }
    SocketAddress address = SocketAddress::from(entry->ifa_addr, family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    if (!address.is_link_local()) {
      return address;
    }
    if (!link_local.valid()) {
      address.set_scope(::if_nametoindex(entry->ifa_name));
      link_local = address;
    }
  }
  if (link_local.valid()) {
    return link_local;
  }
  if (known) {
    return base::error(absl::StatusCode::kInvalidArgument,
                       "interface '{}' has no {} address; choose another interface, or an address of the other kind for rank 0", interface,
                       family == AF_INET6 ? "IPv6" : "IPv4");
  }
  return base::error(absl::StatusCode::kInvalidArgument, "there is no interface '{}' on {}; there are: {}", interface, host_name(),
                     fmt::join(names, ", "));
}

std::vector<SocketAddress> global_addresses() {
  std::vector<SocketAddress> found;
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) {
    return found;
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
      if ((entry->ifa_flags & IFF_UP) == 0 || entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) {
        continue;
      }
      const SocketAddress address = SocketAddress::from(entry->ifa_addr, family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
      if (!address.is_loopback() && !address.is_link_local()) {
        found.push_back(address);
      }
    }
  }
  return found;
}

absl::StatusOr<SocketAddress> local_address_toward(const SocketAddress& peer) {
  const base::Fd fd(::socket(peer.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    return base::errno_error(errno, "socket");
  }
  SocketAddress target = peer;
  if (target.port() == 0) {
    target.set_port(9);  // any port: connecting a datagram socket only looks up the route
  }
  if (::connect(fd.get(), target.data(), target.size()) != 0) {
    return base::errno_error(errno, "find the route to {}", peer.host());
  }
  SocketAddress local = local_address_of(fd.get());
  local.set_port(0);
  return local;
}

}  // namespace maypole::net
