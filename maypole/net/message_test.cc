// SPDX-License-Identifier: Apache-2.0
#include "maypole/net/message.h"

#include "maypole/base/status.h"
#include "maypole/net/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::net {
namespace {

using ::testing::HasSubstr;

base::TimePoint later() { return std::chrono::steady_clock::now() + std::chrono::seconds(30); }

MessageWriter sample() {
  MessageWriter writer;
  writer.put_u8(200);
  writer.put_u16(65000);
  writer.put_u32(4'000'000'000u);
  writer.put_u64(0x0123456789abcdefULL);
  writer.put_f64(-0.1);
  writer.put_string(std::string("zero\0inside", 11));
  writer.put_string("");
  return writer;
}

TEST(MessageTest, WhatIsWrittenIsRead) {
  const MessageWriter writer = sample();
  MessageReader reader(writer.bytes());
  EXPECT_EQ(reader.u8(), 200);
  EXPECT_EQ(reader.u16(), 65000);
  EXPECT_EQ(reader.u32(), 4'000'000'000u);
  EXPECT_EQ(reader.u64(), 0x0123456789abcdefULL);
  EXPECT_EQ(reader.f64(), -0.1);
  EXPECT_EQ(reader.string(), std::string("zero\0inside", 11));
  EXPECT_EQ(reader.string(), "");
  EXPECT_TRUE(reader.finish("the sample").ok());
}

TEST(MessageTest, EveryTruncationIsNoticed) {
  const MessageWriter writer = sample();
  for (std::size_t size = 0; size < writer.bytes().size(); ++size) {
    MessageReader reader(std::span(writer.bytes()).first(size));
    (void)reader.u8();
    (void)reader.u16();
    (void)reader.u32();
    (void)reader.u64();
    (void)reader.f64();
    (void)reader.string();
    (void)reader.string();
    EXPECT_FALSE(reader.ok()) << size;
    EXPECT_THAT(base::message(reader.finish("the sample")), HasSubstr("the sample is cut short"));
  }
}

TEST(MessageTest, AStringLongerThanTheMessageIsAFaultThatStays) {
  MessageWriter writer;
  writer.put_u32(0xffffffffu);
  writer.put_u64(1);
  MessageReader reader(writer.bytes());
  EXPECT_EQ(reader.string(), "");
  EXPECT_EQ(reader.u8(), 0);
  EXPECT_FALSE(reader.ok());
}

TEST(MessageTest, LeftOverBytesAreCounted) {
  const MessageWriter writer = sample();
  MessageReader reader(writer.bytes());
  (void)reader.u8();
  EXPECT_THAT(base::message(reader.finish("the sample")), HasSubstr("bytes too many"));
}

TEST(MessageTest, FramesPassThroughASocketAndLongOnesAreRefused) {
  auto pair = make_socket_pair();
  ASSERT_TRUE(pair.ok());
  const MessageWriter writer = sample();
  ASSERT_TRUE(send_message(pair->first.get(), writer.bytes(), later(), "peer").ok());
  ASSERT_TRUE(send_message(pair->first.get(), {}, later(), "peer").ok());
  ASSERT_TRUE(send_message(pair->first.get(), writer.bytes(), later(), "peer").ok());
  EXPECT_EQ(*receive_message(pair->second.get(), 1000, later(), "peer"), writer.bytes());
  EXPECT_TRUE(receive_message(pair->second.get(), 1000, later(), "peer")->empty());
  EXPECT_THAT(base::message(receive_message(pair->second.get(), 10, later(), "peer").status()), HasSubstr("at most 10"));
}

TEST(MessageTest, AClosedPeerIsUnavailableAndASilentOneLate) {
  auto pair = make_socket_pair();
  ASSERT_TRUE(pair.ok());
  const auto past = std::chrono::steady_clock::now();
  EXPECT_EQ(receive_message(pair->second.get(), 10, past, "peer").status().code(), absl::StatusCode::kDeadlineExceeded);
  pair->first.reset();
  EXPECT_EQ(receive_message(pair->second.get(), 10, later(), "peer").status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace maypole::net
