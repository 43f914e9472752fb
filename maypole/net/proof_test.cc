// SPDX-License-Identifier: Apache-2.0
#include "maypole/net/proof.h"

#include "maypole/base/status.h"
#include "maypole/net/message.h"
#include "maypole/net/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace maypole::net {
namespace {

using ::testing::HasSubstr;
using Kind = ProvingAcceptor::EventKind;

const Credentials kCredentials = {.secret = "s", .context = "job"};
constexpr Greeting kGreeting = {.purpose = 2, .lane = 3, .level = 4, .epoch = 5, .from = 6, .to = 7};

base::TimePoint later() { return std::chrono::steady_clock::now() + std::chrono::seconds(30); }

/// A listener, and a descriptor that stops who accepts on it.
class ProofTest : public ::testing::Test {
 protected:
  ProofTest() : listener_(*listen_tcp(*SocketAddress::parse("127.0.0.1", 0))), stop_(*make_socket_pair()) {}

  [[nodiscard]] base::Fd connect() const { return *connect_tcp(local_address_of(listener_.get()), std::nullopt, later()); }

  [[nodiscard]] ProvingAcceptor::Options options() const { return {.listeners = {listener_.get()}, .credentials = kCredentials}; }

  /// Returns the events until the first that is no connection; `stop` makes one.
  static std::vector<ProvingAcceptor::Event> accept_all(ProvingAcceptor& acceptor, int stop) {
    std::vector<ProvingAcceptor::Event> events;
    const int watched[] = {stop};
    while (true) {
      auto event = acceptor.next(later(), watched);
      EXPECT_TRUE(event.ok()) << event.status();
      if (!event.ok() || event->kind != Kind::kConnection) {
        return events;
      }
      events.push_back(*std::move(event));
    }
  }

  base::Fd listener_;
  SocketPair stop_;
};

TEST_F(ProofTest, BothSidesProveAndTheGreetingArrives) {
  ProvingAcceptor acceptor(options());
  const base::Fd fd = connect();
  absl::Status proven;
  absl::StatusOr<ProvingAcceptor::Event> event;
  {
    const std::jthread initiator([&] { proven = prove_as_initiator(fd.get(), kCredentials, kGreeting, later(), "acceptor"); });
    event = acceptor.next(later(), {});
  }
  EXPECT_TRUE(proven.ok()) << proven;
  ASSERT_TRUE(event.ok()) << event.status();
  ASSERT_EQ(event->kind, Kind::kConnection);
  EXPECT_EQ(event->connection.greeting, kGreeting);
  EXPECT_EQ(event->connection.peer, local_address_of(fd.get()).to_string());
}

TEST_F(ProofTest, AWrongSecretOrContextIsRefusedOnBothSides) {
  ProvingAcceptor acceptor(options());
  std::vector<ProvingAcceptor::Event> events;
  {
    const std::jthread server([&] { events = accept_all(acceptor, stop_.second.get()); });
    for (const Credentials& wrong : {Credentials{"t", "job"}, Credentials{"", "job"}, Credentials{"s", "other job"}}) {
      const base::Fd fd = connect();
      const absl::Status status = prove_as_initiator(fd.get(), wrong, kGreeting, later(), "acceptor");
      EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
    }
    stop_.first.reset();
  }
  EXPECT_TRUE(events.empty());
  EXPECT_EQ(acceptor.num_refused(), 3);
  EXPECT_THAT(acceptor.last_refused(), HasSubstr("127.0.0.1:"));
}

TEST_F(ProofTest, AnAcceptorThatDoesNotKnowTheSecretIsNotBelieved) {
  const base::Fd fd = connect();
  const auto impostor = accept(listener_.get(), later());
  ASSERT_TRUE(impostor.ok());
  MessageWriter answer;  // says "accepted" without being able to prove it
  answer.put_bytes(std::as_bytes(std::span(std::string_view("MAYPOLE1"))));
  answer.put_bytes(Digest{});
  answer.put_u8(1);
  answer.put_bytes(Digest{});
  ASSERT_TRUE(send_all(impostor->get(), answer.bytes(), later(), "initiator").ok());
  EXPECT_EQ(prove_as_initiator(fd.get(), kCredentials, kGreeting, later(), "acceptor").code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(ProofTest, WhatAnInitiatorSaidOnceCannotBeSaidAgain) {
  ProvingAcceptor acceptor(options());
  std::vector<ProvingAcceptor::Event> events;
  {
    const std::jthread server([&] { events = accept_all(acceptor, stop_.second.get()); });
    // A listener in the middle passes everything on and keeps what the initiator said.
    const base::Fd middle = *listen_tcp(*SocketAddress::parse("127.0.0.1", 0));
    const base::Fd initiator_end = *connect_tcp(local_address_of(middle.get()), std::nullopt, later());
    const base::Fd middle_end = *accept(middle.get(), later());
    const std::jthread initiator(
        [&] { EXPECT_TRUE(prove_as_initiator(initiator_end.get(), kCredentials, kGreeting, later(), "acceptor").ok()); });
    const base::Fd first = connect();
    std::vector<std::byte> hello(56);
    std::vector<std::byte> challenge(40);
    std::vector<std::byte> proof(32);
    std::vector<std::byte> verdict(33);
    ASSERT_TRUE(receive_all(middle_end.get(), hello, later(), "initiator").ok());
    ASSERT_TRUE(send_all(first.get(), hello, later(), "acceptor").ok());
    ASSERT_TRUE(receive_all(first.get(), challenge, later(), "acceptor").ok());
    ASSERT_TRUE(send_all(middle_end.get(), challenge, later(), "initiator").ok());
    ASSERT_TRUE(receive_all(middle_end.get(), proof, later(), "initiator").ok());
    ASSERT_TRUE(send_all(first.get(), proof, later(), "acceptor").ok());
    ASSERT_TRUE(receive_all(first.get(), verdict, later(), "acceptor").ok());
    ASSERT_TRUE(send_all(middle_end.get(), verdict, later(), "initiator").ok());
    // Now the same again, without the initiator.
    const base::Fd second = connect();
    ASSERT_TRUE(send_all(second.get(), hello, later(), "acceptor").ok());
    ASSERT_TRUE(receive_all(second.get(), challenge, later(), "acceptor").ok());
    ASSERT_TRUE(send_all(second.get(), proof, later(), "acceptor").ok());
    ASSERT_TRUE(receive_all(second.get(), verdict, later(), "acceptor").ok());
    EXPECT_EQ(verdict[0], std::byte{2});
    stop_.first.reset();
  }
  EXPECT_EQ(events.size(), 1u);
  EXPECT_EQ(acceptor.num_refused(), 1);
}

TEST_F(ProofTest, AStrangerIsDroppedWhenItsPatienceEnds) {
  auto impatient = options();
  impatient.patience = std::chrono::milliseconds(20);
  ProvingAcceptor acceptor(impatient);
  const base::Fd stranger = connect();
  std::vector<ProvingAcceptor::Event> events;
  {
    const std::jthread server([&] { events = accept_all(acceptor, stop_.second.get()); });
    std::byte byte{};
    EXPECT_EQ(receive_all(stranger.get(), {&byte, 1}, later(), "acceptor").code(), absl::StatusCode::kUnavailable);
    stop_.first.reset();
  }
  EXPECT_TRUE(events.empty());
}

TEST_F(ProofTest, AMessageAfterTheProofArrivesWithItAndALongOneDropsTheSender) {
  auto with_message = options();
  with_message.message_limit = 10;
  ProvingAcceptor acceptor(with_message);
  std::vector<base::Fd> open;
  {
    const std::jthread initiator([&] {
      for (const std::size_t size : {11u, 10u, 0u}) {
        open.push_back(connect());
        EXPECT_TRUE(prove_as_initiator(open.back().get(), kCredentials, kGreeting, later(), "acceptor").ok());
        EXPECT_TRUE(send_message(open.back().get(), std::vector<std::byte>(size), later(), "acceptor").ok());
      }
    });
    for (const std::size_t size : {10u, 0u}) {
      const auto event = acceptor.next(later(), {});
      ASSERT_TRUE(event.ok()) << event.status();
      ASSERT_EQ(event->kind, Kind::kConnection);
      EXPECT_EQ(event->connection.message.size(), size);
    }
  }
  std::byte byte{};
  EXPECT_EQ(receive_all(open[0].get(), {&byte, 1}, later(), "acceptor").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace maypole::net
