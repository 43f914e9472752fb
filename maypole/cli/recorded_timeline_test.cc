// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/recorded_timeline.h"

#include "maypole/model/status_testing.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::cli {
namespace {

using model::FailsWith;

std::string event(int rank, const char* name, double begin_ms, double length_ms) {
  return fmt::format(R"(,{{"ph":"X","name":"{}","pid":{},"tid":0,"ts":{},"dur":{}}})", name, rank, begin_ms * 1e3, length_ms * 1e3);
}

/// Three iterations of 100 ms on two ranks; the last one does not end.
std::string recording() {
  std::string text = R"({"traceEvents":[{"ph":"M","name":"process_name","pid":0,"args":{"name":"rank 0 on here"}})";
  for (const int rank : {0, 1}) {
    for (int i = 0; i < 3; ++i) {
      const double begin = 1000 + 100 * i;
      text += event(rank, "backward", begin, 60);
      text += event(rank, "RS group 1", begin + 20, 30);
      text += event(rank, "forward", begin + 65, 35);
      text += event(rank, "AG group 0", begin + 60, 10);
      text += event(rank, "wait for group 0", begin + 65, 5);
    }
  }
  return text + "]}";
}

TEST(RecordedTimeline, TakesIterationsFromOneBackwardToTheNext) {
  const RecordedTimeline timeline = parse_timeline(recording(), "t.json").value();
  ASSERT_EQ(timeline.ranks.size(), 2u);
  EXPECT_EQ(timeline.ranks.at(0).name, "rank 0 on here");
  const RecordedIterations one = timeline.iterations(1);
  EXPECT_EQ(one.count, 2u);
  EXPECT_NEAR(one.iteration_s, 0.1, 1e-9);
  EXPECT_NEAR(one.backward_s, 0.06, 1e-9);
  EXPECT_NEAR(one.forward_s, 0.030, 1e-9);  // 5 ms of it waited
  EXPECT_NEAR(one.exposed_s, 0.005, 1e-9);
  EXPECT_NEAR(one.reduce_scatter_s, 0.03, 1e-9);
  EXPECT_NEAR(one.all_gather_s, 0.01, 1e-9);
}

TEST(RecordedTimeline, OnlyWaitsForItsOwnModelCountAgainstAPass) {
  std::string text = "[" + event(0, "backward", 0, 10).substr(1) + event(0, "backward", 100, 10);
  text += event(0, "forward", 20, 30) + event(0, "wait for group 0 of model 1", 25, 4) + event(0, "wait for group 3", 45, 10) + "]";
  const RecordedIterations one = parse_timeline(text, "t.json").value().iterations(0);
  EXPECT_NEAR(one.forward_s, 0.025, 1e-9);
  EXPECT_NEAR(one.exposed_s, 0.014, 1e-9);
}

TEST(RecordedTimeline, PictureShowsTheLastWholeIterationsOfEveryRank) {
  const TimelinePicture picture = parse_timeline(recording(), "t.json").value().picture("title", 1);
  EXPECT_NEAR(picture.begin_s, 1.1, 1e-9);
  EXPECT_NEAR(picture.end_s, 1.2, 1e-9);
  ASSERT_EQ(picture.rows.size(), 8u);
  EXPECT_EQ(picture.rows[0].second.size(), 3u);  // backward, forward, wait
  EXPECT_EQ(picture.rows[0].second.back().colour, PictureColour::kWait);
  EXPECT_EQ(picture.rows[5].second.at(0).group, 1);
  EXPECT_THAT(timeline_svg(picture), ::testing::HasSubstr("RS group 1, 30.0 ms"));
}

TEST(RecordedTimeline, OfOneIterationShowsAllThereIs) {
  const std::string text = "[" + event(0, "forward", 10, 5).substr(1) + event(0, "AG group 2", 12, 9) + "]";
  const RecordedTimeline timeline = parse_timeline(text, "t.json").value();
  EXPECT_EQ(timeline.iterations(0).count, 0u);
  const TimelinePicture picture = timeline.picture("", 2);
  EXPECT_NEAR(picture.begin_s, 0.010, 1e-9);
  EXPECT_NEAR(picture.end_s, 0.021, 1e-9);
}

TEST(RecordedTimeline, OtherFilesAreErrorsInOneLine) {
  EXPECT_THAT(parse_timeline("{\"traceEvents\": [", "t.json"), FailsWith("t.json: this is no JSON, or it is cut off"));
  EXPECT_THAT(parse_timeline("{}", "t.json"), FailsWith("t.json: this is no timeline of `maypole run --timeline`"));
  EXPECT_THAT(parse_timeline("{\"traceEvents\": []}", "t.json"), FailsWith("t.json: there is no event of Maypole in it"));
  EXPECT_THAT(parse_timeline(R"([{"ph": "X", "name": "forward", "ts": "soon"}])", "t.json"), FailsWith("t.json: this is no timeline"));
  EXPECT_THAT(parse_timeline("[1, 2]", "t.json"), FailsWith("t.json: this is no timeline"));
}

}  // namespace
}  // namespace maypole::cli
