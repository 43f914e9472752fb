// SPDX-License-Identifier: Apache-2.0
#include "maypole/model/cluster.h"

#include "maypole/model/status_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace maypole::model {
namespace {

using ::testing::ElementsAre;

Server server(std::string id, double gpus, RackId rack = RackId()) {
  Server made{.id = std::move(id), .rack = rack, .capacity = Amounts(1)};
  made.capacity[ResourceId(0)] = gpus;
  return made;
}

Link link(std::string id, int from, int to, double rate = 0) { return {std::move(id), NodeId(from), NodeId(to), {rate}}; }

// Two racks under a core: nodes s0, s1 (rack a), s2 (rack b), then switches a, b, core.
ClusterParts two_racks() {
  ClusterParts parts;
  parts.resources = {"gpu"};
  parts.racks = {"a", "b"};
  parts.servers = {server("s0", 4, RackId(0)), server("s1", 2, RackId(0)), server("s2", 8, RackId(1))};
  parts.switches = {{"a", RackId(0)}, {"b", RackId(1)}, {"core", RackId()}};
  parts.links = {link("s0>a", 0, 3, 1e8), link("a>s0", 3, 0, 1e8), link("s1>a", 1, 3),   link("a>s1", 3, 1),   link("s2>b", 2, 4),
                 link("b>s2", 4, 2),      link("a>core", 3, 5),    link("core>a", 5, 3), link("b>core", 4, 5), link("core>b", 5, 4)};
  return parts;
}

TEST(ClusterTest, ServersComeBeforeSwitchesAmongTheNodes) {
  const Cluster cluster = Cluster::make(two_racks()).value();
  EXPECT_EQ(cluster.num_nodes(), 6U);
  EXPECT_EQ(cluster.node_name(NodeId(2)), "s2");
  EXPECT_EQ(cluster.node_name(NodeId(3)), "a");
  EXPECT_EQ(cluster.server_of(NodeId(2)), ServerId(2));
  EXPECT_FALSE(cluster.server_of(NodeId(3)).valid());
  EXPECT_THAT(cluster.out_links(NodeId(3)), ElementsAre(LinkId(1), LinkId(3), LinkId(6)));
  EXPECT_EQ(cluster.total_capacity()[ResourceId(0)], 14);
}

TEST(ClusterTest, NamesAreFoundAndUnknownOnesAreNone) {
  const Cluster cluster = Cluster::make(two_racks()).value();
  EXPECT_EQ(cluster.find_server("s1"), ServerId(1));
  EXPECT_EQ(cluster.find_server("a"), std::nullopt) << "a switch is no server";
  EXPECT_EQ(cluster.find_link("b>core"), LinkId(8));
  EXPECT_EQ(cluster.find_link("b<core"), std::nullopt);
  EXPECT_EQ(cluster.find_resource("gpu"), ResourceId(0));
  EXPECT_EQ(cluster.find_resource("tpu"), std::nullopt);
}

TEST(ClusterTest, TheAcceleratorIsTheGpuOrElseTheFirstResource) {
  ClusterParts parts;
  parts.resources = {"cpu", "gpu"};
  parts.servers = {{.id = "s0", .rack = RackId(), .capacity = Amounts(2, 1)}};
  EXPECT_EQ(Cluster::make(parts)->accelerator(), ResourceId(1));
  parts.resources = {"cpu", "npu"};
  EXPECT_EQ(Cluster::make(parts)->accelerator(), ResourceId(0));
}

TEST(ClusterTest, ATreeHasItsRootInTheMiddleAndAWayUpFromEveryNode) {
  const Cluster cluster = Cluster::make(two_racks()).value();
  ASSERT_TRUE(cluster.tree().has_value());
  const Tree& tree = *cluster.tree();
  EXPECT_FALSE(tree.parent[NodeId(5)].valid()) << "the core is the root";
  EXPECT_EQ(tree.parent[NodeId(0)], NodeId(3));
  EXPECT_EQ(tree.up[NodeId(0)], LinkId(0));
  EXPECT_EQ(tree.down[NodeId(0)], LinkId(1));
  EXPECT_EQ(tree.depth[NodeId(0)], 2);
  EXPECT_EQ(tree.depth[NodeId(4)], 1);
}

TEST(ClusterTest, ParallelLinksCyclesAndMissingLinksAreNoTree) {
  ClusterParts parallel = two_racks();
  parallel.links.push_back(link("again", 0, 3));
  EXPECT_FALSE(Cluster::make(parallel)->tree().has_value());

  // As many links as a tree has, but one pair of neighbours is joined twice and core>b is missing.
  ClusterParts doubled = two_racks();
  doubled.links.back() = link("again", 0, 3);
  doubled.links.push_back(link("s2>s0", 2, 0));
  doubled.links.erase(doubled.links.begin() + 8);
  EXPECT_THAT(Cluster::make(doubled), FailsWith("no path of links leads from server 's0' to server 's2'"));

  ClusterParts cycle;
  cycle.resources = {"gpu"};
  cycle.servers = {server("s0", 1), server("s1", 1), server("s2", 1)};
  cycle.links = {link("a", 0, 1), link("b", 1, 2), link("c", 2, 0), link("d", 1, 0)};
  const Cluster ring = Cluster::make(cycle).value();
  EXPECT_FALSE(ring.tree().has_value()) << "4 = 2 (3 - 1) links, and yet no tree";
}

TEST(ClusterTest, WithoutLinksNothingNeedsToBeReached) {
  ClusterParts parts = two_racks();
  parts.links.clear();
  const auto cluster = Cluster::make(parts);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_FALSE(cluster->tree().has_value());
}

TEST(ClusterTest, RefusesWhatIsNoCluster) {
  const auto after = [](auto change) {
    ClusterParts parts = two_racks();
    change(parts);
    return Cluster::make(std::move(parts));
  };
  using Parts = ClusterParts&;
  EXPECT_THAT(after([](Parts p) { p.servers.clear(); }), FailsWith("the cluster has no server: declare at least one"));
  EXPECT_THAT(after([](Parts p) { p.resources.clear(); }), FailsWith("no server has any capacity: give each what it holds"));
  EXPECT_THAT(after([](Parts p) { p.servers[1].id = ""; }), FailsWith("a server has an empty id"));
  EXPECT_THAT(after([](Parts p) { p.switches[1].id = ""; }), FailsWith("a switch has an empty id"));
  EXPECT_THAT(after([](Parts p) { p.links[1].id = ""; }), FailsWith("a link has an empty id"));
  EXPECT_THAT(after([](Parts p) { p.servers[1].id = "s0"; }), FailsWith("server 's0' is there twice"));
  EXPECT_THAT(after([](Parts p) { p.switches[1].id = "s0"; }), FailsWith("switch 's0' is there twice"));
  EXPECT_THAT(after([](Parts p) { p.links[1].id = "s0>a"; }), FailsWith("link 's0>a' is there twice"));
  EXPECT_THAT(after([](Parts p) {
                p.resources.emplace_back("gpu");
                for (Server& s : p.servers) {
                  s.capacity.push_back(1);
                }
              }),
              FailsWith("resource 'gpu' is there twice"));
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double wrong : {-1.0, infinity, std::nan("")}) {
    EXPECT_THAT(after([&](Parts p) { p.servers[2].capacity[ResourceId(0)] = wrong; }), FailsWith("server 's2' has capacity"));
    EXPECT_THAT(after([&](Parts p) { p.links[0].bandwidth.bytes_per_second = wrong; }), FailsWith("link 's0>a' has bandwidth"));
  }
  EXPECT_THAT(after([](Parts p) { p.links[0].to = NodeId(6); }), FailsWith("link 's0>a' names a node that does not exist"));
  EXPECT_THAT(after([](Parts p) { p.links[0].from = NodeId(); }), FailsWith("link 's0>a' names a node that does not exist"));
  EXPECT_THAT(after([](Parts p) { p.links[0].to = NodeId(0); }), FailsWith("link 's0>a' joins 's0' with itself"));
  EXPECT_THAT(after([](Parts p) { p.links.pop_back(); }), FailsWith("no path of links leads from server 's0' to server 's2'"));
  EXPECT_THAT(after([](Parts p) { p.links.erase(p.links.begin() + 8); }),
              FailsWith("no path of links leads from server 's2' to server 's0': join their racks by links in both directions"));
}

}  // namespace
}  // namespace maypole::model
