// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/decision_line.h"

#include "maypole/formats/cluster_file.h"
#include "maypole/formats/reading_testing.h"
#include "maypole/formats/text_file.h"
#include "maypole/model/routes.h"

namespace maypole::formats {
namespace {

constexpr std::string_view kLine =
    R"({"slot": 3, "jobs": {"a": {"workers": 2, "ring": ["s0", "s1"], "edges": [["s0>r0", "r0>s1"], ["s1>r0", "r0>s0"]], )"
    R"("bandwidth": 12500000}, "b": {"workers": 1, "ring": ["s1"], "edges": [], "bandwidth": null}, )"
    R"("c": {"workers": 2, "ring": ["s1", "s1"], "edges": [[], []], "bandwidth": null}}, )"
    R"("utility": 0.1, "bound": 0.30000000000000004, "bound_lp": null, "gap": 0, "limited": true, "seconds": 0.002})";

constexpr std::string_view kCluster = R"(version: 1
racks: [{id: r0, uplink: 10Gbps}]
servers:
  - {id: s0, rack: r0, capacity: {gpu: 4}, bandwidth: 1Gbps}
  - {id: s1, rack: r0, capacity: {gpu: 4}, bandwidth: 1Gbps}
)";

std::string with(std::string_view from, std::string_view to) {
  std::string text(kLine);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(DecisionLineTest, WritesTheVeryTextThatItRead) {
  const auto decision = parse_decision_line(kLine, "d.jsonl", 4);
  ASSERT_TRUE(decision.ok()) << decision.status();
  EXPECT_EQ(decision_json(*decision), kLine);
  const std::string with_objective = with("0.1, ", "0.1, \"objective\": 0.2, ");
  EXPECT_EQ(decision_json(parse_decision_line(with_objective, "d.jsonl", 4).value()), with_objective);
  EXPECT_EQ(decision->jobs.size(), 3U);
  EXPECT_EQ(decision->jobs[0].edges[1], (std::vector<std::string>{"s1>r0", "r0>s0"}));
  EXPECT_EQ(decision->bound_lp, std::nullopt);
  EXPECT_TRUE(decision->limited);
}

TEST(DecisionLineTest, NamesTheLineAndTheFieldOfWhatIsWrong) {
  const auto reading = [](std::string_view from, std::string_view to) { return parse_decision_line(with(from, to), "d.jsonl", 4); };
  EXPECT_THAT(reading("\"workers\": 2", "\"workers\": 3"), FailsWith("d.jsonl:4: jobs.a.workers: says 3, the ring has 2"));
  EXPECT_THAT(reading("\"edges\": []", "\"edges\": [[]]"), FailsWith("d.jsonl:4: jobs.b.edges: has 1 edges, a ring of 1 has 0"));
  EXPECT_THAT(reading("[[], []]", "[[]]"), FailsWith("d.jsonl:4: jobs.c.edges: has 1 edges, a ring of 2 has 2"));
  EXPECT_THAT(reading("\"slot\": 3, ", ""), FailsWith("d.jsonl:4: slot: is missing"));
  EXPECT_THAT(reading("\"slot\": 3", "\"slot\": -3"), FailsWith("d.jsonl:4: slot: '-3' is not a whole number from 0"));
  EXPECT_THAT(reading("12500000", "0"), FailsWith("d.jsonl:4: jobs.a.bandwidth: 0 is no rate"));
  EXPECT_THAT(reading("true", "1"), FailsWith("d.jsonl:4: limited: '1' is a number: give true or false"));
  EXPECT_THAT(reading("\"ring\": [\"s1\"]", "\"ring\": []"), FailsWith("d.jsonl:4: jobs.b.workers: says 1, the ring has 0"));
  EXPECT_THAT(reading("\"b\": {", "\"a\": {"), FailsWith("d.jsonl:4: the field 'a' is there twice"));
  EXPECT_THAT(reading("\"seconds\"", "\"second\""), FailsWith("d.jsonl:4: seconds: is missing"));
  EXPECT_THAT(parse_decision_line("{", "d.jsonl", 4), FailsWith("d.jsonl:4: the JSON text ends too early"));
}

TEST(DecisionLineTest, AFileHasOneLineForEachSlot) {
  const std::string path = ::testing::TempDir() + "/d.jsonl";
  const std::string zero = with("\"slot\": 3", "\"slot\": 0") + "\n";
  const std::string one = with("\"slot\": 3", "\"slot\": 1") + "\n";
  ASSERT_TRUE(write_text_file(path, zero + one).ok());
  EXPECT_EQ(read_decisions(path)->size(), 2U);
  ASSERT_TRUE(write_text_file(path, zero + zero).ok());
  EXPECT_THAT(read_decisions(path), FailsWith("d.jsonl:2: slot: is 0 where 1 is next"));
  ASSERT_TRUE(write_text_file(path, one).ok());
  EXPECT_THAT(read_decisions(path), FailsWith("d.jsonl:1: slot: is 1 where 0 is next"));
  ASSERT_TRUE(write_text_file(path, zero + "\n" + one).ok());
  EXPECT_THAT(read_decisions(path), FailsWith("d.jsonl:2: is empty"));
}

TEST(DecisionLineTest, TurnsNamesIntoAnEmbeddingAndBack) {
  const model::Cluster cluster = parse_cluster(kCluster, "c.yaml").value();
  const NamedCluster names(cluster);
  const DecisionLine decision = parse_decision_line(kLine, "d.jsonl", 4).value();
  for (const JobLine& job : decision.jobs) {
    const auto embedding = names.embedding(job);
    ASSERT_TRUE(embedding.ok()) << embedding.status();
    EXPECT_EQ(job_line(job.id, *embedding, cluster), job);
  }
  const model::Embedding two_servers = names.embedding(decision.jobs[0]).value();
  EXPECT_EQ(two_servers.edges[0], model::Routes(cluster).path(two_servers.ring[0], two_servers.ring[1]));

  JobLine wrong = decision.jobs[0];
  wrong.ring[1] = "s9";
  EXPECT_THAT(names.embedding(wrong), FailsWith("job 'a' has a worker on 's9', which is no server of the cluster"));
  wrong = decision.jobs[0];
  wrong.edges[0][1] = "r0>s9";
  EXPECT_THAT(names.embedding(wrong), FailsWith("job 'a' uses 'r0>s9', which is no link of the cluster"));
}

}  // namespace
}  // namespace maypole::formats
