// SPDX-License-Identifier: Apache-2.0
#include "maypole/model/routes.h"

#include "maypole/base/rng.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace maypole::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Cluster make(int servers, int switches, const std::vector<std::pair<int, int>>& links, const std::vector<int>& racks = {}) {
  ClusterParts parts;
  parts.resources = {"gpu"};
  for (int i = 0; i < servers; ++i) {
    parts.servers.push_back({fmt::format("s{}", i), racks.empty() ? RackId() : RackId(racks[i]), Amounts(1, 1)});
  }
  for (int i = 0; i < switches; ++i) {
    parts.switches.push_back({fmt::format("w{}", i), RackId()});
  }
  parts.racks = {"r0", "r1", "r2"};
  for (const auto& [from, to] : links) {
    parts.links.push_back({fmt::format("l{}", parts.links.size()), NodeId(from), NodeId(to), {}});
  }
  return Cluster::make(std::move(parts)).value();
}

std::vector<LinkId> ids(std::initializer_list<int> values) {
  std::vector<LinkId> links;
  for (const int value : values) {
    links.emplace_back(value);
  }
  return links;
}

TEST(RoutesTest, InATreeThePathGoesUpToTheFirstCommonSwitchAndDown) {
  // s0, s1 under 3; s2 under 4; both under 5.
  const Cluster cluster = make(3, 3, {{0, 3}, {3, 0}, {1, 3}, {3, 1}, {2, 4}, {4, 2}, {3, 5}, {5, 3}, {4, 5}, {5, 4}});
  ASSERT_TRUE(cluster.tree().has_value());
  Routes routes(cluster);
  EXPECT_EQ(routes.path(ServerId(0), ServerId(1)), ids({0, 3}));
  EXPECT_EQ(routes.path(ServerId(0), ServerId(2)), ids({0, 6, 9, 5}));
  EXPECT_EQ(routes.path(ServerId(2), ServerId(1)), ids({4, 8, 7, 3}));
  EXPECT_THAT(routes.path(ServerId(1), ServerId(1)), IsEmpty());
}

TEST(RoutesTest, TwoServersJoinedDirectlyAreATreeToo) {
  const Cluster cluster = make(2, 0, {{0, 1}, {1, 0}});
  ASSERT_TRUE(cluster.tree().has_value());
  EXPECT_THAT(Routes(cluster).path(ServerId(0), ServerId(1)), ElementsAre(LinkId(0)));
  EXPECT_THAT(Routes(cluster).path(ServerId(1), ServerId(0)), ElementsAre(LinkId(1)));
}

TEST(RoutesTest, WithoutLinksEveryPathIsEmpty) {
  const Cluster cluster = make(2, 0, {});
  EXPECT_THAT(Routes(cluster).path(ServerId(0), ServerId(1)), IsEmpty());
}

// The shortest path that is smallest link by link, by trying all paths of growing length.
std::vector<LinkId> by_trial(const Cluster& cluster, NodeId from, NodeId to) {
  std::vector<LinkId> path;
  const std::function<bool(NodeId, std::size_t)> extend = [&](NodeId here, std::size_t left) {
    if (left == 0) {
      return here == to;
    }
    for (const LinkId link : cluster.out_links(here)) {  // in order of ids: the first path found is the smallest
      path.push_back(link);
      if (extend(cluster.link(link).to, left - 1)) {
        return true;
      }
      path.pop_back();
    }
    return false;
  };
  for (std::size_t length = 1; length <= cluster.num_nodes(); ++length) {
    if (extend(from, length)) {
      return path;
    }
  }
  return {};
}

TEST(RoutesTest, ElsewhereItIsTheShortestPathWithTheSmallestLinksFirst) {
  base::Rng rng(11);
  for (int round = 0; round < 200; ++round) {
    const int servers = static_cast<int>(rng.uniform_int(2, 4));
    const int nodes = servers + static_cast<int>(rng.uniform_int(0, 3));
    std::vector<std::pair<int, int>> links;
    for (int node = 0; node < nodes; ++node) {  // a directed cycle through all, so that everybody reaches everybody
      links.emplace_back(node, (node + 1) % nodes);
    }
    for (std::int64_t extra = rng.uniform_int(1, 8); extra > 0; --extra) {
      const int from = static_cast<int>(rng.uniform_int(0, nodes - 1));
      const int to = static_cast<int>(rng.uniform_int(0, nodes - 1));
      if (from != to) {
        links.insert(links.begin() + rng.uniform_int(0, static_cast<std::int64_t>(links.size())), {from, to});
      }
    }
    const Cluster cluster = make(servers, nodes - servers, links);
    Routes routes(cluster);
    for (int from = 0; from < servers; ++from) {
      for (int to = 0; to < servers; ++to) {
        if (from != to && !cluster.tree()) {
          EXPECT_EQ(routes.path(ServerId(from), ServerId(to)), by_trial(cluster, NodeId(from), NodeId(to))) << "round " << round;
        }
      }
    }
  }
}

TEST(RoutesTest, ARingCrossesRacksNeverOrAtLeastTwice) {
  const Cluster cluster = make(4, 0, {}, {0, 0, 1, 2});
  const auto crossings = [&](std::initializer_list<int> ring) {
    std::vector<ServerId> servers;
    for (const int server : ring) {
      servers.emplace_back(server);
    }
    return rack_crossings(cluster, servers);
  };
  EXPECT_EQ(crossings({}), 0);
  EXPECT_EQ(crossings({0}), 0);
  EXPECT_EQ(crossings({0, 1, 0}), 0);
  EXPECT_EQ(crossings({0, 2}), 2);
  EXPECT_EQ(crossings({0, 1, 2}), 2);
  EXPECT_EQ(crossings({0, 2, 1, 2}), 4) << "the order matters";
  EXPECT_EQ(crossings({0, 2, 3}), 3);
}

}  // namespace
}  // namespace maypole::model
