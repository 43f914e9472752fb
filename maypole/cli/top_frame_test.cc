// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/top_frame.h"

#include "maypole/cli/terminal_text.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::cli {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ResultOf;
using ::testing::SizeIs;

JobView job_of(int id, const std::string& state) {
  JobView job;
  job.id = std::to_string(id);
  job.name = fmt::format("job-{}", id);
  job.owner = "ann";
  job.state = state;
  job.min_workers = job.max_workers = 1;
  if (state == "running") {
    job.workers = 1;
    job.ring = {"s0"};
    job.started_s = 1000;
  }
  return job;
}

TopView view_of(int servers, int running, int waiting) {
  TopView view;
  view.address = "127.0.0.1:7077";
  view.cluster.policy = "gadget";
  view.now_s = 1065;
  for (int i = 0; i < servers; ++i) {
    view.cluster.servers.push_back({fmt::format("s{}", i), {{"cpu", i == 0 ? 2.0 : 0.0, 4}}, {}, ""});
  }
  for (int i = 0; i < running; ++i) {
    view.running.jobs.push_back(job_of(i + 1, "running"));
  }
  for (int i = 0; i < waiting; ++i) {
    view.waiting.jobs.push_back(job_of(running + i + 1, "queued"));
  }
  return view;
}

TEST(TopFrameTest, ShowsServersWhatRunsAndWhatWaits) {
  TopView view = view_of(2, 1, 1);
  view.cluster.servers[1].closed = "drained by ann";
  view.waiting.left_out = 9998;
  const std::vector<std::string> lines = top_frame(view, {});
  EXPECT_THAT(lines[0], HasSubstr("maypole 127.0.0.1:7077  policy gadget"));
  EXPECT_EQ(lines[1], "2 servers: 2 of 8 cpu taken");
  EXPECT_EQ(lines[2], "  s0 [#####.....] 2 of 4 cpu");
  EXPECT_EQ(lines[3], "  s1 [..........] 0 of 4 cpu; drained by ann");
  EXPECT_EQ(lines[5], "jobs: 1 running, 9999 queued");
  EXPECT_EQ(lines[7], "  1   job-1  ann    running  1 of 1   1:05   s0");
  EXPECT_EQ(lines[9], "  and 9998 more");
}

TEST(TopFrameTest, FitsEverySizeAndCountsWhatItLeavesOut) {
  TopView view = view_of(200, 30, 300);
  view.waiting.left_out = 70;
  view.trouble = "no daemon answers";
  view.cluster.refused = "job 3 does not fit";
  view.running.jobs[0].name = std::string(300, 'x');
  for (const FrameSize size : {FrameSize{80, 24}, FrameSize{200, 60}, FrameSize{40, 12}, FrameSize{10, 3}, FrameSize{1, 1}}) {
    const std::vector<std::string> lines = top_frame(view, size);
    EXPECT_LE(lines.size(), size.lines);
    EXPECT_THAT(lines, Each(ResultOf([](const std::string& line) { return columns_of(line); }, ::testing::Le(size.columns))));
  }
  const std::vector<std::string> lines = top_frame(view, {80, 24});
  EXPECT_THAT(lines, SizeIs(24));
  const auto shown =
      static_cast<int>(std::ranges::count_if(lines, [](const auto& line) { return line.find("running  1") != std::string::npos; }));
  EXPECT_GT(shown, 5) << "what runs comes before what waits";
  EXPECT_THAT(lines, Contains(fmt::format("  and {} more", 400 - shown)));
  EXPECT_THAT(lines, Contains(HasSubstr("more servers")));
  EXPECT_THAT(lines, Contains(HasSubstr("30 running, 370 queued")));
}

TEST(TopFrameTest, ServersTakeTheRoomThatJobsLeave) {
  const std::vector<std::string> lines = top_frame(view_of(15, 1, 0), {80, 24});
  EXPECT_THAT(lines, Not(Contains(HasSubstr("more servers"))));
}

}  // namespace
}  // namespace maypole::cli
