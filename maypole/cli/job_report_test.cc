// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/job_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace maypole::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

pipeline::Report report(double scale) {
  pipeline::Report made;
  made.iteration_s = 10 * scale;
  made.forward_s = 2 * scale;
  made.backward_s = 4 * scale;
  made.reduce_scatter_s = 3 * scale;
  made.all_gather_s = 1 * scale;
  made.exposed_s = 0.5 * scale;
  made.bound_s = 9 * scale;
  made.schedule = "weave";
  made.update = "replicated";
  made.world_size = 3;
  made.groups = {{1000, 1 * scale, 2 * scale, 3 * scale}, {2000, 4 * scale, 5 * scale, 6 * scale}};
  return made;
}

TEST(JobReport, IsTheMedianOverRanksOfEveryFigure) {
  const pipeline::Report merged = merge_reports({{0, report(3)}, {1, report(1)}, {2, report(2)}});
  EXPECT_DOUBLE_EQ(merged.iteration_s, 20);
  EXPECT_DOUBLE_EQ(merged.bound_s, 18);
  EXPECT_DOUBLE_EQ(merged.groups[1].all_gather_s, 10);
  const pipeline::Report even = merge_reports({{0, report(1)}, {1, report(2)}});
  EXPECT_DOUBLE_EQ(even.forward_s, 3);
  EXPECT_EQ(even.groups[0].bytes, 1000U);
}

TEST(JobReport, HasExactlyTheFieldsOfTheContract) {
  const json object = json::parse(report_json(report(1), "a machine", "abc"));
  const std::set<std::string> expected = {"iteration_s", "forward_s", "backward_s", "reduce_scatter_s", "all_gather_s",
                                          "exposed_s",   "bound_s",   "schedule",   "update",           "world_size",
                                          "machine",     "commit",    "groups"};
  std::set<std::string> fields;
  for (const auto& [name, value] : object.items()) {
    fields.insert(name);
  }
  EXPECT_EQ(fields, expected);
  EXPECT_EQ(object["groups"][1]["bytes"], 2000);
  EXPECT_EQ(object["groups"][0].size(), 4U);
  EXPECT_EQ(object["machine"], "a machine");
}

TEST(JobReport, ReadsWhatItWrites) {
  const auto read = parse_report(report_json(report(1), "m", "c"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_DOUBLE_EQ(read->exposed_s, 0.5);
  EXPECT_EQ(read->groups.size(), 2U);
  EXPECT_FALSE(parse_report("{\"iteration_s\": 1").ok());
}

TEST(JobReport, SaysHowGroupsThatWereTunedCameAbout) {
  pipeline::Report tuned = report(1);
  tuned.fusion = "auto: 7 groups (plan) after 30 iterations";
  EXPECT_EQ(parse_report(report_json(tuned, "m", "c"))->fusion, tuned.fusion);
  EXPECT_THAT(report_table(tuned), HasSubstr("groups: auto: 7 groups (plan) after 30 iterations\n"));
  EXPECT_THAT(report_table(report(1)), ::testing::Not(HasSubstr("groups:")));
}

TEST(JobReport, TableShowsTheBoundAndTheShareOfItReached) {
  const std::string table = report_table(report(0.001));
  EXPECT_THAT(table, HasSubstr("90.0 % of bound reached"));
  EXPECT_THAT(table, HasSubstr("exposed"));
}

TEST(JobReport, TableKeepsTheGroupsThatComputeWaitedForMost) {
  pipeline::Report many = report(1);
  many.groups.clear();
  for (int i = 0; i < 40; ++i) {
    many.groups.push_back({1000U, 1, 1, i == 23 ? 5.0 : 0.001});
  }
  const std::string table = report_table(many);
  EXPECT_THAT(table, HasSubstr("   23 "));
  EXPECT_THAT(table, HasSubstr("28 groups"));
}

TEST(JobReport, NamesARankThatStandsOut) {
  EXPECT_EQ(slow_ranks({{0, report(1)}, {1, report(1.1)}}, {}), "");
  const std::string text = slow_ranks({{0, report(1)}, {1, report(1.5)}, {2, report(1)}}, {{1, "s1"}});
  EXPECT_THAT(text, HasSubstr("rank 1 on host s1 is slow"));
  EXPECT_THAT(text, HasSubstr("50 % more"));
  EXPECT_THAT(text, testing::Not(HasSubstr("rank 0")));
  EXPECT_EQ(slow_ranks({{0, report(1)}}, {}), "");
}

TEST(Timelines, BecomeOneTraceWithAProcessPerRank) {
  const auto merged = merge_timelines({{0, {R"([{"ph":"X","name":"RS 0","ts":5,"dur":1,"pid":77,"tid":1}])", "a", "m"}},
                                       {1, {R"({"traceEvents":[{"ph":"X","name":"RS 0","ts":6,"dur":1,"pid":77,"tid":1}]})", "a", "m"}}});
  ASSERT_TRUE(merged.ok()) << merged.status();
  std::map<int, double> time_of;
  std::map<int, std::string> name_of;
  const json trace = json::parse(*merged);
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      time_of[event["pid"]] = event["ts"];
    } else if (event["name"] == "process_name") {
      name_of[event["pid"]] = event["args"]["name"];
    }
  }
  EXPECT_EQ(time_of, (std::map<int, double>{{0, 5}, {1, 6}}));
  EXPECT_EQ(name_of[1], "rank 1 on a");
}

std::vector<double> times_of(const std::map<int, RankTimeline>& by_rank) {
  const auto merged = merge_timelines(by_rank);
  EXPECT_TRUE(merged.ok()) << merged.status();
  std::vector<double> times;
  const json trace = json::parse(*merged);
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      times.push_back(event["ts"]);
    }
  }
  return times;
}

TEST(Timelines, OfAMachineWithAWrongClockBeginTogether) {
  const RankTimeline first{R"([{"ph":"X","ts":5}])", "a", "m"};
  EXPECT_THAT(times_of({{0, first}, {1, {R"([{"ph":"X","ts":9000006},{"ph":"X","ts":9000008}])", "b", "n"}}}),
              testing::ElementsAre(5, 5, 7));
  EXPECT_THAT(times_of({{0, first}, {1, {R"([{"ph":"X","ts":9006},{"ph":"X","ts":9008}])", "b", "n"}}}),
              testing::ElementsAre(5, 9006, 9008));
}

TEST(Timelines, NameTheRankWhoseFileIsDamaged) {
  EXPECT_THAT(std::string(merge_timelines({{4, {"[{", "a", "m"}}}).status().message()), HasSubstr("rank 4"));
}

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/maypole-files-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(Files, AreRefusedEarlyWhereTheyCannotBeWritten) {
  EXPECT_TRUE(check_writable(folder_ + "/r.json").ok());
  EXPECT_THAT(std::string(check_writable(folder_ + "/no/r.json").message()), HasSubstr("does not exist"));
  EXPECT_FALSE(check_writable(folder_).ok());
  EXPECT_FALSE(check_writable("/proc/r.json").ok());  // where even root, whom no mode stops, can make nothing
  EXPECT_TRUE(check_writable("/dev/null").ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Files, AreReplacedAsAWholeAndLeaveNoParts) {
  ASSERT_TRUE(write_file(folder_ + "/r.json", "old").ok());
  ASSERT_TRUE(write_file(folder_ + "/r.json", "new").ok());
  std::ostringstream text;
  text << std::ifstream(folder_ + "/r.json").rdbuf();
  EXPECT_EQ(text.str(), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(Files, ThatCannotBeWrittenAreKeptAmongTheTemporaryOnes) {
  ::setenv("TMPDIR", folder_.c_str(), 1);
  const std::string problem = write_or_keep("/proc/r.json", "measured");
  ::unsetenv("TMPDIR");
  const std::string kept = fmt::format("{}/maypole-{}-r.json", folder_, ::getpid());
  EXPECT_THAT(problem, testing::EndsWith("; it is kept in " + kept));
  std::ostringstream text;
  text << std::ifstream(kept).rdbuf();
  EXPECT_EQ(text.str(), "measured");
  EXPECT_EQ(write_or_keep(folder_ + "/r.json", "measured"), "");
}

TEST_F(Files, OnAFullDiskFailWithItsName) {
  const absl::Status status = write_file("/dev/full", "text");
  EXPECT_THAT(std::string(status.message()), testing::AllOf(HasSubstr("/dev/full"), HasSubstr("No space left")));
}

}  // namespace
}  // namespace maypole::cli
