// SPDX-License-Identifier: Apache-2.0
#include "maypole/net/machine.h"

#include "maypole/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MachineTest, TheIdentityIsTheSameTwice) {
  const auto identity = machine_identity();
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_FALSE(identity->empty());
  EXPECT_EQ(*identity, *machine_identity());
}

TEST(MachineTest, TheLoopbackInterfaceHasTheLoopbackAddress) { EXPECT_EQ(interface_address("lo", AF_INET)->host(), "127.0.0.1"); }

TEST(MachineTest, AnUnknownInterfaceIsNamedWithThoseThereAre) {
  EXPECT_THAT(base::message(interface_address("nosuch0", AF_INET).status()), AllOf(HasSubstr("'nosuch0'"), HasSubstr("lo")));
}

TEST(MachineTest, NoAddressForOthersIsLoopback) {
  for (const SocketAddress& address : global_addresses()) {
    EXPECT_FALSE(address.is_loopback()) << address.host();
  }
}

TEST(MachineTest, TheRouteToLoopbackStartsAtLoopback) {
  const auto local = local_address_toward(*SocketAddress::parse("127.0.0.1", 0));
  ASSERT_TRUE(local.ok()) << local.status();
  EXPECT_EQ(local->host(), "127.0.0.1");
}

}  // namespace
}  // namespace maypole::net
