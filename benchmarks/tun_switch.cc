// SPDX-License-Identifier: Apache-2.0
//
// A switch in user space, for links with a delay where the kernel has no netem.
//
//     tun_switch --rate-bits 1000000000 --delay-us 5000 --queue-bytes 4194304 --host /run/netns/a=10.77.0.1 --host /run/netns/b=10.77.0.2
//
// It makes a TUN interface `eth0` in every host's network namespace (addresses are the caller's business), prints `ready`, and moves
// IPv4 packets between them until its standard input ends. A host's egress is a FIFO of at most `queue-bytes` (more is dropped) that
// drains at `rate-bits`, counted as Ethernet would count it; a packet arrives `delay-us` after its last bit has left.
//
// Packets keep their virtio header, so the kernel hands over TCP super-packets of up to 64 KiB whole (IFF_VNET_HDR and TSO): one read
// and one write for 44 segments, at the price of a granularity of 0.5 ms at 1 Gbit/s. One thread, one poll.

#include "maypole/base/fd.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kEthernetHeader = 14;
/// `struct virtio_net_hdr` of the virtio specification; the kernel's header of that name is not valid C++.
struct VirtioHeader {
  std::uint8_t flags;
  std::uint8_t gso_type;  // 0: not a super-packet
  std::uint16_t hdr_len;
  std::uint16_t gso_size;
  std::uint16_t csum_start;
  std::uint16_t csum_offset;
};
static_assert(sizeof(VirtioHeader) == 10);

constexpr std::size_t kMaxPacket = sizeof(VirtioHeader) + 65536;

struct Packet {
  std::size_t size = 0;
  std::size_t target = 0;
  Clock::time_point arrival;
  std::array<unsigned char, kMaxPacket> bytes;
};

struct Host {
  std::string path;
  in_addr_t address = 0;
  maypole::base::Fd tun;
  Clock::time_point free_at;                      // when the egress has sent all that is queued
  std::deque<std::unique_ptr<Packet>> in_flight;  // in order of arrival: rate and delay are the same for all packets of a host
};

struct Settings {
  double bits_per_second = 0;  // 0: no limit
  std::chrono::microseconds delay{0};
  std::size_t queue_bytes = std::size_t{4} << 20;
  std::vector<Host> hosts;
};

[[noreturn]] void fail(const std::string& text) {
  fmt::print(stderr, "tun_switch: {}\n", text);
  std::exit(1);
}

[[noreturn]] void fail_errno(const std::string& what) { fail(fmt::format("{}: {}", what, std::strerror(errno))); }

maypole::base::Fd open_tun(const std::string& namespace_path) {
  const maypole::base::Fd space(::open(namespace_path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!space.valid() || ::setns(space.get(), CLONE_NEWNET) != 0) {
    fail_errno("entering " + namespace_path);
  }
  maypole::base::Fd tun(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!tun.valid()) {
    fail_errno("opening /dev/net/tun");
  }
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  std::memcpy(request.ifr_name, "eth0", 5);
  int header_size = sizeof(VirtioHeader);
  if (::ioctl(tun.get(), TUNSETIFF, &request) != 0 || ::ioctl(tun.get(), TUNSETVNETHDRSZ, &header_size) != 0 ||
      ::ioctl(tun.get(), TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) {
    fail_errno("making a TUN interface in " + namespace_path);
  }
  return tun;
}

/// Bytes that Ethernet would carry for this packet: a super-packet repeats its headers in each of its segments.
std::size_t wire_bytes(const Packet& packet) {
  VirtioHeader header;
  std::memcpy(&header, packet.bytes.data(), sizeof header);
  const std::size_t size = packet.size - sizeof header;
  if (header.gso_type == 0 || header.gso_size == 0 || header.hdr_len >= size) {
    return size + kEthernetHeader;
  }
  const std::size_t payload = size - header.hdr_len;
  const std::size_t segments = (payload + header.gso_size - 1) / header.gso_size;
  return payload + segments * (header.hdr_len + kEthernetHeader);
}

std::optional<std::size_t> target_of(const Packet& packet, const std::vector<Host>& hosts) {
  const unsigned char* ip = packet.bytes.data() + sizeof(VirtioHeader);
  if (packet.size < sizeof(VirtioHeader) + 20 || ip[0] >> 4 != 4) {
    return std::nullopt;
  }
  in_addr_t address;
  std::memcpy(&address, ip + 16, sizeof address);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].address == address) {
      return i;
    }
  }
  return std::nullopt;
}

class Switch {
 public:
  explicit Switch(Settings settings) : settings_(std::move(settings)) {}

  void run() {
    std::vector<pollfd> watched;
    for (const Host& host : settings_.hosts) {
      watched.push_back({host.tun.get(), POLLIN, 0});
    }
    watched.push_back({STDIN_FILENO, POLLIN, 0});
    while (true) {
      const std::optional<Clock::time_point> next = deliver();
      timespec limit{};
      if (next) {
        const auto wait = std::max(Clock::duration::zero(), *next - Clock::now());
        limit.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(wait).count();
        limit.tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(wait).count() % 1'000'000'000;
      }
      if (::ppoll(watched.data(), watched.size(), next ? &limit : nullptr, nullptr) < 0 && errno != EINTR) {
        fail_errno("waiting for packets");
      }
      if (watched.back().revents != 0) {
        std::array<char, 64> ignored;
        if (::read(STDIN_FILENO, ignored.data(), ignored.size()) <= 0) {
          return;
        }
      }
      for (std::size_t i = 0; i < settings_.hosts.size(); ++i) {
        if (watched[i].revents != 0) {
          accept_from(i);
        }
      }
    }
  }

 private:
  /// Writes every packet whose time has come; returns when the next one is due.
  std::optional<Clock::time_point> deliver() {
    const Clock::time_point now = Clock::now();
    std::optional<Clock::time_point> next;
    for (Host& host : settings_.hosts) {
      while (!host.in_flight.empty() && host.in_flight.front()->arrival <= now) {
        std::unique_ptr<Packet> packet = take(host);
        // A full or closed receiver drops the packet, as a network card does.
        [[maybe_unused]] const ssize_t written = ::write(settings_.hosts[packet->target].tun.get(), packet->bytes.data(), packet->size);
        recycle(std::move(packet));
      }
      if (!host.in_flight.empty() && (!next || host.in_flight.front()->arrival < *next)) {
        next = host.in_flight.front()->arrival;
      }
    }
    return next;
  }

  void accept_from(std::size_t source) {
    Host& host = settings_.hosts[source];
    // Bounded, so that one sender cannot keep others from being delivered.
    for (int count = 0; count < 64; ++count) {
      std::unique_ptr<Packet> packet = fresh();
      const ssize_t size = ::read(host.tun.get(), packet->bytes.data(), packet->bytes.size());
      if (size <= static_cast<ssize_t>(sizeof(VirtioHeader))) {
        recycle(std::move(packet));
        return;
      }
      packet->size = static_cast<std::size_t>(size);
      const std::optional<std::size_t> target = target_of(*packet, settings_.hosts);
      const Clock::time_point now = Clock::now();
      if (!target || queued_bytes(host, now) > static_cast<double>(settings_.queue_bytes)) {
        recycle(std::move(packet));
        continue;
      }
      packet->target = *target;
      host.free_at = std::max(host.free_at, now);
      if (settings_.bits_per_second > 0) {
        const double seconds = static_cast<double>(wire_bytes(*packet)) * 8 / settings_.bits_per_second;
        host.free_at += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
      }
      packet->arrival = host.free_at + settings_.delay;
      host.in_flight.push_back(std::move(packet));
    }
  }

  [[nodiscard]] double queued_bytes(const Host& host, Clock::time_point now) const {
    return std::chrono::duration<double>(host.free_at - now).count() * settings_.bits_per_second / 8;
  }

  static std::unique_ptr<Packet> take(Host& host) {
    std::unique_ptr<Packet> packet = std::move(host.in_flight.front());
    host.in_flight.pop_front();
    return packet;
  }

  std::unique_ptr<Packet> fresh() {
    if (pool_.empty()) {
      return std::make_unique<Packet>();
    }
    std::unique_ptr<Packet> packet = std::move(pool_.back());
    pool_.pop_back();
    return packet;
  }

  void recycle(std::unique_ptr<Packet> packet) { pool_.push_back(std::move(packet)); }

  Settings settings_;
  std::vector<std::unique_ptr<Packet>> pool_;  // a fresh 64 KiB costs 17 page faults
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    const std::string value = argv[i + 1];
    if (option == "--rate-bits") {
      settings.bits_per_second = std::stod(value);
    } else if (option == "--delay-us") {
      settings.delay = std::chrono::microseconds(std::stoll(value));
    } else if (option == "--queue-bytes") {
      settings.queue_bytes = std::stoull(value);
    } else if (option == "--host") {
      const std::size_t equals = value.find('=');
      Host host;
      host.path = value.substr(0, equals);
      if (equals == std::string::npos || ::inet_pton(AF_INET, value.substr(equals + 1).c_str(), &host.address) != 1) {
        fail(fmt::format("--host {} is not NAMESPACE_PATH=IPV4_ADDRESS", value));
      }
      settings.hosts.push_back(std::move(host));
    } else {
      fail(fmt::format("unknown option {}", option));
    }
  }
  if (settings.hosts.size() < 2) {
    fail("at least two --host PATH=ADDRESS are needed");
  }
  return settings;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings = parse(argc, argv);
  for (Host& host : settings.hosts) {
    host.tun = open_tun(host.path);
  }
  ::prctl(PR_SET_TIMERSLACK, 1);  // wake up when a packet is due, not 50 us later
  fmt::print("ready\n");
  std::fflush(stdout);
  Switch(std::move(settings)).run();
  return 0;
}
