// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/event_streams.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <thread>
#include <utility>

namespace maypole::daemon {
namespace {

using ::testing::HasSubstr;

/// Both ends of a connection: one for the streams, one to read from.
struct Pair {
  Pair() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    server = base::Fd(ends[0]);
    client = base::Fd(ends[1]);
  }
  base::Fd server;
  base::Fd client;
};

/// Reads until the text has that part, or the stream has ended.
std::string read_until(const base::Fd& socket, const std::string& part) {
  std::string text;
  std::array<char, 4096> some{};
  while (text.find(part) == std::string::npos) {
    const ssize_t got = ::recv(socket.get(), some.data(), some.size(), 0);
    if (got <= 0) {
      break;
    }
    text.append(some.data(), static_cast<std::size_t>(got));
  }
  return text;
}

TEST(EventStreamsTest, EveryReaderGetsEveryEvent) {
  EventLog log;
  EventStreams streams(log);
  std::array<Pair, 20> readers;
  for (Pair& reader : readers) {
    ASSERT_TRUE(streams.add(reader.server, "ann", ""));
  }
  for (const Pair& reader : readers) {
    EXPECT_THAT(read_until(reader.client, "data: {}\n\n"), HasSubstr("Content-Type: text/event-stream"));
  }
  log.append("job", "one");
  log.append("job", "two");
  log.publish();
  for (const Pair& reader : readers) {
    EXPECT_THAT(read_until(reader.client, "two\n\n"), HasSubstr("data: one\n"));
  }
}

TEST(EventStreamsTest, AReaderThatDoesNotKeepUpIsCutOffAndOthersAreNot) {
  EventLog log({.count = 1U << 14U, .bytes = 4U << 20U});
  EventStreams streams(log);
  Pair slow;
  ASSERT_TRUE(streams.add(slow.server, "slow", ""));
  Pair quick;
  ASSERT_TRUE(streams.add(quick.server, "quick", ""));
  ASSERT_THAT(read_until(quick.client, "data: {}\n\n"), HasSubstr("start"));
  // More than the log and the buffers of a socket hold.
  const std::string large(64U << 10U, 'x');
  for (int i = 0; i < 200; ++i) {
    const std::string mark = fmt::format("{}#", i);
    log.append("job", large + mark);
    log.publish();
    ASSERT_THAT(read_until(quick.client, mark + "\n\n"), HasSubstr(mark)) << "one reader waits for another";
  }
  (void)read_until(slow.client, "199#");  // until its end
  while (streams.size() != 1) {
    std::this_thread::yield();
  }
}

TEST(EventStreamsTest, AReaderThatTakesNothingIsGivenUp) {
  EventLog log;
  EventStreams streams(log, {.patience = std::chrono::milliseconds(50)});
  Pair silent;
  ASSERT_TRUE(streams.add(silent.server, "silent", ""));
  log.append("job", std::string(4U << 20U, 'x'));
  log.publish();
  while (streams.size() != 0) {
    std::this_thread::yield();
  }
}

TEST(EventStreamsTest, ASilenceIsFilledByComments) {
  EventLog log;
  EventStreams streams(log, {.heartbeat = std::chrono::milliseconds(10)});
  Pair reader;
  ASSERT_TRUE(streams.add(reader.server, "ann", ""));
  EXPECT_THAT(read_until(reader.client, "\n\n:\n\n:\n\n"), HasSubstr(":\n\n:\n\n"));
}

TEST(EventStreamsTest, OneTooManyIsNotTaken) {
  EventLog log;
  EventStreams streams(log, {.streams = 1});
  {
    Pair first;
    ASSERT_TRUE(streams.add(first.server, "ann", ""));
    Pair second;
    EXPECT_FALSE(streams.add(second.server, "ann", ""));
    EXPECT_TRUE(second.server.valid());
  }
  while (streams.size() != 0) {  // the reader has closed its end
    std::this_thread::yield();
  }
}

TEST(EventStreamsTest, ARevokedTokenEndsItsStreams) {
  EventLog log;
  EventStreams streams(log);
  Pair ann;
  Pair bob;
  ASSERT_TRUE(streams.add(ann.server, "ann", ""));
  ASSERT_TRUE(streams.add(bob.server, "bob", ""));
  (void)read_until(ann.client, "data: {}\n\n");
  (void)read_until(bob.client, "data: {}\n\n");
  log.cut_off("ann");
  EXPECT_EQ(read_until(ann.client, "never"), "");
  log.append("job", "still");
  log.publish();
  EXPECT_THAT(read_until(bob.client, "still"), HasSubstr("still"));
}

}  // namespace
}  // namespace maypole::daemon
