// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/connections_testing.h"
#include "maypole/comm/rendezvous.h"
#include "maypole/net/machine.h"
#include "maypole/net/message.h"
#include "maypole/net/proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

namespace maypole::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kShort = std::chrono::milliseconds(400);

std::string text_of(const absl::StatusOr<Connections>& result) { return result.ok() ? "no error" : base::message(result.status()); }

absl::StatusCode code_of(const absl::StatusOr<Connections>& result) { return result.status().code(); }

std::string where(const base::Fd& listener) { return net::local_address_of(listener.get()).to_string(); }

/// Joins rank 0 and the honest rank 1 after `stranger` had its turn at the rendezvous while rank 0 was waiting.
void expect_that_the_ring_survives(const std::function<void(const base::Fd& listener)>& stranger) {
  const base::Fd listener = listen_on("127.0.0.1");
  absl::StatusOr<Connections> first;
  {
    const std::jthread rank_zero([&] { first = connect_ring(options_for(listener, 0, 2)); });
    stranger(listener);
    const auto second = connect_ring(options_for(listener, 1, 2));
    EXPECT_TRUE(second.ok()) << second.status();
  }
  EXPECT_TRUE(first.ok()) << first.status();
}

TEST(ConnectionsFailureTest, AWrongSecretIsToldToTheStrangerAndDisturbsNobody) {
  expect_that_the_ring_survives([](const base::Fd& listener) {
    ConnectOptions stranger = options_for(listener, 1, 2);
    stranger.secret = "another";
    const auto result = connect_ring(stranger);
    EXPECT_EQ(code_of(result), absl::StatusCode::kUnauthenticated);
    EXPECT_THAT(text_of(result),
                AllOf(HasSubstr("wrong secret"), HasSubstr("rank 1"), HasSubstr(where(listener)), HasSubstr("MAYPOLE_SECRET")));
  });
}

TEST(ConnectionsFailureTest, AnotherJobIsTurnedAwayAndDisturbsNobody) {
  expect_that_the_ring_survives([](const base::Fd& listener) {
    ConnectOptions stranger = options_for(listener, 1, 2);
    stranger.job_id = "letters";
    const auto result = connect_ring(stranger);
    EXPECT_EQ(code_of(result), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(text_of(result), AllOf(HasSubstr("'letters'"), HasSubstr("'digits'")));
  });
}

TEST(ConnectionsFailureTest, AWorkerOfAnotherEpochIsTurnedAwayAndDisturbsNobody) {
  expect_that_the_ring_survives([](const base::Fd& listener) {
    ConnectOptions stranger = options_for(listener, 1, 2);
    stranger.epoch = 7;
    const auto result = connect_ring(stranger);
    EXPECT_EQ(code_of(result), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(text_of(result), AllOf(HasSubstr("epoch 7"), HasSubstr("epoch 1")));
  });
}

TEST(ConnectionsFailureTest, SilentAndBabblingStrangersHoldUpNobody) {
  std::vector<base::Fd> strangers;  // kept open until the ring stands; more than an acceptor keeps pending
  expect_that_the_ring_survives([&](const base::Fd& listener) {
    for (int i = 0; i < 300; ++i) {
      auto fd = net::connect_tcp(net::local_address_of(listener.get()), std::nullopt, later());
      ASSERT_TRUE(fd.ok()) << fd.status();
      const std::string babble = i % 3 == 0   ? ""
                                 : i % 3 == 1 ? "GET / HTTP/1.1\r\nHost: somewhere\r\nAccept: everything there is, please\r\n\r\n"
                                              : "MAYPOLE1";
      EXPECT_TRUE(net::send_all(fd->get(), std::as_bytes(std::span(babble)), later(), "rank 0").ok());
      strangers.push_back(*std::move(fd));
    }
  });
}

TEST(ConnectionsFailureTest, ProvenStrangersWithHugeOrSenselessMessagesDisturbNobody) {
  std::vector<base::Fd> strangers;
  expect_that_the_ring_survives([&](const base::Fd& listener) {
    for (const std::uint32_t size : {4u, 0xffffffffu}) {
      auto fd = net::connect_tcp(net::local_address_of(listener.get()), std::nullopt, later());
      ASSERT_TRUE(fd.ok()) << fd.status();
      const net::Greeting greeting{.purpose = 1, .lane = 0, .level = 0, .epoch = 1, .from = 1, .to = 0};
      ASSERT_TRUE(net::prove_as_initiator(fd->get(), {.secret = "a secret", .context = "rendezvous"}, greeting, later(), "rank 0").ok());
      net::MessageWriter writer;
      writer.put_u32(size);
      writer.put_u32(0xdeadbeef);
      EXPECT_TRUE(net::send_all(fd->get(), writer.bytes(), later(), "rank 0").ok());
      strangers.push_back(*std::move(fd));
    }
  });
}

TEST(ConnectionsFailureTest, RanksThatDisagreeOnTheSizeAllLearnWhoAndHowMuch) {
  const base::Fd listener = listen_on("127.0.0.1");
  auto all = ring_options(listener, 3);
  all[2].num_ranks = 4;
  for (const auto& result : form(all)) {
    EXPECT_EQ(code_of(result), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(text_of(result), AllOf(HasSubstr("rank 2"), HasSubstr("4 ranks"), HasSubstr("there are 3")));
  }
}

TEST(ConnectionsFailureTest, ARankThatComesTwiceEndsItForAll) {
  const base::Fd listener = listen_on("127.0.0.1");
  auto all = ring_options(listener, 3);
  all[2].rank = 1;
  for (const auto& result : form(all)) {
    EXPECT_EQ(code_of(result), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(text_of(result), HasSubstr("rank 1 came twice"));
  }
}

TEST(ConnectionsFailureTest, MissingRanksAreNamedWithTheAddressTheyShouldReach) {
  const base::Fd listener = listen_on("127.0.0.1");
  auto all = ring_options(listener, 4);
  all.resize(2);
  all[0].deadline = kShort;
  for (const auto& result : form(all)) {
    EXPECT_EQ(code_of(result), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(text_of(result), AllOf(HasSubstr("ranks 2, 3 of 4"), HasSubstr(where(listener))));
  }
}

TEST(ConnectionsFailureTest, TheEarliestDeadlineOfAnyRankIsEveryones) {
  const base::Fd listener = listen_on("127.0.0.1");
  auto all = ring_options(listener, 3);
  all.resize(2);
  all[1].deadline = kShort;
  for (const auto& result : form(all)) {
    EXPECT_THAT(text_of(result), HasSubstr("rank 2 of 3"));
  }
}

TEST(ConnectionsFailureTest, MissingRanksComeWithTheCountOfWrongSecrets) {
  const base::Fd listener = listen_on("127.0.0.1");
  auto all = ring_options(listener, 2);
  all[0].deadline = kShort;
  all[1].secret = "another";
  EXPECT_THAT(text_of(form(all)[0]), AllOf(HasSubstr("rank 1 of 2"), HasSubstr("wrong secret"), HasSubstr("127.0.0.1:")));
}

TEST(ConnectionsFailureTest, WithoutRankZeroTheOthersNameWhatTheyTriedToReach) {
  base::Fd listener = listen_on("127.0.0.1");
  ConnectOptions options = options_for(listener, 1, 2);
  const std::string address = where(listener);
  listener.reset();
  options.deadline = kShort;
  const auto result = connect_ring(options);
  EXPECT_EQ(code_of(result), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(text_of(result),
              AllOf(HasSubstr("rank 1 did not reach rank 0"), HasSubstr(address), HasSubstr("refused"), HasSubstr("loopback")));
}

TEST(ConnectionsFailureTest, APortInUseIsSaidWithAddressPortAndRemedy) {
  const base::Fd listener = listen_on("127.0.0.1");
  ConnectOptions options = options_for(listener, 0, 2);
  options.rendezvous_listener = -1;
  const auto result = connect_ring(options);
  EXPECT_EQ(code_of(result), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(text_of(result),
              AllOf(HasSubstr(where(listener)), HasSubstr("in use"), HasSubstr("choose another port"), Not(HasSubstr("\n"))));
}

TEST(ConnectionsFailureTest, WhatListensThereMayBeAnotherProgram) {
  const base::Fd listener = listen_on("127.0.0.1");
  absl::StatusOr<Connections> result;
  {
    const std::jthread rank_one([&] { result = connect_ring(options_for(listener, 1, 2)); });
    const auto fd = net::accept(listener.get(), later());
    ASSERT_TRUE(fd.ok()) << fd.status();
    const std::string banner = "SSH-2.0-something\r\n";
    EXPECT_TRUE(net::send_all(fd->get(), std::as_bytes(std::span(banner)), later(), "rank 1").ok());
  }
  EXPECT_EQ(code_of(result), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(text_of(result), AllOf(HasSubstr(where(listener)), HasSubstr("another program")));
}

/// Takes a seat as `worker`, as far as the rendezvous sees; returns the seat.
base::Fd sit_down(const base::Fd& listener, const Worker& worker) {
  auto fd = net::connect_tcp(net::local_address_of(listener.get()), std::nullopt, later());
  EXPECT_TRUE(fd.ok()) << fd.status();
  const net::Greeting greeting{.purpose = 1, .lane = 0, .level = 0, .epoch = 1, .from = static_cast<std::uint32_t>(worker.rank), .to = 0};
  EXPECT_TRUE(net::prove_as_initiator(fd->get(), {.secret = "a secret", .context = "rendezvous"}, greeting, later(), "rank 0").ok());
  const auto bytes = encode({.kind = RendezvousMessage::Kind::kWorker, .status = {}, .workers = {worker}});
  EXPECT_TRUE(net::send_message(fd->get(), bytes, later(), "rank 0").ok());
  return *std::move(fd);
}

Worker impostor(int rank, int num_ranks) {
  Worker worker;
  worker.rank = rank;
  worker.num_ranks = num_ranks;
  worker.job = "digits";
  worker.epoch = 1;
  worker.host_name = "elsewhere";
  worker.machine = *net::machine_identity();
  worker.transport = TransportChoice::kTcp;
  worker.patience = std::chrono::seconds(30);
  return worker;
}

TEST(ConnectionsFailureTest, AWorkerThatLeavesEarlyEndsItForAllAtOnce) {
  const base::Fd listener = listen_on("127.0.0.1");
  absl::StatusOr<Connections> result;
  {
    const std::jthread rank_zero([&] { result = connect_ring(options_for(listener, 0, 3)); });
    sit_down(listener, impostor(2, 3)).reset();
  }
  EXPECT_EQ(code_of(result), absl::StatusCode::kUnavailable);
  EXPECT_THAT(text_of(result), AllOf(HasSubstr("rank 2"), HasSubstr("elsewhere"), HasSubstr("left before")));
}

TEST(ConnectionsFailureTest, AWorkerThatCannotBeConnectedIsNamedWithItsAddress) {
  const base::Fd listener = listen_on("127.0.0.1");
  const net::SocketAddress nobody = net::local_address_of(listen_on("127.0.0.1").get());  // closed again
  Worker worker = impostor(1, 2);
  worker.address = nobody.host();
  worker.port = nobody.port();
  ConnectOptions options = options_for(listener, 0, 2);
  options.transport = TransportChoice::kTcp;
  absl::StatusOr<Connections> result;
  base::Fd seat;
  {
    const std::jthread rank_zero([&] { result = connect_ring(options); });
    seat = sit_down(listener, worker);
  }
  EXPECT_EQ(code_of(result), absl::StatusCode::kUnavailable);
  EXPECT_THAT(text_of(result), AllOf(HasSubstr("rank 0"), HasSubstr("cannot connect to rank 1 (elsewhere)"), HasSubstr(nobody.to_string()),
                                     HasSubstr("--interface")));
}

TEST(ConnectionsFailureTest, AWorkerThatDoesNotAnswerIsNamedWithItsAddress) {
  const base::Fd listener = listen_on("127.0.0.1");
  const base::Fd data = listen_on("127.0.0.1");  // takes connections into its queue, and answers none
  Worker worker = impostor(1, 2);
  worker.address = "127.0.0.1";
  worker.port = net::local_address_of(data.get()).port();
  ConnectOptions options = options_for(listener, 0, 2);
  options.deadline = kShort;
  options.transport = TransportChoice::kTcp;
  absl::StatusOr<Connections> result;
  base::Fd seat;
  {
    const std::jthread rank_zero([&] { result = connect_ring(options); });
    seat = sit_down(listener, worker);
  }
  EXPECT_EQ(code_of(result), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(text_of(result), AllOf(HasSubstr("rank 1 (elsewhere)"), HasSubstr(where(data)), HasSubstr("in time")));
}

TEST(ConnectionsFailureTest, AnUnknownInterfaceOnOneRankIsToldToAll) {
  for (const std::size_t rank : {0u, 1u, 2u}) {
    const base::Fd listener = listen_on("127.0.0.1");
    auto all = ring_options(listener, 3);
    all[rank].interface = "nosuch0";
    for (const auto& result : form(all)) {
      EXPECT_THAT(text_of(result), AllOf(HasSubstr(fmt::format("rank {}", rank)), HasSubstr("no interface 'nosuch0'"), HasSubstr("lo")));
    }
  }
}

TEST(ConnectionsFailureTest, DifferentTransportsAreAnErrorOnAll) {
  const base::Fd listener = listen_on("127.0.0.1");
  auto all = ring_options(listener, 2);
  all[1].transport = TransportChoice::kTcp;
  for (const auto& result : form(all)) {
    EXPECT_THAT(text_of(result), AllOf(HasSubstr("transport auto"), HasSubstr("rank 1 for tcp"), HasSubstr("MAYPOLE_TRANSPORT")));
  }
}

TEST(ConnectionsFailureTest, SharedMemoryCannotBePaced) {
  const base::Fd listener = listen_on("127.0.0.1");
  auto all = ring_options(listener, 2);
  all[0].transport = all[1].transport = TransportChoice::kShm;
  all[1].edge_bandwidth = base::Bandwidth{1e6};
  for (const auto& result : form(all)) {
    EXPECT_EQ(code_of(result), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(text_of(result), AllOf(HasSubstr("rank 1"), HasSubstr("paced")));
  }
}

TEST(ConnectionsFailureTest, WithoutASecretOnlyLoopbackIsAllowed) {
  const base::Fd open = listen_on("0.0.0.0");
  ConnectOptions options = options_for(open, 0, 2);
  options.secret = "";
  EXPECT_THAT(text_of(connect_ring(options)), AllOf(HasSubstr("0.0.0.0"), HasSubstr("MAYPOLE_SECRET")));

  const base::Fd loopback = listen_on("127.0.0.1");
  auto all = ring_options(loopback, 2);
  all[0].secret = all[1].secret = "";
  for (const auto& result : form(all)) {
    EXPECT_TRUE(result.ok()) << result.status();
  }
}

TEST(ConnectionsFailureTest, ADescriptorThatDoesNotListenIsRefused) {
  const auto pair = net::make_socket_pair();
  const base::Fd listener = listen_on("127.0.0.1");
  ConnectOptions options = options_for(listener, 0, 2);
  options.rendezvous_listener = pair->first.get();
  EXPECT_THAT(text_of(connect_ring(options)), HasSubstr("MAYPOLE_RENDEZVOUS_FD"));
}

TEST(ConnectionsFailureTest, ImpossibleOptionsAreRefused) {
  ConnectOptions options;
  options.rank = 3;
  options.num_ranks = 3;
  EXPECT_EQ(code_of(connect_ring(options)), absl::StatusCode::kInvalidArgument);
  options.rank = 1;
  options.rendezvous = "nowhere";
  EXPECT_THAT(text_of(connect_ring(options)), HasSubstr("host:port"));
  options.rendezvous = "127.0.0.1:0";
  EXPECT_THAT(text_of(connect_ring(options)), HasSubstr("port"));
}

}  // namespace
}  // namespace maypole::comm
