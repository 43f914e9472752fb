// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/ring_table.h"

#include "maypole/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace maypole::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Worker worker_of(int rank, int num_ranks) {
  return {.rank = rank,
          .num_ranks = num_ranks,
          .job = "digits",
          .epoch = 3,
          .host_entry = "",
          .host_name = fmt::format("node{}", rank),
          .machine = "boot/1",
          .address = fmt::format("10.0.0.{}", rank + 1),
          .port = static_cast<std::uint16_t>(5000 + rank),
          .local_name = fmt::format("name{}", rank),
          .transport = TransportChoice::kAuto,
          .edge_bandwidth = {},
          .patience = std::chrono::seconds(60)};
}

RingTable table_of(int num_ranks) {
  RingTable table;
  for (int rank = 0; rank < num_ranks; ++rank) {
    table.push_back(worker_of(rank, num_ranks));
  }
  return table;
}

TEST(RingTableTest, MessagesSurviveTheWire) {
  RendezvousMessage message{.kind = RendezvousMessage::Kind::kTable, .status = {}, .workers = table_of(5)};
  message.workers[2].edge_bandwidth = base::Bandwidth{1.5e6};
  message.workers[3].transport = TransportChoice::kTcp;
  const auto decoded = decode(encode(message));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->kind, message.kind);
  EXPECT_EQ(decoded->workers, message.workers);

  const auto error = decode(encode(
      {.kind = RendezvousMessage::Kind::kError, .status = base::error(absl::StatusCode::kUnavailable, "rank 3 left"), .workers = {}}));
  ASSERT_TRUE(error.ok()) << error.status();
  EXPECT_EQ(error->status, base::error(absl::StatusCode::kUnavailable, "rank 3 left"));
}

TEST(RingTableTest, CutOrSenselessMessagesAreRefused) {
  const auto bytes = encode({.kind = RendezvousMessage::Kind::kTable, .status = {}, .workers = table_of(2)});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode(std::span(bytes).first(size)).ok()) << size;
  }
  Worker beyond = worker_of(0, 2);
  beyond.rank = 2;
  EXPECT_FALSE(decode(encode({.kind = RendezvousMessage::Kind::kWorker, .status = {}, .workers = {beyond}})).ok());
  Worker endless = worker_of(0, 2);
  endless.edge_bandwidth = base::Bandwidth{-1};
  EXPECT_FALSE(decode(encode({.kind = RendezvousMessage::Kind::kWorker, .status = {}, .workers = {endless}})).ok());
  // An error that says OK, and a table that says otherwise.
  EXPECT_FALSE(decode(encode({.kind = RendezvousMessage::Kind::kError, .status = {}, .workers = {}})).ok());
  EXPECT_FALSE(decode(encode({.kind = RendezvousMessage::Kind::kFormed, .status = absl::InternalError("x"), .workers = {}})).ok());
}

TEST(RingTableTest, BothEndsPlanTheSameSocketsAndOneOfThemConnects) {
  for (int num_ranks = 2; num_ranks <= 17; ++num_ranks) {
    RingTable table = table_of(num_ranks);
    for (Worker& worker : table) {
      worker.host_entry = worker.rank % 3 == 0 ? "a" : "b";
      worker.edge_bandwidth.bytes_per_second = worker.rank % 4 == 1 ? 1e6 : 0;
    }
    for (int rank = 0; rank < num_ranks; ++rank) {
      for (const PlannedLink& link : plan_links(table, rank)) {
        const auto opposite = link.kind == LinkKind::kNext       ? LinkKind::kPrevious
                              : link.kind == LinkKind::kPrevious ? LinkKind::kNext
                                                                 : LinkKind::kExchange;
        const auto of_peer = plan_links(table, link.peer);
        const auto found = std::ranges::find_if(
            of_peer, [&](const PlannedLink& other) { return other.kind == opposite && other.level == link.level && other.peer == rank; });
        ASSERT_NE(found, of_peer.end()) << "ranks " << rank << " and " << link.peer << " of " << num_ranks;
        EXPECT_NE(found->initiates, link.initiates);
        EXPECT_EQ(found->shared_memory, link.shared_memory);
        EXPECT_EQ(found->lanes(), link.lanes());
      }
    }
  }
}

TEST(RingTableTest, RanksAboveTheLargestPowerOfTwoExchangeWithTheirHostBelow) {
  const auto exchange_peers = [](int rank) {
    std::vector<int> peers;
    for (const PlannedLink& link : plan_links(table_of(6), rank)) {
      if (link.kind == LinkKind::kExchange) {
        peers.push_back(link.peer);
      }
    }
    return peers;
  };
  EXPECT_EQ(exchange_peers(0), (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(exchange_peers(3), (std::vector<int>{2, 1}));
  EXPECT_EQ(exchange_peers(4), (std::vector<int>{0}));
  EXPECT_EQ(exchange_peers(5), (std::vector<int>{1}));
}

TEST(RingTableTest, OtherMachinesAndOtherHostEntriesShareNoMemory) {
  RingTable table = table_of(2);
  EXPECT_TRUE(plan_links(table, 0)[0].shared_memory);
  table[1].machine = "boot/2";
  EXPECT_FALSE(plan_links(table, 0)[0].shared_memory);
  table = table_of(2);
  table[0].host_entry = "a";
  table[1].host_entry = "b";
  EXPECT_FALSE(plan_links(table, 0)[0].shared_memory);
  table[0].transport = table[1].transport = TransportChoice::kShm;
  EXPECT_TRUE(plan_links(table, 0)[0].shared_memory);
}

TEST(RingTableTest, ALoopbackAddressIsCaughtOnlyWhereAnotherMachineNeedsIt) {
  RingTable table = table_of(3);
  table[0].address = "127.0.1.1";
  EXPECT_TRUE(check_table(table).ok());
  table[2].machine = "boot/2";
  const absl::Status status = check_table(table);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::message(status), AllOf(HasSubstr("rank 0 on node0"), HasSubstr("127.0.1.1:5000"), HasSubstr("rank 2"),
                                           HasSubstr("node2"), HasSubstr("--interface")));
}

TEST(RingTableTest, SharedMemoryBetweenMachinesIsRefused) {
  RingTable table = table_of(2);
  table[0].transport = table[1].transport = TransportChoice::kShm;
  EXPECT_TRUE(check_table(table).ok());
  table[1].machine = "boot/2";
  EXPECT_THAT(base::message(check_table(table)), AllOf(HasSubstr("node0"), HasSubstr("node1"), HasSubstr("transport auto")));
}

TEST(RingTableTest, AnAddressThatIsNoneIsRefused) {
  RingTable table = table_of(2);
  table[1].address = "node1";
  EXPECT_THAT(base::message(check_table(table)), AllOf(HasSubstr("rank 1"), HasSubstr("'node1'")));
}

}  // namespace
}  // namespace maypole::comm
