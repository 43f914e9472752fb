// SPDX-License-Identifier: Apache-2.0
#include "maypole/net/socket.h"

#include "maypole/base/status.h"
#include "maypole/net/hmac.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <thread>
#include <vector>

namespace maypole::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

base::TimePoint later() { return std::chrono::steady_clock::now() + std::chrono::seconds(30); }

class TcpSocketTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TcpSocketTest, ConnectionsAreTunedNonBlockingAndCloseOnExec) {
  const auto listener = listen_tcp(*SocketAddress::parse(GetParam(), 0));
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(is_listening(listener->get()));
  const SocketAddress address = local_address_of(listener->get());
  const auto client = connect_tcp(address, std::nullopt, later());
  ASSERT_TRUE(client.ok()) << client.status();
  const auto server = accept(listener->get(), later());
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(remote_address_of(client->get()).to_string(), address.to_string());
  EXPECT_EQ(remote_address_of(server->get()).to_string(), local_address_of(client->get()).to_string());
  for (const int fd : {client->get(), server->get(), listener->get()}) {
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    int no_delay = 0;
    socklen_t size = sizeof(no_delay);
    EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, &size), 0);
    EXPECT_NE(no_delay, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TcpSocketTest, ::testing::Values("127.0.0.1", "::1"),
                         [](const auto& family) { return std::string(std::string(family.param) == "::1" ? "V6" : "V4"); });

TEST(SocketTest, MoreBytesThanABufferHoldsArriveWhole) {
  auto pair = make_socket_pair();
  ASSERT_TRUE(pair.ok());
  std::vector<std::byte> sent(3'000'001);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    sent[i] = static_cast<std::byte>(i * 7);
  }
  std::vector<std::byte> received(sent.size());
  {
    const std::jthread sender([&] { EXPECT_TRUE(send_all(pair->first.get(), sent, later(), "peer").ok()); });
    EXPECT_TRUE(receive_all(pair->second.get(), received, later(), "peer").ok());
  }
  EXPECT_EQ(received, sent);
}

TEST(SocketTest, SendingToAClosedPeerIsAnErrorAndNoSignal) {
  auto pair = make_socket_pair();
  ASSERT_TRUE(pair.ok());
  pair->second.reset();
  const std::byte byte{1};
  EXPECT_EQ(send_all(pair->first.get(), {&byte, 1}, later(), "peer").code(), absl::StatusCode::kUnavailable);
}

TEST(SocketTest, APortInUseIsSaidWithAddressAndRemedy) {
  const auto listener = listen_tcp(*SocketAddress::parse("127.0.0.1", 0));
  const SocketAddress address = local_address_of(listener->get());
  const auto second = listen_tcp(address);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(base::message(second.status()), AllOf(HasSubstr(address.to_string()), HasSubstr("in use"), HasSubstr("another port")));
}

TEST(SocketTest, AnAddressOfAnotherMachineCannotBeListenedOn) {
  EXPECT_THAT(base::message(listen_tcp(*SocketAddress::parse("192.0.2.1", 0)).status()), HasSubstr("no interface of this machine"));
}

TEST(SocketTest, AListenerEverywhereIsReachedByIpv4) {
  const auto listener = listen_tcp_everywhere(0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::uint16_t port = local_address_of(listener->get()).port();
  EXPECT_TRUE(connect_tcp(*SocketAddress::parse("127.0.0.1", port), std::nullopt, later()).ok());
}

TEST(SocketTest, ASocketNeverConnectsToItself) {
  // Binding to a port and connecting to it without a listener is the simultaneous open that the kernel allows.
  base::Fd holder(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress any = *SocketAddress::parse("127.0.0.1", 0);
  ASSERT_EQ(::bind(holder.get(), any.data(), any.size()), 0);
  const SocketAddress free_port = local_address_of(holder.get());
  holder.reset();
  EXPECT_EQ(connect_tcp(free_port, std::nullopt, later()).status().code(), absl::StatusCode::kUnavailable);
}

TEST(SocketTest, AbstractNamesConnectAndEndWithTheirListener) {
  const std::string name = "maypole-test-" + random_hex(8);
  auto listener = listen_local(name);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(connect_local(name, later()).ok());
  EXPECT_TRUE(accept(listener->get(), later()).ok());
  listener->reset();
  EXPECT_EQ(connect_local(name, later()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(listen_local(std::string(200, 'x')).ok());
}

TEST(SocketTest, NobodyToAcceptIsLate) {
  const auto listener = listen_tcp(*SocketAddress::parse("127.0.0.1", 0));
  EXPECT_FALSE(accept_ready(listener->get())->valid());
  EXPECT_EQ(accept(listener->get(), std::chrono::steady_clock::now()).status().code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace maypole::net
