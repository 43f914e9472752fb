// SPDX-License-Identifier: Apache-2.0
// The examples of docs/formats.md are read as what they say they are.
#include "maypole/formats/cluster_file.h"
#include "maypole/formats/decision_line.h"
#include "maypole/formats/instance_json.h"
#include "maypole/formats/job_file.h"
#include "maypole/formats/reading_testing.h"
#include "maypole/formats/text_file.h"
#include "maypole/formats/workload.h"

#include <map>
#include <sstream>

namespace maypole::formats {
namespace {

// The fenced blocks by the file name behind their language: ```yaml job.yaml
std::multimap<std::string, std::string> examples() {
  std::multimap<std::string, std::string> blocks;
  std::istringstream text(read_text_file(std::string(MAYPOLE_SOURCE_DIR) + "/docs/formats.md").value());
  std::string name;
  std::string block;
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with("```")) {
      block += name.empty() ? "" : line + "\n";
    } else if (name.empty()) {
      name = line.substr(line.find(' ') + 1);
    } else {
      blocks.emplace(name, block);
      name.clear();
      block.clear();
    }
  }
  return blocks;
}

TEST(DocumentationTest, EveryExampleIsReadAsWhatItSaysItIs) {
  const std::multimap<std::string, std::string> blocks = examples();
  ASSERT_EQ(blocks.count("cluster.yaml"), 2U);
  ASSERT_EQ(blocks.count("job.yaml"), 1U);
  ASSERT_EQ(blocks.count("workload.csv"), 1U);
  ASSERT_EQ(blocks.count("instance.json"), 1U);
  ASSERT_EQ(blocks.count("decisions.jsonl"), 1U);
  for (const auto& [name, text] : blocks) {
    if (name == "cluster.yaml") {
      const auto cluster = parse_cluster(text, name);
      EXPECT_TRUE(cluster.ok()) << cluster.status();
    } else if (name == "job.yaml") {
      const auto job = parse_job_file(text, name);
      EXPECT_TRUE(job.ok()) << job.status();
    } else if (name == "workload.csv") {
      const auto workload = parse_workload(text, name, {}, plain_cluster(1));
      EXPECT_TRUE(workload.ok()) << workload.status();
    }
  }
  const std::string& instance_text = blocks.find("instance.json")->second;
  const auto instance = parse_instance(instance_text, "instance.json");
  ASSERT_TRUE(instance.ok()) << instance.status();
  EXPECT_EQ(instance_json(*instance), instance_text) << "the example is what we write";
  const std::string& line = blocks.find("decisions.jsonl")->second;
  const auto decision = parse_decision_line(line, "decisions.jsonl", 1);
  ASSERT_TRUE(decision.ok()) << decision.status();
  EXPECT_EQ(decision_json(*decision) + "\n", line);
  EXPECT_TRUE(NamedCluster(instance->cluster).embedding(decision->jobs[0]).ok()) << "and fits the instance above";
}

}  // namespace
}  // namespace maypole::formats
