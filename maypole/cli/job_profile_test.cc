// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/job_profile.h"

#include "maypole/base/status.h"
#include "maypole/formats/profile_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::cli {
namespace {

using ::testing::HasSubstr;

std::string report(double forward_s, double spread_s, const std::string& second_layer = "b") {
  model::Profile profile;
  profile.model = "Net";
  profile.batch = 4;
  profile.layers = {{"a", {forward_s, spread_s}, {0.5, 0}}, {second_layer, {1, 0}, {2, 0}}};
  profile.tensors = {{"a.weight", 0, 10, base::DType::kFloat32}, {"b.weight", 1, 20, base::DType::kBFloat16}};
  return R"({"iteration_s": 1, "profile": )" + formats::profile_json(profile) + "}";
}

std::string error_of(const std::map<int, std::string>& reports) { return base::message(merge_profiles(reports).status()); }

TEST(JobProfile, TakesMediansOverRanksAndTheLargestSpread) {
  const auto merged = merge_profiles({{0, report(1, 0.1)}, {1, report(4, 0.3)}, {2, report(2, 0.2)}});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_DOUBLE_EQ(merged->layers[0].forward.median_s, 2);
  EXPECT_DOUBLE_EQ(merged->layers[0].forward.spread_s, 0.3);
  EXPECT_DOUBLE_EQ(merged->layers[1].backward.median_s, 2);
  EXPECT_EQ(merged->tensors.size(), 2U);
}

TEST(JobProfile, SaysWhichRankMeasuredNothingAndWhy) {
  EXPECT_THAT(error_of({}), HasSubstr("no worker measured anything"));
  EXPECT_THAT(error_of({{0, report(1, 0)}, {1, R"({"iteration_s": 1})"}}), HasSubstr("rank 1 measured nothing"));
  EXPECT_THAT(error_of({{3, R"({"profile": "it ended early"})"}}), HasSubstr("rank 3 measured nothing: it ended early"));
  EXPECT_THAT(error_of({{0, "{"}}), HasSubstr("the report of rank 0 is damaged"));
  EXPECT_THAT(error_of({{0, R"({"profile": {"version": 1}})"}}), HasSubstr("the profile of rank 0: "));
}

TEST(JobProfile, RefusesRanksThatUseTheirLayersInDifferentOrders) {
  EXPECT_THAT(error_of({{0, report(1, 0)}, {1, report(1, 0, "c")}}), HasSubstr("rank 1 used its layers in another order"));
}

TEST(JobProfile, ShowsTheLayersThatComputeLongestFirst) {
  const std::string table = profile_table(*merge_profiles({{0, report(1, 0)}}));
  EXPECT_THAT(table, HasSubstr("2 tensors in 2 layers"));
  EXPECT_LT(table.find(" b\n"), table.find(" a\n"));
}

}  // namespace
}  // namespace maypole::cli
