// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/connections.h"

#include "maypole/base/status.h"
#include "maypole/net/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <thread>

namespace maypole::comm {
namespace {

using ::testing::SizeIs;

base::TimePoint later() { return std::chrono::steady_clock::now() + std::chrono::seconds(30); }

/// A listener on a port of the kernel's choice, as a launcher would hand it to rank 0.
base::Fd listen_on(const std::string& host) { return *net::listen_tcp(*net::SocketAddress::parse(host, 0)); }

ConnectOptions options_for(const base::Fd& listener, int rank, int num_ranks) {
  ConnectOptions options;
  options.rank = rank;
  options.num_ranks = num_ranks;
  options.job_id = "digits";
  options.secret = "a secret";
  options.rendezvous = net::local_address_of(listener.get()).to_string();
  options.rendezvous_listener = rank == 0 ? listener.get() : -1;
  options.deadline = std::chrono::seconds(30);
  return options;
}

/// Forms a ring with one thread a rank; the threads end before this returns.
std::vector<absl::StatusOr<Connections>> form(const std::vector<ConnectOptions>& all) {
  std::vector<absl::StatusOr<Connections>> results(all.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = connect_ring(all[i]); });
  }
  threads.clear();
  return results;
}

std::vector<ConnectOptions> ring_options(const base::Fd& listener, int num_ranks) {
  std::vector<ConnectOptions> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    all.push_back(options_for(listener, rank, num_ranks));
  }
  return all;
}

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
    EXPECT_THAT(result->exchange, SizeIs(level));
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

}  // namespace
}  // namespace maypole::comm
