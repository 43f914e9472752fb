// SPDX-License-Identifier: Apache-2.0
#include "maypole/net/address.h"

#include "maypole/base/mutex.h"
#include "maypole/base/status.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <thread>

namespace maypole::net {

namespace {

using AddressList = std::vector<SocketAddress>;

absl::StatusOr<AddressList> look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* raw = nullptr;
  const int failure = ::getaddrinfo(host.c_str(), nullptr, &hints, &raw);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(raw, &::freeaddrinfo);
  if (failure != 0) {
    // A name server that does not answer may answer later; a name that it does not know stays unknown.
    return base::error(failure == EAI_AGAIN ? absl::StatusCode::kUnavailable : absl::StatusCode::kNotFound,
                       "host '{}' cannot be resolved on this machine: {}; check the name, or use an address", host,
                       ::gai_strerror(failure));
  }
  AddressList addresses;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    SocketAddress address = SocketAddress::from(entry->ai_addr, entry->ai_addrlen);
    if (address.valid()) {
      address.set_port(port);
      addresses.push_back(address);
    }
  }
  if (addresses.empty()) {
    return base::error(absl::StatusCode::kNotFound, "host '{}' has neither an IPv4 nor an IPv6 address", host);
  }
  return addresses;
}

/// Shared between the asker and the thread that asks, because either may end first.
struct LookUp {
  base::Mutex mutex;
  base::CondVar done_changed;
  bool done ABSL_GUARDED_BY(mutex) = false;
  absl::StatusOr<AddressList> result ABSL_GUARDED_BY(mutex) = AddressList{};
};

}  // namespace

absl::StatusOr<SocketAddress> SocketAddress::parse(std::string_view host, std::uint16_t port) {
  auto addresses = look_up(std::string(host), port, AI_NUMERICHOST);
  if (!addresses.ok()) {
    return base::error(absl::StatusCode::kInvalidArgument, "'{}' is not a numeric IPv4 or IPv6 address", host);
  }
  return addresses->front();
}

SocketAddress SocketAddress::from(const sockaddr* address, socklen_t size) {
  SocketAddress result;
  if (address == nullptr) {
    return result;
  }
  if (address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    std::memcpy(&result.storage_, address, sizeof(sockaddr_in));
    result.size_ = sizeof(sockaddr_in);
  } else if (address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof(v6));
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      sockaddr_in v4{};
      v4.sin_family = AF_INET;
      v4.sin_port = v6.sin6_port;
      std::memcpy(&v4.sin_addr, &v6.sin6_addr.s6_addr[12], sizeof(v4.sin_addr));
      std::memcpy(&result.storage_, &v4, sizeof(v4));
      result.size_ = sizeof(v4);
    } else {
      std::memcpy(&result.storage_, &v6, sizeof(v6));
      result.size_ = sizeof(v6);
    }
  }
  return result;
}

SocketAddress SocketAddress::wildcard(int family, std::uint16_t port) {
  SocketAddress result;
  result.storage_.ss_family = static_cast<sa_family_t>(family);
  result.size_ = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  result.set_port(port);
  return result;
}

std::uint16_t SocketAddress::port() const {
  switch (family()) {
    case AF_INET:
      return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
    case AF_INET6:
      return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
    default:
      return 0;
  }
}

void SocketAddress::set_port(std::uint16_t port) {
  if (family() == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
  } else if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage_)->sin6_port = htons(port);
  }
}

void SocketAddress::set_scope(std::uint32_t interface_index) {
  if (is_link_local()) {
    reinterpret_cast<sockaddr_in6*>(&storage_)->sin6_scope_id = interface_index;
  }
}

std::uint32_t SocketAddress::scope() const {
  return family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_scope_id : 0;
}

std::string SocketAddress::host_without_scope() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (family() == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr, text, sizeof(text));
  } else if (family() == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr, text, sizeof(text));
  }
  return text;
}

std::string SocketAddress::host() const {
  std::string text = host_without_scope();
  char name[IF_NAMESIZE] = "";
  if (is_link_local() && scope() != 0 && ::if_indextoname(scope(), name) != nullptr) {
    text += fmt::format("%{}", name);
  }
  return text;
}

std::string SocketAddress::to_string() const { return format_host_port(host(), port()); }

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr) >> 24) == 127;
  }
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

bool SocketAddress::is_wildcard() const {
  if (family() == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr == INADDR_ANY;
  }
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

bool SocketAddress::is_link_local() const {
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

absl::StatusOr<HostPort> parse_host_port(std::string_view text) {
  const auto refuse = [&] {
    return base::error(absl::StatusCode::kInvalidArgument, "'{}' is not an address: write host:port or [IPv6 address]:port", text);
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return refuse();
  }
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return refuse();
  }
  HostPort result{std::string(host), 0};
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), result.port);
  if (host.empty() || digits.empty() || failure != std::errc() || end != digits.data() + digits.size()) {
    return refuse();
  }
  return result;
}

std::string format_host_port(std::string_view host, std::uint16_t port) {
  return host.find(':') == std::string_view::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

absl::StatusOr<std::vector<SocketAddress>> resolve(const HostPort& target, base::TimePoint deadline) {
  if (auto numeric = SocketAddress::parse(target.host, target.port); numeric.ok()) {
    return AddressList{*numeric};
  }
  const auto look_up_state = std::make_shared<LookUp>();
  // getaddrinfo cannot be interrupted, so a thread of its own waits for the name server.
  std::jthread([look_up_state, target] {
    auto result = look_up(target.host, target.port, 0);
    const base::MutexLock lock(look_up_state->mutex);
    look_up_state->result = std::move(result);
    look_up_state->done = true;
    look_up_state->done_changed.notify_all();
  }).detach();
  const base::MutexLock lock(look_up_state->mutex);
  while (!look_up_state->done) {
    if (!look_up_state->done_changed.wait_until(look_up_state->mutex, deadline) && !look_up_state->done) {
      return base::error(absl::StatusCode::kDeadlineExceeded,
                         "host '{}' was not resolved in time: check the name server, or use an address", target.host);
    }
  }
  return look_up_state->result;
}

}  // namespace maypole::net
