// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/cluster_file.h"
#include "maypole/formats/reading_testing.h"
#include "maypole/model/routes.h"

#include <set>

namespace maypole::formats {
namespace {

constexpr std::string_view kTopology = "ip,DSW,PSW,ASW\nh0,G6,P1,S1\nh1,G6,P1,S1\nh2,G6,P1,S2\nh3,G6,P2,S1\n";
const ClusterDefaults kDefaults{.gpus_per_server = 8, .server_bandwidth = {100}, .uplink = {40}};

TEST(ClusterCsvTest, AnAlibabaTopologyIsATreeOfThreeSwitches) {
  const auto cluster = parse_cluster(kTopology, "topo.csv", kDefaults);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->num_servers(), 4U);
  EXPECT_EQ(cluster->num_racks(), 3U) << "S1 under P1 and S1 under P2 are two";
  ASSERT_TRUE(cluster->tree().has_value());
  model::Routes routes(*cluster);
  const auto hops = [&](int from, int to) { return routes.path(model::ServerId(from), model::ServerId(to)).size(); };
  EXPECT_EQ(hops(0, 1), 2U);
  EXPECT_EQ(hops(0, 2), 4U);
  EXPECT_EQ(hops(0, 3), 6U);
  const auto rate = [&](const std::string& link) { return cluster->link(*cluster->find_link(link)).bandwidth.bytes_per_second; };
  EXPECT_EQ(rate("h0>G6/P1/S1"), 100);
  EXPECT_EQ(rate("G6/P1/S1>G6/P1"), 40);
  EXPECT_EQ(rate("G6>G6/P1"), 80) << "a switch above racks carries what they can send";
  EXPECT_EQ(rate("G6/P2>G6"), 40);
}

TEST(ClusterCsvTest, WhatATopologyLacksMustBeGiven) {
  EXPECT_THAT(parse_cluster(kTopology, "topo.csv"),
              FailsWith("topo.csv: a topology does not say how many GPUs a server has: give --gpus-per-server"));
  const auto without_links = parse_cluster(kTopology, "topo.csv", {.gpus_per_server = 8});
  ASSERT_TRUE(without_links.ok()) << without_links.status();
  EXPECT_EQ(without_links->num_links(), 0U);
}

TEST(ClusterCsvTest, ATiresiasClusterIsOneRow) {
  const auto cluster =
      parse_cluster("num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\r\n5,32,8,128,256\r\n", "n160g8.csv", kDefaults);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->num_servers(), 160U);
  EXPECT_EQ(cluster->num_racks(), 5U);
  EXPECT_EQ(cluster->total_capacity()[*cluster->find_resource("gpu")], 1280);
  EXPECT_EQ(cluster->server(model::ServerId(0)).capacity[*cluster->find_resource("memory")], 256e9);
  EXPECT_EQ(cluster->link(*cluster->find_link("r4>core")).bandwidth.bytes_per_second, 40);
}

TEST(ClusterCsvTest, NamesTheFileLineAndColumnOfWhatIsWrong) {
  EXPECT_THAT(parse_cluster("ip,DSW,PSW,ASW\nh0,G6,P1,S1\nh0,G6,P1,S2\n", "topo.csv", kDefaults),
              FailsWith("topo.csv:3: ip: 'h0' is there twice (first in line 2)"));
  EXPECT_THAT(parse_cluster("ip,DSW,PSW,ASW\nh0,G6,,S1\n", "topo.csv", kDefaults), FailsWith("topo.csv:2: PSW: is empty: give a name"));
  EXPECT_THAT(parse_cluster("ip,DSW,PSW,ASW\n", "topo.csv", kDefaults), FailsWith("topo.csv: the cluster has no server"));
  EXPECT_THAT(parse_cluster("ip,DSW,PSW,ASW\nG6,G6,P1,S1\n", "topo.csv", kDefaults),
              FailsWith("topo.csv:2: ip: 'G6' is also the name of a switch"));
  const std::string header = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n";
  EXPECT_THAT(parse_cluster(header, "n.csv"), FailsWith("n.csv: has 0 rows: a cluster is one row"));
  EXPECT_THAT(parse_cluster(header + "0,1,4,8,8\n", "n.csv"), FailsWith("n.csv:2: num_switch: '0' is not a whole number of at least 1"));
  EXPECT_THAT(parse_cluster(header + "1,1,0,8,8\n", "n.csv"), FailsWith("n.csv:2: num_gpu_p_node: '0' is not a finite number above 0"));
  EXPECT_THAT(parse_cluster(header + "10000,10000,8,8,8\n", "n.csv"), FailsWith("n.csv:2: num_node_p_switch: more than 100000 servers"));
  EXPECT_THAT(parse_cluster("a,b\n1,2\n", "n.csv"), FailsWith("n.csv:1: no cluster format has the columns a, b"));
}

TEST(ClusterCsvTest, TheRealTopologyHasItsHostsAndSwitches) {
  MAYPOLE_NEED_TRACE("alibaba-lingjun-2023/topo.csv");
  const auto cluster = read_cluster(traces() + "/alibaba-lingjun-2023/topo.csv", kDefaults);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->num_servers(), 847U);
  EXPECT_EQ(cluster->num_racks(), 119U);
  EXPECT_EQ(cluster->parts().switches.size(), 119U + 3 + 1);
  EXPECT_TRUE(cluster->tree().has_value());
}

TEST(ClusterCsvTest, TheRealTiresiasClustersLoad) {
  MAYPOLE_NEED_TRACE("tiresias/n160g8.csv");
  for (const auto& [name, gpus] : {std::pair("n160g8", 1280), std::pair("n1g4", 4), std::pair("n256g8", 2048), std::pair("n32g4", 128),
                                   std::pair("cluster_spec", 64)}) {
    const auto cluster = read_cluster(traces() + "/tiresias/" + name + ".csv", kDefaults);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    EXPECT_EQ(cluster->total_capacity()[cluster->accelerator()], gpus) << name;
  }
}

}  // namespace
}  // namespace maypole::formats
