// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/sessions.h"

#include "maypole/daemon/api_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::daemon {
namespace {

class SessionsTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string who(std::string_view session, double now_s) const {
    const TokenRow* row = sessions_.find(session, now_s);
    return row == nullptr ? "nobody" : row->name;
  }
  FakeStore store_;
  Access access_ = *Access::load(store_);
  std::string root_ = *access_.create("root", Role::kAdmin, 0);
  std::string ann_ = *access_.create("ann.lee", Role::kUser, 0);
  Sessions sessions_{access_};
};

TEST_F(SessionsTest, AKeyOpensOneSessionOnce) {
  const std::string key = sessions_.create_key("ann.lee", 100);
  const std::string session = sessions_.open(key, 200);
  EXPECT_EQ(who(session, 200), "ann.lee");
  EXPECT_EQ(sessions_.open(key, 200), "");
  EXPECT_EQ(sessions_.open("guess", 200), "");
  EXPECT_EQ(sessions_.open("", 200), "");
}

TEST_F(SessionsTest, KeysAndSessionsGrowOld) {
  const std::string late = sessions_.create_key("ann.lee", 100);
  EXPECT_EQ(sessions_.open(late, 100 + Sessions::kKeySeconds), "");
  const std::string session = sessions_.open(sessions_.create_key("ann.lee", 100), 100);
  EXPECT_EQ(who(session, 99 + Sessions::kSessionSeconds), "ann.lee");
  EXPECT_EQ(who(session, 100 + Sessions::kSessionSeconds), "nobody");
}

TEST_F(SessionsTest, NoPartOfASessionCanBeChanged) {
  const std::string session = sessions_.open(sessions_.create_key("ann.lee", 100), 100);
  for (std::size_t i = 0; i < session.size(); ++i) {
    std::string forged = session;
    forged[i] = forged[i] == '7' ? '8' : '7';
    EXPECT_EQ(who(forged, 100), "nobody") << forged;
  }
  for (const char* text : {"", ".", "..", "ann.lee", "ann.lee.1", ".1.", "root.9999999999."}) {
    EXPECT_EQ(who(text, 100), "nobody") << text;
  }
  EXPECT_EQ(who("root" + session.substr(7), 100), "nobody");
}

TEST_F(SessionsTest, ASessionOutlivesTheDaemonAndEndsWithItsToken) {
  const std::string session = sessions_.open(sessions_.create_key("ann.lee", 100), 100);
  Access again = *Access::load(store_);
  EXPECT_NE(Sessions(again).find(session, 100), nullptr);
  ASSERT_TRUE(access_.revoke("ann.lee").ok());
  EXPECT_EQ(who(session, 100), "nobody");
  ASSERT_TRUE(access_.create("ann.lee", Role::kAdmin, 100).ok());
  EXPECT_EQ(who(session, 100), "nobody") << "another token of that name";
}

}  // namespace
}  // namespace maypole::daemon
