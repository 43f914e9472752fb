// SPDX-License-Identifier: Apache-2.0
#include "maypole/net/socket.h"

#include "maypole/base/status.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace maypole::net {

namespace {

constexpr int kBacklog = 1024;

absl::StatusOr<base::Fd> open_socket(int family) {
  base::Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    return base::errno_error(errno, "socket");
  }
  return fd;
}

struct LocalName {
  sockaddr_un address{};
  socklen_t size = 0;
};

absl::StatusOr<LocalName> abstract_name(const std::string& name) {
  LocalName result;
  if (name.empty() || name.size() + 1 > sizeof(result.address.sun_path)) {
    return base::error(absl::StatusCode::kInvalidArgument, "local socket name '{}' has {} bytes, which is not between 1 and {}", name,
                       name.size(), sizeof(result.address.sun_path) - 1);
  }
  result.address.sun_family = AF_UNIX;
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());  // a leading zero byte makes it abstract
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

absl::Status finish_connect(int fd, const sockaddr* address, socklen_t size, base::TimePoint deadline, std::string_view what) {
  while (::connect(fd, address, size) != 0) {
    if (errno == EINTR || errno == EINPROGRESS) {
      MAYPOLE_RETURN_IF_ERROR(wait_ready(fd, POLLOUT, deadline, what));
      int failure = 0;
      socklen_t failure_size = sizeof(failure);
      if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &failure_size) != 0) {
        failure = errno;
      }
      return failure == 0 ? absl::OkStatus() : base::errno_error(failure, "{}", what);
    }
    if (errno != EAGAIN) {
      return base::errno_error(errno, "{}", what);
    }
    // An AF_UNIX listener whose queue is full says EAGAIN, and poll cannot wait for it.
    if (poll_timeout(deadline) == 0) {
      return base::error(absl::StatusCode::kDeadlineExceeded, "{}: the listener's queue stayed full", what);
    }
    ::poll(nullptr, 0, std::min(poll_timeout(deadline), 10));
  }
  return absl::OkStatus();
}

template <typename Get>
SocketAddress address_of(int fd, Get get) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (get(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return {};
  }
  return SocketAddress::from(reinterpret_cast<const sockaddr*>(&storage), size);
}

}  // namespace

int poll_timeout(base::TimePoint deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
}

absl::Status wait_ready(int fd, short events, base::TimePoint deadline, std::string_view what) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, poll_timeout(deadline));
    if (ready > 0) {
      return absl::OkStatus();
    }
    if (ready < 0 && errno != EINTR) {
      return base::errno_error(errno, "{}", what);
    }
    if (ready == 0 && poll_timeout(deadline) == 0) {
      return base::error(absl::StatusCode::kDeadlineExceeded, "{}: no answer in time", what);
    }
  }
}

absl::StatusOr<base::Fd> listen_tcp(const SocketAddress& address) {
  MAYPOLE_ASSIGN_OR_RETURN(base::Fd fd, open_socket(address.family()));
  const int on = 1;
  // Restarting on a port whose old connections linger must work; a port that another process listens on is still refused.
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.family() == AF_INET6) {
    const int only_v6 = address.is_wildcard() ? 0 : 1;
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof(only_v6));
  }
  tune_tcp(fd.get());
  if (::bind(fd.get(), address.data(), address.size()) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) {
      return base::error(absl::StatusCode::kAlreadyExists,
                         "cannot listen on {}: port {} is in use; stop what uses it (`ss -ltnp` names it) or choose another port",
                         address.to_string(), address.port());
    }
    if (errno == EADDRNOTAVAIL) {
      return base::error(absl::StatusCode::kInvalidArgument,
                         "cannot listen on {}: no interface of this machine has that address (`ip address` lists them)",
                         address.to_string());
    }
    return base::errno_error(errno, "listen on {}", address.to_string());
  }
  return fd;
}

absl::StatusOr<base::Fd> listen_tcp_everywhere(std::uint16_t port) {
  auto both = listen_tcp(SocketAddress::wildcard(AF_INET6, port));
  if (both.ok() || both.status().code() == absl::StatusCode::kAlreadyExists) {
    return both;
  }
  return listen_tcp(SocketAddress::wildcard(AF_INET, port));
}

absl::StatusOr<base::Fd> listen_local(const std::string& name) {
  MAYPOLE_ASSIGN_OR_RETURN(const LocalName local, abstract_name(name));
  MAYPOLE_ASSIGN_OR_RETURN(base::Fd fd, open_socket(AF_UNIX));
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&local.address), local.size) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return base::errno_error(errno, "listen on local socket {}", name);
  }
  return fd;
}

absl::StatusOr<base::Fd> connect_tcp(const SocketAddress& address, const std::optional<SocketAddress>& source, base::TimePoint deadline) {
  MAYPOLE_ASSIGN_OR_RETURN(base::Fd fd, open_socket(address.family()));
  if (source.has_value()) {
    SocketAddress local = *source;
    local.set_port(0);
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    if (::bind(fd.get(), local.data(), local.size()) != 0) {
      return base::errno_error(errno, "bind to {} in order to connect to {}", local.host(), address.to_string());
    }
  }
  tune_tcp(fd.get());
  MAYPOLE_RETURN_IF_ERROR(
      finish_connect(fd.get(), address.data(), address.size(), deadline, fmt::format("connect to {}", address.to_string())));
  // A local port that nobody listens on may be chosen as our own source port: TCP then connects the socket to itself.
  if (local_address_of(fd.get()).to_string() == remote_address_of(fd.get()).to_string()) {
    return base::errno_error(ECONNREFUSED, "connect to {}", address.to_string());
  }
  return fd;
}

absl::StatusOr<base::Fd> connect_local(const std::string& name, base::TimePoint deadline) {
  MAYPOLE_ASSIGN_OR_RETURN(const LocalName local, abstract_name(name));
  MAYPOLE_ASSIGN_OR_RETURN(base::Fd fd, open_socket(AF_UNIX));
  MAYPOLE_RETURN_IF_ERROR(finish_connect(fd.get(), reinterpret_cast<const sockaddr*>(&local.address), local.size, deadline,
                                         fmt::format("connect to local socket {}", name)));
  return fd;
}

absl::StatusOr<base::Fd> accept_ready(int listener) {
  base::Fd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.valid()) {
    tune_tcp(fd.get());
    return fd;
  }
  switch (errno) {
    case EAGAIN:
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return fd;  // nobody waits any more, or one that waited has gone
    default:
      return base::errno_error(errno, "accept on {}", local_address_of(listener).to_string());
  }
}

absl::StatusOr<base::Fd> accept(int listener, base::TimePoint deadline) {
  while (true) {
    MAYPOLE_RETURN_IF_ERROR(wait_ready(listener, POLLIN, deadline, fmt::format("accept on {}", local_address_of(listener).to_string())));
    MAYPOLE_ASSIGN_OR_RETURN(base::Fd fd, accept_ready(listener));
    if (fd.valid()) {
      return fd;
    }
  }
}

void tune_tcp(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  static constexpr std::string_view kCubic = "cubic";
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kCubic.data(), kCubic.size());
}

absl::Status set_nonblocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return base::errno_error(errno, "make descriptor {} non-blocking", fd);
  }
  return absl::OkStatus();
}

absl::Status set_close_on_exec(int fd) {
  const int flags = ::fcntl(fd, F_GETFD);
  if (flags < 0 || ::fcntl(fd, F_SETFD, flags | FD_CLOEXEC) != 0) {
    return base::errno_error(errno, "make descriptor {} close-on-exec", fd);
  }
  return absl::OkStatus();
}

bool is_listening(int fd) {
  int listening = 0;
  socklen_t size = sizeof(listening);
  return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening != 0;
}

SocketAddress local_address_of(int fd) { return address_of(fd, ::getsockname); }
SocketAddress remote_address_of(int fd) { return address_of(fd, ::getpeername); }

absl::Status send_all(int fd, std::span<const std::byte> bytes, base::TimePoint deadline, std::string_view what) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      MAYPOLE_RETURN_IF_ERROR(wait_ready(fd, POLLOUT, deadline, what));
    } else if (errno != EINTR) {
      return base::errno_error(errno, "send to {}", what);
    }
  }
  return absl::OkStatus();
}

absl::Status receive_all(int fd, std::span<std::byte> bytes, base::TimePoint deadline, std::string_view what) {
  while (!bytes.empty()) {
    const ssize_t received = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (received > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(received));
    } else if (received == 0) {
      return base::error(absl::StatusCode::kUnavailable, "{} closed the connection", what);
    } else if (errno == EAGAIN) {
      MAYPOLE_RETURN_IF_ERROR(wait_ready(fd, POLLIN, deadline, what));
    } else if (errno != EINTR) {
      return base::errno_error(errno, "receive from {}", what);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SocketPair> make_socket_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
    return base::errno_error(errno, "socketpair");
  }
  return SocketPair{base::Fd(fds[0]), base::Fd(fds[1])};
}

}  // namespace maypole::net
