// SPDX-License-Identifier: Apache-2.0
#include "maypole/elastic/control_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

namespace maypole::elastic {
namespace {

constexpr std::chrono::seconds kLong{60};

class ControlLinkTest : public ::testing::Test {
 protected:
  ControlLinkTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    here_ = base::Fd(ends[0]);
    there_ = base::Fd(ends[1]);
  }

  void order(Order::Kind kind) {
    const std::vector<std::byte> packet = encode(Order{kind, {3, {}}, ""});
    EXPECT_EQ(::send(there_.get(), packet.data(), packet.size(), 0), static_cast<ssize_t>(packet.size()));
  }

  WorkerReport next_report() {
    std::vector<std::byte> packet(kMaxPacketBytes);
    const ssize_t got = ::recv(there_.get(), packet.data(), packet.size(), 0);
    EXPECT_GT(got, 0);
    return *decode_report(std::span(packet).first(static_cast<std::size_t>(got)));
  }

  base::Fd here_;
  base::Fd there_;
};

TEST_F(ControlLinkTest, OrdersComeInTheirOrder) {
  ControlLink link(std::move(here_), kLong);
  order(Order::Kind::kStop);
  order(Order::Kind::kRefuse);
  EXPECT_EQ((*link.wait(kLong))->kind, Order::Kind::kStop);
  EXPECT_EQ((*link.wait(kLong))->kind, Order::Kind::kRefuse);
  EXPECT_EQ(link.take(), std::nullopt);
}

TEST_F(ControlLinkTest, ReportsReachTheOtherSide) {
  ControlLink link(std::move(here_), kLong);
  const WorkerReport report{WorkerReport::Kind::kStopped, 4, 17, 0, "why"};
  ASSERT_TRUE(link.send(report).ok());
  EXPECT_EQ(next_report(), report);
}

TEST_F(ControlLinkTest, ASilentWorkerSaysThatItLives) {
  const ControlLink link(std::move(here_), std::chrono::milliseconds(4));
  EXPECT_EQ(next_report().kind, WorkerReport::Kind::kAlive);
  EXPECT_EQ(next_report().kind, WorkerReport::Kind::kAlive);
}

TEST_F(ControlLinkTest, WaitingEndsWhenTheCoordinatorIsGone) {
  ControlLink link(std::move(here_), kLong);
  there_.reset();
  EXPECT_EQ(link.wait(kLong).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(link.send({}).code(), absl::StatusCode::kUnavailable);
}

TEST_F(ControlLinkTest, WaitingEndsAtItsLimit) {
  ControlLink link(std::move(here_), kLong);
  const auto order = link.wait(std::chrono::milliseconds(1));
  ASSERT_TRUE(order.ok());
  EXPECT_EQ(*order, std::nullopt);
}

}  // namespace
}  // namespace maypole::elastic
