// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/connections.h"

#include "maypole/comm/connections_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace maypole::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

std::byte label(int from, int lane) { return static_cast<std::byte>(from * kNumLanes + lane); }

/// Sends a byte that names sender and lane on each socket of `out`, and expects the like on each of `in`, which comes from `peer`.
void send_labels(const Link& out, int self) {
  for (int lane = 0; lane < kNumLanes; ++lane) {
    const base::Fd& fd = out.sockets[static_cast<std::size_t>(lane)];
    if (fd.valid()) {
      const std::byte byte = label(self, lane);
      EXPECT_TRUE(net::send_all(fd.get(), {&byte, 1}, later(), "peer").ok());
    }
  }
}

void expect_labels(const Link& in) {
  for (int lane = 0; lane < kNumLanes; ++lane) {
    const base::Fd& fd = in.sockets[static_cast<std::size_t>(lane)];
    if (fd.valid()) {
      std::byte byte{0xff};
      EXPECT_TRUE(net::receive_all(fd.get(), {&byte, 1}, later(), "peer").ok());
      EXPECT_EQ(byte, label(in.peer, lane)) << "lane " << lane << " from rank " << in.peer;
    }
  }
}

int num_sockets(const Link& link) {
  return static_cast<int>(std::ranges::count_if(link.sockets, [](const base::Fd& fd) { return fd.valid(); }));
}

bool has(const Link& link, Lane lane) { return link.sockets[static_cast<std::size_t>(lane)].valid(); }

/// Checks the whole ring by what arrives where.
void expect_ring(const std::vector<absl::StatusOr<Connections>>& results, bool shared_memory) {
  const int num_ranks = static_cast<int>(results.size());
  int exchanging = 1;
  while (exchanging * 2 <= num_ranks) {
    exchanging *= 2;
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto& result = results[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(result.ok()) << "rank " << rank << ": " << result.status();
    EXPECT_THAT(result->ring.members, SizeIs(num_ranks));
    EXPECT_EQ(result->ring.members, results[0]->ring.members);
    ASSERT_THAT(result->next, SizeIs(1));
    ASSERT_THAT(result->previous, SizeIs(1));
    EXPECT_EQ(result->next[0].peer, (rank + 1) % num_ranks);
    EXPECT_EQ(result->previous[0].peer, (rank + num_ranks - 1) % num_ranks);
    for (const Link* link : {&result->next[0], &result->previous[0]}) {
      EXPECT_EQ(link->shared_memory, shared_memory);
      EXPECT_EQ(num_sockets(*link), shared_memory ? 1 : kNumLanes);
      EXPECT_TRUE(has(*link, Lane::kControl));
      EXPECT_FALSE(link->local_address.empty());
      EXPECT_FALSE(link->remote_address.empty());
    }
    int level = 0;
    for (; (1 << level) < exchanging && rank < exchanging; ++level) {
      ASSERT_GT(result->exchange.size(), static_cast<std::size_t>(level));
      const Link& link = result->exchange[static_cast<std::size_t>(level)];
      EXPECT_EQ(link.peer, rank ^ (1 << level));
      EXPECT_EQ(num_sockets(link), 1);
      EXPECT_TRUE(has(link, shared_memory ? Lane::kControl : Lane::kUser));
    }
    if ((rank ^ exchanging) < num_ranks) {  // a rank above the largest power of two and its host below
      ASSERT_THAT(result->exchange, SizeIs(level + 1));
      EXPECT_EQ(result->exchange.back().peer, rank ^ exchanging);
    } else {
      EXPECT_THAT(result->exchange, SizeIs(level));
    }
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    send_labels(results[static_cast<std::size_t>(rank)]->next[0], rank);
    for (const Link& link : results[static_cast<std::size_t>(rank)]->exchange) {
      send_labels(link, rank);
    }
  }
  for (const auto& result : results) {
    expect_labels(result->previous[0]);
    for (const Link& link : result->exchange) {
      expect_labels(link);
    }
  }
  // Control is used in both directions.
  for (int rank = 0; rank < num_ranks; ++rank) {
    send_labels(results[static_cast<std::size_t>(rank)]->previous[0], rank);
  }
  for (const auto& result : results) {
    expect_labels(result->next[0]);
  }
}

struct RingShape {
  int num_ranks;
  const char* host;
  TransportChoice transport;
};

class RingShapeTest : public ::testing::TestWithParam<RingShape> {};

TEST_P(RingShapeTest, EveryRankIsLinkedToItsNeighboursAndExchangePeersOnTheRightLanes) {
  const RingShape shape = GetParam();
  const base::Fd listener = listen_on(shape.host);
  auto all = ring_options(listener, shape.num_ranks);
  for (ConnectOptions& options : all) {
    options.transport = shape.transport;
  }
  expect_ring(form(all), shape.transport != TransportChoice::kTcp);
}

std::vector<RingShape> all_shapes() {
  std::vector<RingShape> shapes;
  for (const int num_ranks : {2, 3, 4, 5, 8}) {
    for (const char* host : {"127.0.0.1", "::1"}) {
      shapes.push_back({num_ranks, host, TransportChoice::kTcp});
    }
    shapes.push_back({num_ranks, "127.0.0.1", TransportChoice::kAuto});
    shapes.push_back({num_ranks, "::1", TransportChoice::kShm});
  }
  return shapes;
}

std::string shape_name(const ::testing::TestParamInfo<RingShape>& info) {
  static constexpr const char* kNames[] = {"Auto", "Shm", "Tcp"};
  return fmt::format("{}Ranks{}{}", info.param.num_ranks, std::string(info.param.host) == "::1" ? "V6" : "V4",
                     kNames[static_cast<int>(info.param.transport)]);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RingShapeTest, ::testing::ValuesIn(all_shapes()), shape_name);

TEST(ConnectionsTest, AWorldOfOneHasNoLinks) {
  ConnectOptions options;
  options.job_id = "alone";
  const auto result = connect_ring(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->ring.members, SizeIs(1));
  EXPECT_TRUE(result->next.empty() && result->previous.empty() && result->exchange.empty());
}

TEST(ConnectionsTest, APacedEdgeIsTcpAndSoIsItsExchangeLink) {
  const base::Fd listener = listen_on("127.0.0.1");
  auto all = ring_options(listener, 2);
  all[0].edge_bandwidth = base::Bandwidth{1e6};
  const auto results = form(all);
  ASSERT_TRUE(results[0].ok()) << results[0].status();
  EXPECT_FALSE(results[0]->next[0].shared_memory);
  EXPECT_TRUE(results[0]->previous[0].shared_memory);
  EXPECT_FALSE(results[0]->exchange[0].shared_memory);
  EXPECT_THAT(results[0]->ring.edge_bandwidth, ElementsAre(base::Bandwidth{1e6}, base::Bandwidth{}));
}

TEST(ConnectionsTest, WorkersOfDifferentHostEntriesAreLinkedByTcp) {
  const base::Fd listener = listen_on("127.0.0.1");
  auto all = ring_options(listener, 4);
  for (ConnectOptions& options : all) {
    options.host = options.rank < 2 ? "a" : "b";
  }
  const auto results = form(all);
  for (const auto& result : results) {
    ASSERT_TRUE(result.ok()) << result.status();
  }
  EXPECT_TRUE(results[0]->next[0].shared_memory);
  EXPECT_FALSE(results[1]->next[0].shared_memory);
  EXPECT_TRUE(results[2]->next[0].shared_memory);
  EXPECT_FALSE(results[3]->next[0].shared_memory);
  EXPECT_EQ(results[0]->ring.members[3].host, "b");
}

TEST(ConnectionsTest, RankZeroBindsTheRendezvousItselfWhenNoneIsInherited) {
  base::Fd listener = listen_on("127.0.0.1");
  auto all = ring_options(listener, 3);
  all[0].rendezvous_listener = -1;
  listener.reset();  // the port is free again
  expect_ring(form(all), true);
}

TEST(ConnectionsTest, ANameServesAsRendezvous) {
  base::Fd listener = listen_on("127.0.0.1");
  const std::uint16_t port = net::local_address_of(listener.get()).port();
  auto all = ring_options(listener, 2);
  for (ConnectOptions& options : all) {
    options.rendezvous = fmt::format("localhost:{}", port);
    options.rendezvous_listener = -1;
  }
  listener.reset();
  expect_ring(form(all), true);
}

TEST(ConnectionsTest, AListenerOnAllAddressesLearnsWhereItWasReached) {
  const base::Fd listener = listen_on("0.0.0.0");
  auto all = ring_options(listener, 3);
  for (ConnectOptions& options : all) {
    options.rendezvous = fmt::format("127.0.0.1:{}", net::local_address_of(listener.get()).port());
    options.transport = TransportChoice::kTcp;
  }
  const auto results = form(all);
  expect_ring(results, false);
  EXPECT_EQ(results[1]->ring.members[0].address, "127.0.0.1");
}

TEST(ConnectionsTest, TheInterfaceDecidesTheAddress) {
  const base::Fd listener = listen_on("127.0.0.1");
  auto all = ring_options(listener, 2);
  for (ConnectOptions& options : all) {
    options.interface = "lo";
    options.transport = TransportChoice::kTcp;
  }
  const auto results = form(all);
  expect_ring(results, false);
  EXPECT_EQ(results[0]->ring.members[1].address, "127.0.0.1");
}

TEST(ConnectionsTest, OneListenerServesRingAfterRing) {
  const base::Fd listener = listen_on("127.0.0.1");
  auto all = ring_options(listener, 3);
  std::vector<std::jthread> threads;
  std::vector<std::vector<absl::StatusOr<Connections>>> rings(4);
  for (auto& ring : rings) {
    ring.resize(3);
  }
  for (std::size_t rank = 0; rank < 3; ++rank) {
    // No rank waits for the others between rings, so that one may be at the next rendezvous already.
    threads.emplace_back([&, rank] {
      for (std::size_t i = 0; i < rings.size(); ++i) {
        ConnectOptions options = all[rank];
        options.job_id += fmt::format("/{}", i);
        rings[i][rank] = connect_ring(options);
      }
    });
  }
  threads.clear();
  for (const auto& ring : rings) {
    expect_ring(ring, true);
  }
}

}  // namespace
}  // namespace maypole::comm
