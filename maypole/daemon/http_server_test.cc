// SPDX-License-Identifier: Apache-2.0
// What a client without a token can do to a server: with plain sockets, since a well-behaved client would not.
#include "maypole/daemon/http_server.h"

#include "maypole/net/socket.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <thread>

namespace maypole::daemon {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::chrono::seconds kLong{60};

/// A server whose every request is answered with its own body.
class HttpServerTest : public ::testing::Test {
 public:
  ~HttpServerTest() override {
    mailbox_.close();
    server_.reset();
    core_.request_stop();
  }

 protected:
  explicit HttpServerTest(const HttpLimits& limits = {}) : server_(*HttpServer::listen("127.0.0.1", 0, mailbox_, streams_, limits)) {}

  base::Fd connect() {
    const auto address = *net::SocketAddress::parse("127.0.0.1", static_cast<std::uint16_t>(server_->port()));
    return *net::connect_tcp(address, std::nullopt, std::chrono::steady_clock::now() + kLong);
  }
  [[nodiscard]] std::string head(const std::string& more) const {
    return fmt::format("POST /echo HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n{}\r\n", server_->port(), more);
  }
  /// False: the server did not take all of it.
  static bool send(const base::Fd& socket, std::string_view text) {
    return net::send_all(socket.get(), std::as_bytes(std::span(text)), std::chrono::steady_clock::now() + kLong, "the server").ok();
  }
  /// All that comes until the server closes.
  static std::string answer(const base::Fd& socket) {
    std::string text;
    std::array<char, 4096> part{};
    while (true) {
      pollfd polled = {socket.get(), POLLIN, 0};
      constexpr int kLongMs = 60'000;
      if (::poll(&polled, 1, kLongMs) <= 0) {
        return "no answer: " + text;
      }
      const ssize_t got = ::recv(socket.get(), part.data(), part.size(), 0);
      if (got <= 0) {
        return text;
      }
      text.append(part.data(), static_cast<std::size_t>(got));
    }
  }

  Mailbox mailbox_;
  EventLog events_;
  EventStreams streams_{events_};
  std::unique_ptr<HttpServer> server_;
  std::atomic<std::size_t> longest_ = 0;
  std::jthread core_{[this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd polled = {mailbox_.fd(), POLLIN, 0};
      ::poll(&polled, 1, 10);
      for (Letter& letter : mailbox_.take()) {
        longest_ = std::max(longest_.load(), letter.request.body.size());
        letter.answer.set_value({.body = letter.request.body, .type = "text/plain"});
      }
    }
  }};
};

TEST_F(HttpServerTest, OnlyItsOwnHostAndOriginAreServed) {
  EXPECT_TRUE(may_be_served("127.0.0.1:7077", "", "127.0.0.1", 7077));
  EXPECT_TRUE(may_be_served("localhost:7077", "http://localhost:7077", "127.0.0.1", 7077));
  EXPECT_TRUE(may_be_served("[::1]:7077", "", "::1", 7077));
  EXPECT_FALSE(may_be_served("127.0.0.1:7078", "", "127.0.0.1", 7077));
  EXPECT_FALSE(may_be_served("evil.example:7077", "", "127.0.0.1", 7077)) << "a name that was made to point here";
  EXPECT_FALSE(may_be_served("127.0.0.1:7077", "http://evil.example", "127.0.0.1", 7077));
  EXPECT_FALSE(may_be_served("127.0.0.1:7077", "null", "127.0.0.1", 7077));
  EXPECT_FALSE(may_be_served("", "", "127.0.0.1", 7077));
}

TEST_F(HttpServerTest, AnswersWhatTheMailboxSays) {
  const base::Fd socket = connect();
  ASSERT_TRUE(send(socket, head("Content-Length: 5\r\nConnection: close\r\n") + "hello"));
  const std::string text = answer(socket);
  EXPECT_THAT(text, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(text, EndsWith("\r\n\r\nhello"));
}

TEST_F(HttpServerTest, ServesRequestsThatComeInOnePacketOneAfterTheOther) {
  const base::Fd socket = connect();
  ASSERT_TRUE(send(socket, head("Content-Length: 3\r\n") + "one" + head("Content-Length: 3\r\nConnection: close\r\n") + "two"));
  const std::string text = answer(socket);
  EXPECT_THAT(text, HasSubstr("\r\n\r\none"));
  EXPECT_THAT(text, EndsWith("\r\n\r\ntwo"));
}

TEST_F(HttpServerTest, ABodyThatIsTooLargeIsRefusedByASentence) {
  const base::Fd socket = connect();
  (void)send(socket, head(fmt::format("Content-Length: {}\r\n", 8U << 20U)) + std::string(8U << 20U, 'x'));
  const std::string text = answer(socket);
  EXPECT_THAT(text, StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(text, HasSubstr("too large"));
  EXPECT_EQ(longest_, 0U);
}

TEST_F(HttpServerTest, ABodyInChunksIsBoundedLikeAnyOther) {
  const base::Fd socket = connect();
  const std::string chunk = "10000\r\n" + std::string(0x10000, 'x') + "\r\n";
  ASSERT_TRUE(send(socket, head("Transfer-Encoding: chunked\r\n")));
  bool taken = true;
  for (int i = 0; i < 1024 && taken; ++i) {
    taken = send(socket, chunk);
  }
  EXPECT_FALSE(taken) << "64 MiB of a body were read";
  EXPECT_EQ(longest_, 0U);
}

TEST_F(HttpServerTest, HeadersWithoutEndAreNotRead) {
  for (const std::string& part : {std::string(1U << 16U, 'x'), "X-Header-" + std::string(1000, 'x') + ": 1\r\n"}) {
    const base::Fd socket = connect();
    ASSERT_TRUE(send(socket, fmt::format("GET / HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n", server_->port())));
    bool taken = true;
    for (std::size_t sent = 0; sent < (64U << 20U) && taken; sent += part.size()) {
      taken = send(socket, part);
    }
    EXPECT_FALSE(taken) << "64 MiB of headers were read";
  }
}

TEST_F(HttpServerTest, APackedBodyIsNotUnpacked) {
  const base::Fd socket = connect();
  ASSERT_TRUE(send(socket, head("Content-Encoding: gzip\r\nContent-Length: 5\r\nConnection: close\r\n") + "hello"));
  EXPECT_THAT(answer(socket), EndsWith("\r\n\r\nhello"));
}

TEST_F(HttpServerTest, AnAnswerIsGivenOnceWhateverRangesAreAskedFor) {
  const base::Fd socket = connect();
  ASSERT_TRUE(send(socket, head("Range: bytes=0-4,0-4,0-4,0-4\r\nContent-Length: 5\r\nConnection: close\r\n") + "hello"));
  const std::string text = answer(socket);
  EXPECT_THAT(text, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(text, EndsWith("\r\n\r\nhello"));
}

class SmallHttpServerTest : public HttpServerTest {
 protected:
  SmallHttpServerTest() : HttpServerTest({.connections = 3, .threads = 2, .request = std::chrono::milliseconds(300)}) {}
};

TEST_F(SmallHttpServerTest, RequestsThatDripInDoNotKeepOthersOut) {
  std::vector<base::Fd> slow(2);
  for (base::Fd& socket : slow) {
    socket = connect();
    ASSERT_TRUE(send(socket, "G"));
  }
  // A byte every now and then, as long as anybody takes it.
  const std::jthread dripping([&slow](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      for (const base::Fd& socket : slow) {
        (void)send(socket, "E");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const base::Fd socket = connect();
  ASSERT_TRUE(send(socket, head("Content-Length: 5\r\nConnection: close\r\n") + "hello"));
  EXPECT_THAT(answer(socket), StartsWith("HTTP/1.1 200"));
}

TEST_F(SmallHttpServerTest, AConnectionTooManyIsTurnedAwayAtOnce) {
  std::vector<base::Fd> open(3);
  for (base::Fd& socket : open) {
    socket = connect();
  }
  const base::Fd socket = connect();
  EXPECT_THAT(answer(socket), StartsWith("HTTP/1.1 503"));
  open.clear();
  while (true) {  // until the server has seen that they are gone
    const base::Fd another = connect();
    if (send(another, head("Content-Length: 5\r\nConnection: close\r\n") + "hello") && answer(another).starts_with("HTTP/1.1 200")) {
      break;
    }
  }
}

}  // namespace
}  // namespace maypole::daemon
