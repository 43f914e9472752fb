// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/network_model.h"

#include "maypole/model/status_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace maypole::overlap {
namespace {

using model::FailsWith;

Network plain(Collective collective, std::size_t workers_per_host = 1) {
  Network network;
  network.name = "test";
  network.between_hosts = {1e-4, 1e-9};
  network.within_host = {1e-6, 1e-10};
  network.workers_per_host = workers_per_host;
  network.collective = collective;
  return network;
}

TEST(NetworkModel, RingPaysOneStartUpAHopAndMovesEveryShareButItsOwn) {
  const PhaseCost cost = phase_cost(plain(Collective::kRing), 8);
  EXPECT_DOUBLE_EQ(cost.start_s, 7e-4);
  EXPECT_DOUBLE_EQ(cost(8e6), 7e-4 + 7e-3);
}

TEST(NetworkModel, HalvingDoublingPaysTheLogarithmOfStartUps) {
  EXPECT_DOUBLE_EQ(phase_cost(plain(Collective::kHalvingDoubling), 64).start_s, 6e-4);
  EXPECT_DOUBLE_EQ(phase_cost(plain(Collective::kHalvingDoubling), 64).s_per_byte, phase_cost(plain(Collective::kRing), 64).s_per_byte);
  // Six workers: two fold into four first.
  EXPECT_DOUBLE_EQ(phase_cost(plain(Collective::kHalvingDoubling), 6)(4e6), 3e-4 + 3e-3 + 4e-3);
}

TEST(NetworkModel, HierarchicalSendsAShareOfAHostBetweenHosts) {
  // Four hosts of four: (4-1)(1e-6 + n 1e-10 / 4) + (4-1)(1e-4 + n/4 1e-9 / 4).
  EXPECT_NEAR(phase_cost(plain(Collective::kHierarchical, 4), 16)(16e6), 3 * (1e-6 + 4e-4) + 3 * (1e-4 + 1e-3), 1e-12);
}

TEST(NetworkModel, AWorldOnOneHostUsesItsEdges) {
  EXPECT_DOUBLE_EQ(phase_cost(plain(Collective::kRing, 4), 4).start_s, 3e-6);
  EXPECT_DOUBLE_EQ(phase_cost(plain(Collective::kRing, 4), 5).start_s, 4e-4);
}

TEST(NetworkModel, AWorldOfOneExchangesNothing) {
  for (const Collective collective : {Collective::kRing, Collective::kHalvingDoubling, Collective::kHierarchical}) {
    EXPECT_EQ(phase_cost(plain(collective, 4), 1)(1e9), 0);
  }
}

TEST(NetworkModel, PaperConstantsAreTheAllReduceOf64Workers) {
  // ResNet-50 (102.2 MB) in one message: 7.04 ms + 102.2e6 x 9.64e-10 s on 10GbE, 0.81 ms + 102.2e6 x 5.89e-10 s on InfiniBand.
  EXPECT_NEAR(2 * phase_cost(named_network("paper-10GbE").value(), 64)(102.2e6), 0.1055, 5e-4);
  EXPECT_NEAR(2 * phase_cost(named_network("paper-100GbIB").value(), 64)(102.2e6), 0.061, 5e-4);
}

TEST(NetworkModel, NamesAreNominalRates) {
  EXPECT_DOUBLE_EQ(named_network("10GbE").value().between_hosts.beta_s_per_byte, 8 / 0.95e10);
  EXPECT_DOUBLE_EQ(named_network("2.5Gbps").value().between_hosts.beta_s_per_byte, 8 / (0.95 * 2.5e9));
  for (const std::string& name : network_names()) {
    EXPECT_TRUE(check_network(named_network(name).value()).ok()) << name;
  }
}

TEST(NetworkModel, UnknownNamesAndNoBandwidthAreErrorsInOneLine) {
  EXPECT_THAT(named_network("token-ring"), FailsWith("network 'token-ring' is unknown: take one of 1GbE, 10GbE"));
  EXPECT_THAT(named_network("0Gbps"), FailsWith("must be above zero"));
  Network network = plain(Collective::kRing);
  network.between_hosts.beta_s_per_byte = std::numeric_limits<double>::infinity();
  EXPECT_THAT(check_network(network), FailsWith("a bandwidth of zero moves nothing"));
  EXPECT_THAT(parse_collective("star"), FailsWith("ring, halving-doubling, hierarchical"));
}

TEST(NetworkModel, ContentionIsOfBytesBetweenHosts) {
  Network network = named_network("10GbE").value();
  network.contention_s_per_byte = 4e-9;
  network.workers_per_host = 4;
  EXPECT_EQ(contention_s_per_byte(network, 4), 0);
  EXPECT_EQ(contention_s_per_byte(network, 5), 4e-9);
}

}  // namespace
}  // namespace maypole::overlap
