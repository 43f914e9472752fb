// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/data_dir.h"

#include "maypole/base/status.h"
#include "maypole/daemon/client.h"
#include "maypole/daemon/daemon_testing.h"
#include "maypole/net/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>

namespace maypole::daemon {
namespace {

using ::testing::HasSubstr;

class DataDirTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  static mode_t mode_of(const std::string& path) {
    struct stat found{};
    return ::stat(path.c_str(), &found) == 0 ? found.st_mode & 07777 : 0;
  }
  TemporaryFolder folder_;
};

TEST_F(DataDirTest, IsMadeForItsOwnerAloneAndOneDaemonHasItAtATime) {
  const std::string data = path("a/b");
  EXPECT_FALSE(daemon_has(data));
  absl::StatusOr<base::Fd> lock = lock_data_dir(data);
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ(mode_of(data), 0700U);
  EXPECT_EQ(mode_of(data + "/jobs"), 0700U);
  EXPECT_TRUE(daemon_has(data));
  EXPECT_THAT(base::message(lock_data_dir(data).status()), HasSubstr("another daemon runs"));
  lock->reset();
  EXPECT_FALSE(daemon_has(data));
  EXPECT_TRUE(lock_data_dir(data).ok());
}

TEST_F(DataDirTest, AFolderThatIsThereKeepsItsModeAndIsRefusedWhereOthersMayWrite) {
  const std::string shared = path("shared");
  ASSERT_EQ(::mkdir(shared.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(shared.c_str(), 01777), 0);  // as /tmp: closing it would break the machine
  EXPECT_THAT(base::message(lock_data_dir(shared).status()), HasSubstr("others may write there"));
  EXPECT_EQ(mode_of(shared), 01777U);
  ASSERT_EQ(::chmod(shared.c_str(), 0755), 0);
  EXPECT_TRUE(lock_data_dir(shared).ok());
  EXPECT_EQ(mode_of(shared), 0755U);
}

TEST_F(DataDirTest, ATokenIsNotSentToWhoeverListensWhereADaemonWasKilled) {
  ASSERT_TRUE(lock_data_dir(path("data")).ok());  // and it is gone
  const base::Fd listener = *net::listen_tcp(*net::SocketAddress::parse("127.0.0.1", 0));
  std::ofstream(path("data/address")) << net::local_address_of(listener.get()).to_string() << "\n";
  std::ofstream(path("data/token")) << "secret\n";
  ::unsetenv("MAYPOLE_ADDRESS");
  const auto client = Client::connect({.address = "", .data_dir = path("data"), .wait_s = 0});
  EXPECT_TRUE(absl::IsUnavailable(client.status())) << client.status();
  EXPECT_FALSE(net::accept_ready(listener.get())->valid()) << "it has connected";
}

}  // namespace
}  // namespace maypole::daemon
