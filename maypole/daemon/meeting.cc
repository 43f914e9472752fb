// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/meeting.h"

#include "maypole/base/status.h"
#include "maypole/net/address.h"
#include "maypole/net/machine.h"
#include "maypole/net/ports.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string_view>
#include <utility>

namespace maypole::daemon {

namespace {

constexpr std::string_view kLoopback = "127.0.0.1";

/// Whole, or not there.
absl::Status write_whole(const std::string& path, const std::string& text) {
  const std::string part = fmt::format("{}.{}", path, ::getpid());
  std::ofstream file(part, std::ios::trunc);
  file << text << std::flush;
  if (!file || std::rename(part.c_str(), path.c_str()) != 0) {
    return base::errno_error(errno, "write {}", path);
  }
  return absl::OkStatus();
}

MeetingPlace place_at(const std::string& address, int rendezvous_port, int master_port) {
  MeetingPlace place;
  place.variables = {fmt::format("MAYPOLE_RENDEZVOUS={}", net::format_host_port(address, static_cast<std::uint16_t>(rendezvous_port))),
                     fmt::format("MASTER_ADDR={}", address), fmt::format("MASTER_PORT={}", master_port)};
  return place;
}

/// The address from which packets to one of the witness's leave; nothing: it has not told them yet.
absl::StatusOr<std::optional<std::string>> address_toward_witness(const std::string& folder) {
  std::ifstream seen(folder + "/seen_from");
  if (!seen) {
    return std::nullopt;
  }
  std::string told;
  for (std::string word; seen >> word;) {
    const absl::StatusOr<net::SocketAddress> witness = net::SocketAddress::parse(word, 0);
    const absl::StatusOr<net::SocketAddress> own = witness.ok() ? net::local_address_toward(*witness) : witness.status();
    if (own.ok() && !own->is_loopback()) {
      return own->host();
    }
    told += told.empty() ? word : ", " + word;
  }
  if (told.empty()) {
    return base::error(absl::StatusCode::kUnavailable, "a server of its ring has no address beside loopback");
  }
  return base::error(absl::StatusCode::kUnavailable,
                     "no route leads from rank 0's server to another one of its ring, whose addresses are {}", told);
}

absl::StatusOr<std::optional<MeetingPlace>> host(const MeetingOrder& order) {
  std::string address(kLoopback);
  if (order.role == MeetingRole::kHost) {
    MAYPOLE_ASSIGN_OR_RETURN(const std::optional<std::string> found, address_toward_witness(order.folder));
    if (!found) {
      return std::nullopt;
    }
    address = *found;
  }
  MAYPOLE_ASSIGN_OR_RETURN(net::BoundPort bound, net::listen_on(address));
  MAYPOLE_ASSIGN_OR_RETURN(const int master_port, net::find_free_port());
  MAYPOLE_RETURN_IF_ERROR(write_whole(order.folder + "/meeting", fmt::format("{} {} {}\n", address, bound.port, master_port)));
  MeetingPlace place = place_at(address, bound.port, master_port);
  place.variables.push_back(fmt::format("MAYPOLE_RENDEZVOUS_FD={}", bound.socket.get()));
  place.socket = std::move(bound.socket);
  return place;
}

}  // namespace

absl::StatusOr<std::optional<MeetingPlace>> try_to_meet(const MeetingOrder& order) {
  switch (order.role) {
    case MeetingRole::kNone:
      return MeetingPlace{};
    case MeetingRole::kHost:
    case MeetingRole::kHostAlone:
      return host(order);
    case MeetingRole::kWitness:
      if (::access((order.folder + "/seen_from").c_str(), F_OK) != 0) {
        std::string text;
        for (const net::SocketAddress& address : net::global_addresses()) {
          text += address.host() + "\n";
        }
        MAYPOLE_RETURN_IF_ERROR(write_whole(order.folder + "/seen_from", text));
      }
      break;
    case MeetingRole::kGuest:
      break;
  }
  std::ifstream file(order.folder + "/meeting");
  std::string address;
  int rendezvous_port = 0;
  int master_port = 0;
  if (!(file >> address >> rendezvous_port >> master_port)) {
    return std::nullopt;
  }
  return place_at(address, rendezvous_port, master_port);
}

}  // namespace maypole::daemon
