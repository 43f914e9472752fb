// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/cluster_file.h"

#include "maypole/formats/reading_testing.h"
#include "maypole/model/routes.h"

namespace maypole::formats {
namespace {

using ::testing::ElementsAre;

constexpr std::string_view kCluster = R"(version: 1
racks:
  - {id: r0, uplink: 10Gbps}
  - {id: r1, uplink: 10Gbps}
servers:
  - {id: s0, rack: r0, capacity: {gpu: 4, cpu: 16, memory: 64GB}, bandwidth: 1Gbps}
  - {id: s1, rack: r1, capacity: {gpu: 8}, bandwidth: 2Gbps, launcher: "ssh {host} {command}"}
links:
  - {id: s0-s1, from: s0, to: s1, bandwidth: 5Gbps}
)";

absl::StatusOr<model::Cluster> reading(std::string_view from, std::string_view to) {
  std::string text(kCluster);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return parse_cluster(text.replace(at, from.size(), to), "cluster.yaml");
}

std::vector<std::string> link_ids(const model::Cluster& cluster) {
  std::vector<std::string> ids;
  for (const model::Link& link : cluster.parts().links) {
    ids.push_back(link.id);
  }
  return ids;
}

double rate(const model::Cluster& cluster, const std::string& link) {
  return cluster.link(*cluster.find_link(link)).bandwidth.bytes_per_second;
}

TEST(ClusterFileTest, MakesALinkEachWayBetweenServerRackAndCore) {
  const auto cluster = parse_cluster(kCluster, "cluster.yaml");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_THAT(link_ids(*cluster), ElementsAre("s0>r0", "r0>s0", "s1>r1", "r1>s1", "r0>core", "core>r0", "r1>core", "core>r1", "s0-s1"));
  EXPECT_EQ(rate(*cluster, "s0>r0"), 1e9 / 8 * 0.95) << "what people write is nominal";
  EXPECT_EQ(rate(*cluster, "core>r1"), 1e10 / 8 * 0.95);
  EXPECT_EQ(rate(*cluster, "s0-s1"), 5e9 / 8 * 0.95);
  EXPECT_EQ(cluster->server(model::ServerId(0)).capacity[*cluster->find_resource("memory")], 64e9);
  EXPECT_EQ(cluster->server(model::ServerId(1)).capacity[*cluster->find_resource("cpu")], 0);
  EXPECT_EQ(parse_launchers(kCluster, "cluster.yaml").value(), (Launchers{{"s1", "ssh {host} {command}"}}));
}

TEST(ClusterFileTest, PayloadRatesAreTakenAsTheyAre) {
  const auto cluster = reading("version: 1", "version: 1\npayload: true");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_DOUBLE_EQ(rate(*cluster, "s0>r0"), 1e9 / 8);
}

TEST(ClusterFileTest, WithoutAnyBandwidthNoLinksAreModelled) {
  const auto cluster = parse_cluster(
      "version: 1\nracks: [{id: r0}]\nservers: [{id: s0, rack: r0, capacity: {gpu: 1}}, {id: s1, capacity: {gpu: 1}}]", "c.yaml");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->num_links(), 0U);
  EXPECT_EQ(cluster->num_racks(), 1U);
}

TEST(ClusterFileTest, RacksMayHangUnderOtherRacks) {
  const auto cluster = parse_cluster(R"(version: 1
racks: [{id: r0, parent: pod, uplink: 1Gbps}, {id: r1, parent: pod, uplink: 1Gbps}, {id: pod, uplink: 1Gbps}, {id: r2}]
servers: [{id: s0, rack: r0, capacity: {gpu: 1}}, {id: s1, rack: r1, capacity: {gpu: 1}}, {id: s2, rack: r2, capacity: {gpu: 1}}]
)",
                                     "c.yaml");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_TRUE(cluster->tree().has_value());
  model::Routes routes(*cluster);
  EXPECT_EQ(routes.path(model::ServerId(0), model::ServerId(1)).size(), 4U) << "through the pod";
  EXPECT_EQ(routes.path(model::ServerId(0), model::ServerId(2)).size(), 5U) << "through the core";
}

TEST(ClusterFileTest, GeneratorsMakeTreesOfTheAskedShape) {
  const auto racks = parse_cluster(
      "version: 1\ngenerate: {kind: racks, racks: 4, servers_per_rack: 40, capacity: {gpu: 8}, bandwidth: 10Gbps, oversubscription: 8}\n",
      "c.yaml");
  ASSERT_TRUE(racks.ok()) << racks.status();
  EXPECT_EQ(racks->num_servers(), 160U);
  EXPECT_EQ(racks->num_racks(), 4U);
  EXPECT_EQ(racks->num_links(), 2U * (160 + 4));
  EXPECT_DOUBLE_EQ(rate(*racks, "r3>core"), 5 * rate(*racks, "s0>r0")) << "40 servers at 8:1";
  const auto tree = parse_cluster(
      "version: 1\ngenerate: {kind: fat-tree, racks: 4, servers_per_rack: 2, capacity: {gpu: 8}, bandwidth: 10Gbps}\n", "c.yaml");
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_DOUBLE_EQ(rate(*tree, "r0>p0"), 2 * rate(*tree, "s0>r0"));
  EXPECT_DOUBLE_EQ(rate(*tree, "p1>core"), 4 * rate(*tree, "s0>r0")) << "two racks a pod, nothing oversubscribed";
}

TEST(ClusterFileTest, NamesTheFileLineAndFieldOfWhatIsWrong) {
  EXPECT_THAT(reading("version: 1\n", ""), FailsWith("cluster.yaml:1: version: is missing"));
  EXPECT_THAT(reading("version: 1", "version: 2"), FailsWith("cluster.yaml:1: version: this program reads version 1, the file has 2"));
  EXPECT_THAT(reading("bandwidth: 2Gbps", "bandwidth: 2Gb"), FailsWith("cluster.yaml:7: servers[1].bandwidth: '2Gb' is not a bandwidth"));
  EXPECT_THAT(reading("bandwidth: 2Gbps", "bandwidth: -2Gbps"),
              FailsWith("cluster.yaml:7: servers[1].bandwidth: '-2Gbps' is not a bandwidth"));
  EXPECT_THAT(reading("bandwidth: 2Gbps", "bandwidth: 0Gbps"),
              FailsWith("cluster.yaml:7: servers[1].bandwidth: bandwidth '0Gbps' must be above zero"));
  EXPECT_THAT(reading("bandwidth: 2Gbps", "bandwidth: 2"),
              FailsWith("cluster.yaml:7: servers[1].bandwidth: '2' has no unit: write a rate such as 10Gbps"));
  EXPECT_THAT(reading("id: r1", "id: r0"), FailsWith("cluster.yaml:4: racks[1].id: 'r0' is there twice (first in line 3)"));
  EXPECT_THAT(reading("id: s1", "id: s0"), FailsWith("cluster.yaml:7: servers[1].id: 's0' is there twice (first in line 6)"));
  EXPECT_THAT(reading("id: s1", "id: r0"), FailsWith("cluster.yaml:7: servers[1].id: 'r0' is there twice (first in line 3)"));
  EXPECT_THAT(reading("id: s1", "id: core"), FailsWith("cluster.yaml:7: servers[1].id: 'core' is the switch above all racks"));
  EXPECT_THAT(reading("rack: r1", "rack: r9"),
              FailsWith("cluster.yaml:7: servers[1].rack: there is no rack 'r9': declare it under racks, or name one of r0, r1"));
  EXPECT_THAT(reading("gpu: 8", "gpu: -8"), FailsWith("cluster.yaml:7: servers[1].capacity.gpu: '-8' is no amount"));
  EXPECT_THAT(reading("capacity: {gpu: 8}, ", ""), FailsWith("cluster.yaml:7: servers[1].capacity: is missing: give a map"));
  EXPECT_THAT(
      reading("launcher:", "lancher:"),
      FailsWith("cluster.yaml:7: servers[1].lancher: is no field of this format: it knows bandwidth, capacity, id, launcher, rack"));
  EXPECT_THAT(reading("from: s0", "from: s7"), FailsWith("cluster.yaml:9: links[0].from: there is no server or rack 's7'"));
  EXPECT_THAT(reading("to: s1", "to: s0"), FailsWith("cluster.yaml:9: links[0].to: the link joins 's0' with itself"));
  EXPECT_THAT(reading("id: s0-s1", "id: s0>r0"), FailsWith("cluster.yaml:9: links[0].id: link 's0>r0' is there twice"));
  EXPECT_THAT(reading("{id: r1, uplink: 10Gbps}", "{id: r1, parent: r1}"),
              FailsWith("cluster.yaml:4: racks[1].parent: leads round in a circle (r1 > r1)"));
  EXPECT_THAT(reading("{id: r1, uplink: 10Gbps}", "{id: r1, parent: r7}"),
              FailsWith("cluster.yaml:4: racks[1].parent: there is no rack 'r7'"));
  EXPECT_THAT(reading("links:", "servers:"), FailsWith("the field 'servers' is there twice"));
  EXPECT_THAT(reading("links:", "generate: {kind: racks}\nlinks:"), FailsWith("cluster.yaml:5: servers: stands beside generate"));
  EXPECT_THAT(reading("servers:", "servers: ["), FailsWith("cluster.yaml:"));
  EXPECT_THAT(parse_cluster("", "cluster.yaml"), FailsWith("cluster.yaml: is empty: give one document"));
  EXPECT_THAT(parse_cluster("version: 1\nservers: []\n", "cluster.yaml"), FailsWith("cluster.yaml: the cluster has no server"));
  EXPECT_THAT(parse_cluster("version: 1\n", "cluster.yaml"), FailsWith("cluster.yaml:1: servers: is missing: give a list"));
}

TEST(ClusterFileTest, GeneratorsRefuseWhatTheyCannotMake) {
  const auto generating = [](std::string_view fields) {
    return parse_cluster("version: 1\ngenerate: {capacity: {gpu: 1}, " + std::string(fields) + "}\n", "c.yaml");
  };
  EXPECT_THAT(generating("kind: torus, racks: 1, servers_per_rack: 1"),
              FailsWith("c.yaml:2: generate.kind: there is no generator 'torus'"));
  EXPECT_THAT(generating("kind: racks, racks: 0, servers_per_rack: 1"),
              FailsWith("c.yaml:2: generate.racks: '0' is not a whole number from 1"));
  EXPECT_THAT(generating("kind: racks, racks: 1000, servers_per_rack: 1000"), FailsWith("c.yaml:2: generate: makes 1000000 servers"));
  EXPECT_THAT(generating("kind: racks, racks: 1, servers_per_rack: 1, oversubscription: 0"),
              FailsWith("c.yaml:2: generate.oversubscription: must be above 0"));
}

TEST(ClusterFileTest, AliasesAreWhatTheyRepeat) {
  const auto cluster = parse_cluster("version: 1\nservers:\n - {id: s0, capacity: &c {gpu: 4}}\n - {id: s1, capacity: *c}\n", "c.yaml");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->total_capacity()[model::ResourceId(0)], 8);
  EXPECT_THAT(parse_cluster("version: &v [*v]\n", "c.yaml"), FailsWith("c.yaml:1: an alias stands inside what it repeats"));
}

TEST(ClusterFileTest, ALongTextRepeatedManyTimesIsRefusedBeforeItFillsTheMemory) {
  std::string text = "version: 1\nservers:\n - &t " + std::string(100'000, 'x') + "\n";
  for (int i = 0; i < 10'000; ++i) {
    text += " - *t\n";
  }
  EXPECT_THAT(parse_cluster(text, "c.yaml"), FailsWith("more than 2000000 values"));
}

TEST(ClusterFileTest, ATextIsOneDocument) {
  EXPECT_THAT(parse_cluster("version: 1\n---\nversion: 1\n", "c.yaml"), FailsWith("c.yaml: holds more than one document"));
  EXPECT_THAT(parse_cluster("ip,DSW\nh0,G6:\n h1: 2\n", "c.yaml"), FailsWith("c.yaml"));
  EXPECT_THAT(parse_cluster("? [a]\n: 1\n", "c.yaml"), FailsWith("c.yaml:1: a field's name is no word"));
  EXPECT_THAT(parse_cluster(std::string(70, '['), "c.yaml"), FailsWith("c.yaml:1: "));
  EXPECT_THAT(parse_cluster("a: [" + std::string(70, '[') + std::string(70, ']') + "]\n", "c.yaml"), FailsWith("nest deeper than 64"));
}

TEST(ClusterFileTest, AFewAliasesCannotFillTheMemory) {
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
  for (char name = 'b'; name <= 'j'; ++name) {
    const std::string before(1, static_cast<char>(name - 1));
    bomb += fmt::format("{}: &{} [*{}, *{}, *{}, *{}, *{}, *{}, *{}, *{}, *{}, *{}]\n", name, name, before, before, before, before, before,
                        before, before, before, before, before);
  }
  EXPECT_THAT(parse_cluster(bomb, "bomb.yaml"), FailsWith("more than 2000000 values"));
}

}  // namespace
}  // namespace maypole::formats
