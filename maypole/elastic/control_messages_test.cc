// SPDX-License-Identifier: Apache-2.0
#include "maypole/elastic/control_messages.h"

#include <gtest/gtest.h>

namespace maypole::elastic {
namespace {

const WorkerReport kReport{WorkerReport::Kind::kStopped, 7, 1234567890123, 0.25, "rank 1 is lost"};
const Order kOrder{Order::Kind::kAnnounce, {9, {{WorkerId(4), "a", "10.0.0.1:4000", {2.5e7}}, {WorkerId(11), "", "[::1]:1"}}}, "text"};

TEST(ControlMessagesTest, WhatIsSaidIsHeard) {
  EXPECT_EQ(*decode_report(encode(kReport)), kReport);
  EXPECT_EQ(*decode_report(encode(WorkerReport{})), WorkerReport{});
  EXPECT_EQ(*decode_order(encode(kOrder)), kOrder);
  EXPECT_EQ(*decode_order(encode(Order{})), Order{});
}

TEST(ControlMessagesTest, EveryCutMessageIsRefused) {
  const std::vector<std::byte> report = encode(kReport);
  const std::vector<std::byte> order = encode(kOrder);
  for (std::size_t size = 0; size < report.size(); ++size) {
    EXPECT_FALSE(decode_report(std::span(report).first(size)).ok()) << size;
  }
  for (std::size_t size = 0; size < order.size(); ++size) {
    EXPECT_FALSE(decode_order(std::span(order).first(size)).ok()) << size;
  }
}

TEST(ControlMessagesTest, UnknownKindsAreRefused) {
  for (const int kind : {0, 7, 255}) {
    std::vector<std::byte> report = encode(kReport);
    report[0] = static_cast<std::byte>(kind);
    EXPECT_FALSE(decode_report(report).ok()) << kind;
    std::vector<std::byte> order = encode(kOrder);
    order[0] = static_cast<std::byte>(kind);
    EXPECT_FALSE(decode_order(order).ok()) << kind;
  }
}

}  // namespace
}  // namespace maypole::elastic
