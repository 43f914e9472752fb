// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/instance_json.h"

#include "maypole/base/rng.h"
#include "maypole/formats/reading_testing.h"

#include <bit>
#include <cmath>

namespace maypole::formats {
namespace {

using ::testing::HasSubstr;

// Two servers in two racks under a core, and one job of each kind of utility and progress.
constexpr std::string_view kInstance = R"({"version": 1, "slot_s": 60, "slots": 200, "seed": 18446744073709551615,
"servers": [
{"id": "s0", "rack": "r0", "capacity": {"gpu": 4, "cpu": 16}},
{"id": "s1", "rack": "r1", "capacity": {"gpu": 8, "cpu": 0}}],
"links": [
{"id": "s0>r0", "from": "s0", "to": "r0", "bandwidth": 118750000},
{"id": "r0>s0", "from": "r0", "to": "s0", "bandwidth": 118750000},
{"id": "s1>r1", "from": "s1", "to": "r1", "bandwidth": 118750000},
{"id": "r1>s1", "from": "r1", "to": "s1", "bandwidth": 118750000},
{"id": "r0>core", "from": "r0", "to": "core", "bandwidth": null},
{"id": "core>r0", "from": "core", "to": "r0", "bandwidth": null},
{"id": "r1>core", "from": "r1", "to": "core", "bandwidth": 1187500000.5},
{"id": "core>r1", "from": "core", "to": "r1", "bandwidth": 1187500000.5}],
"jobs": [
{"id": "a", "arrival_s": 0, "min_workers": 1, "workers": 2, "max_workers": 4, "demand": {"gpu": 1, "cpu": 0}, "edge_bandwidth": null, "work": null, "budget": 12, "weight": 0.1, "utility": {"kind": "sqrt"}, "progress": {"kind": "constant", "zeta": 437, "resize_s": 0}},
{"id": "b \"quoted\" \u0001", "arrival_s": 0.30000000000000004, "min_workers": 1, "workers": 1, "max_workers": 1, "demand": {"gpu": 1, "cpu": 0.5}, "edge_bandwidth": 12500000, "work": 1e-300, "budget": null, "weight": 1, "utility": {"kind": "sigmoid", "sensitivity": 0.25, "expected": -0.0}, "progress": {"kind": "power", "zeta": 60, "exponent": 0.8, "reference": 4, "resize_s": 30}},
{"id": "c", "arrival_s": 1, "min_workers": 1, "workers": 1, "max_workers": 1, "demand": {"gpu": 1, "cpu": 0}, "edge_bandwidth": null, "work": 1e+21, "budget": null, "weight": 1, "utility": {"kind": "energy", "cost": 0.001}, "progress": {"kind": "ring", "gradient_bytes": 102400000, "reduce_bytes_per_s": 10000000000, "forward_s": 0.1, "backward_s": 0.2, "latency_s": 0, "bandwidth": 12500000, "local_bandwidth": null, "resize_s": 0}},
{"id": "d", "arrival_s": 1, "min_workers": 1, "workers": 1, "max_workers": 1, "demand": {"gpu": 1, "cpu": 0}, "edge_bandwidth": null, "work": 5, "budget": null, "weight": 1, "utility": {"kind": "deadline", "deadline_s": 3600, "late": 0.5, "work": 5}, "progress": {"kind": "overlap", "schedule": "dear", "gradient_bytes": 1, "reduce_bytes_per_s": 0, "forward_s": 0.1, "backward_s": 0.2, "latency_s": 0, "bandwidth": null, "local_bandwidth": null, "resize_s": 0}},
{"id": "e", "arrival_s": 1, "min_workers": 1, "workers": 1, "max_workers": 1, "demand": {"gpu": 1, "cpu": 0}, "edge_bandwidth": null, "work": 5, "budget": null, "weight": 1, "utility": {"kind": "log"}, "progress": {"kind": "table", "points": [{"workers": 1, "servers": 1, "rate": 3.5}, {"workers": 2, "servers": 1, "rate": 6}], "resize_s": 0}, "racks": {"max": 1, "for_s": 600}},
{"id": "f", "arrival_s": 1, "min_workers": 1, "workers": 1, "max_workers": 2, "demand": {"gpu": 1, "cpu": 0}, "edge_bandwidth": 12500000, "work": 5, "budget": null, "weight": 1, "utility": {"kind": "log"}, "progress": {"kind": "profile", "bandwidth": 125000000, "local_bandwidth": null, "iterations": [{"workers": 1, "spread": false, "s_per_byte": 0, "iteration_s": 0.5}, {"workers": 2, "spread": true, "s_per_byte": 0, "iteration_s": 0.625}, {"workers": 2, "spread": true, "s_per_byte": 1e-08, "iteration_s": 0.75}], "resize_s": 0}}]}
)";

std::string with(std::string_view from, std::string_view to) {
  std::string text(kInstance);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(InstanceJsonTest, WritesTheVeryTextThatItRead) {
  const auto instance = parse_instance(kInstance, "i.json");
  ASSERT_TRUE(instance.ok()) << instance.status();
  EXPECT_EQ(instance_json(*instance), kInstance);
}

TEST(InstanceJsonTest, ReadsEveryFieldIntoItsPlace) {
  const model::Instance instance = parse_instance(kInstance, "i.json").value();
  EXPECT_EQ(instance.seed, 18446744073709551615U);
  EXPECT_EQ(instance.slots, 200);
  const model::Cluster& cluster = instance.cluster;
  EXPECT_EQ(cluster.num_servers(), 2U);
  EXPECT_EQ(cluster.num_racks(), 2U);
  EXPECT_TRUE(cluster.tree().has_value());
  EXPECT_EQ(cluster.rack(cluster.parts().switches[0].rack), "r0");
  EXPECT_FALSE(cluster.parts().switches[2].rack.valid()) << "the core is no rack's top";
  EXPECT_FALSE(cluster.link(*cluster.find_link("r0>core")).bandwidth.limited());
  EXPECT_EQ(instance.jobs[0].budget, 12);
  EXPECT_EQ(instance.jobs[1].id, "b \"quoted\" \x01");
  EXPECT_TRUE(std::signbit(instance.jobs[1].utility.expected)) << "even the sign of a zero comes back";
  EXPECT_EQ(instance.jobs[2].progress.bandwidth.bytes_per_second, 12500000);
  EXPECT_EQ(instance.jobs[3].progress.schedule, model::OverlapSchedule::kDear);
  EXPECT_EQ(instance.jobs[4].progress.points.size(), 2U);
  EXPECT_EQ(instance.jobs[4].max_racks_s, 600);
  EXPECT_EQ(instance.jobs[5].progress.kind, model::ProgressKind::kProfile);
  EXPECT_EQ(instance.jobs[5].progress.iterations.back(), (model::IterationPoint{2, true, 1e-8, 0.75}));
}

TEST(InstanceJsonTest, EveryDoubleComesBackWithTheSameBits) {
  model::Instance instance = parse_instance(kInstance, "i.json").value();
  base::Rng rng(7);
  for (int i = 0; i < 5000; ++i) {
    const double value = std::bit_cast<double>(rng.bits() & 0x7FFFFFFFFFFFFFFFU);
    if (!std::isfinite(value) || value == 0) {
      continue;
    }
    instance.jobs.resize(1);
    instance.jobs[0].work = value;
    const auto again = parse_instance(instance_json(instance), "i.json");
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_EQ(std::bit_cast<std::uint64_t>(*again->jobs[0].work), std::bit_cast<std::uint64_t>(value)) << value;
  }
}

TEST(InstanceJsonTest, AHorizonWithoutEndIsNull) {
  model::Instance instance = parse_instance(kInstance, "i.json").value();
  instance.slots = 0;
  const std::string text = instance_json(instance);
  EXPECT_THAT(text, HasSubstr("\"slots\": null"));
  EXPECT_EQ(parse_instance(text, "i.json")->slots, 0);
}

TEST(InstanceJsonTest, ItsClusterCanBeReadAlone) {
  const auto cluster = parse_instance_cluster(kInstance, "i.json");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->num_links(), 8U);
}

TEST(InstanceJsonTest, NamesTheFileAndTheFieldOfWhatIsWrong) {
  const auto reading = [](std::string_view from, std::string_view to) { return parse_instance(with(from, to), "i.json"); };
  EXPECT_THAT(reading("\"version\": 1", "\"version\": 2"), FailsWith("i.json:1: version: this program reads version 1, the file has 2"));
  EXPECT_THAT(reading("\"slot_s\": 60, ", ""), FailsWith("i.json: slot_s: is missing: give a number"));
  EXPECT_THAT(reading("\"slot_s\": 60", "\"slot_s\": \"60\""), FailsWith("i.json:1: slot_s: '60' is text: give a number"));
  EXPECT_THAT(reading("\"slot_s\": 60", "\"slot_s\": 1e999"), FailsWith("i.json:1: '1e999' is more than a number can hold"));
  EXPECT_THAT(reading("\"slot_s\": 60", "\"slot_s\": 0"), FailsWith("i.json: the slot is 0 s long"));
  EXPECT_THAT(reading("\"slots\": 200", "\"slots\": 1.5"), FailsWith("i.json:1: slots: '1.5' is not a whole number from 1 to"));
  EXPECT_THAT(reading("\"seed\": 18446744073709551615", "\"seed\": -1"),
              FailsWith("i.json:1: seed: '-1' is not a whole number of at least 0"));
  EXPECT_THAT(reading("\"seed\"", "\"sede\""), FailsWith("i.json: seed: is missing"));
  EXPECT_THAT(reading("\"seed\": 18446744073709551615", "\"seed\": 1, \"tempo\": 3"),
              FailsWith("i.json:1: tempo: is no field of this format: it knows jobs, links, seed, servers, slot_s, slots, version"));
  EXPECT_THAT(reading("\"seed\": 18446744073709551615", "\"seed\": 1, \"seed\": 2"),
              FailsWith("the field 'seed' is there twice in one map"));
  EXPECT_THAT(reading("{\"id\": \"s1\", \"rack\"", "{\"id\": \"s0\", \"rack\""),
              FailsWith("i.json:4: servers[1].id: server 's0' is there twice"));
  EXPECT_THAT(reading("\"id\": \"r0>s0\"", "\"id\": \"s0>r0\""), FailsWith("i.json:7: links[1].id: link 's0>r0' is there twice"));
  EXPECT_THAT(reading("118750000", "0"), FailsWith("i.json:6: links[0].bandwidth: 0 is no rate"));
  EXPECT_THAT(reading("118750000", "-4"), FailsWith("i.json:6: links[0].bandwidth: -4 is no rate"));
  EXPECT_THAT(reading("\"gpu\": 4,", "\"gpu\": -4,"), FailsWith("i.json:3: servers[0].capacity.gpu: '-4' is no amount"));
  EXPECT_THAT(reading("\"demand\": {\"gpu\": 1, \"cpu\": 0}", "\"demand\": {\"tpu\": 1}"),
              FailsWith("i.json:15: jobs[0].demand: no server has any 'tpu': give one of gpu, cpu"));
  EXPECT_THAT(
      reading("\"kind\": \"sqrt\"", "\"kind\": \"cube\""),
      FailsWith("i.json:15: jobs[0].utility.kind: there is no kind 'cube': give one of sqrt, log, linear, energy, sigmoid, deadline"));
  EXPECT_THAT(reading("\"kind\": \"sqrt\"", "\"kind\": \"sqrt\", \"cost\": 1"), FailsWith("i.json:15: jobs[0].utility.cost: is no field"));
  EXPECT_THAT(reading("\"kind\": \"constant\"", "\"kind\": \"constant\", \"exponent\": 1"),
              FailsWith("i.json:15: jobs[0].progress.exponent: is no field"));
  EXPECT_THAT(reading("\"schedule\": \"dear\"", "\"schedule\": \"deer\""),
              FailsWith("i.json:18: jobs[3].progress.schedule: there is no kind 'deer': give one of sync, wfbp, dear, weave"));
  EXPECT_THAT(reading("\"s_per_byte\": 1e-08", "\"s_per_byte\": 0"),
              FailsWith("i.json: job 'f' has progress.iterations[2] twice or out of order"));
  EXPECT_THAT(reading("\"iteration_s\": 0.625", "\"iteration_s\": -1"), FailsWith("i.json: job 'f' has a bad progress.iterations[1]"));
  EXPECT_THAT(reading("\"spread\": true, \"s_per_byte\": 0", "\"spread\": true, \"s_per_byte\": 1e-9"),
              FailsWith("i.json: job 'f' lacks an iteration of 2 workers at s_per_byte 0 before progress.iterations[1]"));
  EXPECT_THAT(reading("\"id\": \"c\"", "\"id\": \"a\""), FailsWith("i.json: job 'a' is there twice"));
  EXPECT_THAT(reading("\"workers\": 2, \"max_workers\": 4", "\"workers\": 20, \"max_workers\": 40"), ::testing::Not(FailsWith("")));
  EXPECT_THAT(
      reading("\"min_workers\": 1, \"workers\": 2, \"max_workers\": 4", "\"min_workers\": 20, \"workers\": 20, \"max_workers\": 40"),
      FailsWith("i.json: job 'a' can never run: it needs at least 20 workers, the empty cluster holds 12"));
}

TEST(InstanceJsonTest, ABrokenTextIsOneLineWithItsPlace) {
  EXPECT_THAT(parse_instance("", "i.json"), FailsWith("i.json:1: is empty: give one JSON value"));
  EXPECT_THAT(parse_instance("{\"version\": 1,\n \"slot_s\" 60}", "i.json"), FailsWith("i.json:2: no JSON from"));
  EXPECT_THAT(parse_instance(kInstance.substr(0, 700), "i.json"),
              FailsWith("i.json:13: the JSON text ends too early: the file is cut off"));
  EXPECT_THAT(parse_instance("[1, 2]", "i.json"), FailsWith("i.json: is a list: give a map"));
  EXPECT_THAT(parse_instance(std::string(100, '['), "i.json"), FailsWith("i.json:1: lists and maps nest deeper than 64"));
  EXPECT_THAT(read_instance("nowhere/i.json"), FailsWith("nowhere/i.json: cannot be opened: No such file or directory"));
}

}  // namespace
}  // namespace maypole::formats
