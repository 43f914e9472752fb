// SPDX-License-Identifier: Apache-2.0
#include "maypole/net/address.h"

#include "maypole/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>

namespace maypole::net {
namespace {

using ::testing::HasSubstr;

TEST(AddressTest, NumericAddressesReadAndPrintAlike) {
  for (const char* text : {"10.0.0.1", "127.0.0.1", "::1", "fd00::12", "0.0.0.0", "::"}) {
    const auto address = SocketAddress::parse(text, 80);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->host(), text);
    EXPECT_EQ(address->port(), 80);
  }
  EXPECT_EQ(SocketAddress::parse("::1", 80)->to_string(), "[::1]:80");
  EXPECT_EQ(SocketAddress::parse("10.0.0.1", 80)->to_string(), "10.0.0.1:80");
  EXPECT_FALSE(SocketAddress::parse("localhost", 80).ok());
}

TEST(AddressTest, KindsOfAddressesAreTold) {
  EXPECT_TRUE(SocketAddress::parse("127.0.1.1", 0)->is_loopback());
  EXPECT_TRUE(SocketAddress::parse("::1", 0)->is_loopback());
  EXPECT_FALSE(SocketAddress::parse("10.127.0.1", 0)->is_loopback());
  EXPECT_TRUE(SocketAddress::wildcard(AF_INET6, 1).is_wildcard());
  EXPECT_TRUE(SocketAddress::wildcard(AF_INET, 1).is_wildcard());
  EXPECT_FALSE(SocketAddress().valid());
}

TEST(AddressTest, LinkLocalAddressesCarryTheirInterface) {
  const auto address = SocketAddress::parse("fe80::1%lo", 5);
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->scope(), ::if_nametoindex("lo"));
  EXPECT_EQ(address->host(), "fe80::1%lo");
  EXPECT_EQ(address->host_without_scope(), "fe80::1");
}

TEST(AddressTest, MappedAddressesBecomePlainOnes) {
  sockaddr_in6 mapped{};
  mapped.sin6_family = AF_INET6;
  mapped.sin6_port = htons(9);
  mapped.sin6_addr.s6_addr[10] = mapped.sin6_addr.s6_addr[11] = 0xff;
  mapped.sin6_addr.s6_addr[12] = 10;
  mapped.sin6_addr.s6_addr[15] = 7;
  EXPECT_EQ(SocketAddress::from(reinterpret_cast<const sockaddr*>(&mapped), sizeof(mapped)).to_string(), "10.0.0.7:9");
}

TEST(AddressTest, HostAndPortAreSplitAndWrongOnesRefused) {
  EXPECT_EQ(parse_host_port("node1:80")->host, "node1");
  EXPECT_EQ(parse_host_port("node1:80")->port, 80);
  EXPECT_EQ(parse_host_port("[::1]:65535")->host, "::1");
  for (const char* text : {"", "node", "node:", ":80", "node:x", "node:65536", "node:-1", "::1:80", "node: 80", "[]:80"}) {
    EXPECT_FALSE(parse_host_port(text).ok()) << text;
  }
  EXPECT_THAT(base::message(parse_host_port("node").status()), HasSubstr("host:port"));
}

TEST(AddressTest, NamesAreResolvedAndNumericOnesCostNothing) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto local = resolve({"localhost", 7}, deadline);
  ASSERT_TRUE(local.ok()) << local.status();
  EXPECT_TRUE(local->front().is_loopback());
  EXPECT_EQ(local->front().port(), 7);
  // A deadline in the past leaves no time to ask anyone.
  EXPECT_TRUE(resolve({"10.0.0.1", 7}, std::chrono::steady_clock::time_point()).ok());
}

TEST(AddressTest, AnUnknownNameIsNamed) {
  const auto result = resolve({"no such host", 7}, std::chrono::steady_clock::now() + std::chrono::seconds(30));
  EXPECT_THAT(base::message(result.status()), HasSubstr("'no such host'"));
}

}  // namespace
}  // namespace maypole::net
