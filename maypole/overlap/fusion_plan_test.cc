// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/fusion_plan.h"
#include "maypole/base/test_seed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace maypole::overlap {
namespace {

using base::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FusionPlan plan(const std::vector<PlannedTensor>& tensors, const FusionOptions& options) {
  absl::StatusOr<FusionPlan> result = plan_fusion(tensors, options);
  EXPECT_TRUE(result.ok()) << result.status();
  return std::move(result).value();
}

/// What every plan must fulfil, by counting elements one by one.
void check_invariants(const std::vector<PlannedTensor>& tensors, const FusionPlan& plan) {
  std::vector<std::vector<int>> owners(plan.arenas.size());   // [arena][element]: tensors there
  std::vector<std::vector<int>> covered(plan.arenas.size());  // [arena][element]: groups there
  for (std::size_t a = 0; a < plan.arenas.size(); ++a) {
    owners[a].assign(plan.arenas[a].count, 0);
    covered[a].assign(plan.arenas[a].count, 0);
  }
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const Group& group = plan.groups[g];
    ASSERT_FALSE(group.tensors.empty());
    ASSERT_EQ(group.range.begin % group.range.block, 0u);
    ASSERT_EQ(group.range.block, plan.arenas[group.arena].block);
    for (std::size_t e = group.range.begin; e < group.range.end; ++e) {
      ++covered[group.arena][e];
    }
    if (g > 0) {
      ASSERT_LE(plan.groups[g - 1].tensors.front(), group.tensors.front());
    }
  }
  ASSERT_EQ(plan.tensors.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorPlace& place = plan.tensors[i];
    ASSERT_EQ(place.elements.size(), tensors[i].count);
    ASSERT_EQ(plan.arenas[place.arena].dtype, tensors[i].dtype);
    ASSERT_EQ(place.elements.begin * base::size_of(tensors[i].dtype) % 64, 0u);
    std::vector<std::size_t> touching;
    for (std::size_t g = 0; g < plan.groups.size(); ++g) {
      const Group& group = plan.groups[g];
      const bool touches = group.arena == place.arena && !place.elements.empty() && group.range.begin < place.elements.end &&
                           place.elements.begin < group.range.end;
      const bool listed = std::find(group.tensors.begin(), group.tensors.end(), i) != group.tensors.end();
      ASSERT_EQ(touches, listed) << "tensor " << i << " group " << g;
      if (touches) {
        touching.push_back(g);
      }
    }
    ASSERT_EQ(place.groups, touching);
    for (std::size_t e = place.elements.begin; e < place.elements.end; ++e) {
      ++owners[place.arena][e];
    }
  }
  for (std::size_t a = 0; a < plan.arenas.size(); ++a) {
    ASSERT_THAT(owners[a], ::testing::Each(::testing::Le(1)));
    ASSERT_THAT(covered[a], ::testing::Each(1));
  }
}

TEST(FusionPlan, PutsEveryElementInExactlyOneGroupForRandomModels) {
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<PlannedTensor> tensors(random() % 12);
    for (PlannedTensor& tensor : tensors) {
      tensor.count = random() % 4 == 0 ? random() % 3 : random() % 500;
      tensor.dtype = static_cast<DType>(random() % 4);
    }
    const FusionOptions options{1 + random() % 600, 1 + random() % 2000, 1 + random() % 500, random() % 2000};
    check_invariants(tensors, plan(tensors, options));
    if (HasFatalFailure()) {
      return;
    }
  }
}

TEST(FusionPlan, LargeTensorCrossesGroups) {
  const FusionPlan result = plan({{1000}}, {.block_bytes = 400, .group_bytes = 800, .first_group_bytes = 400});
  ASSERT_EQ(result.groups.size(), 6u);
  EXPECT_EQ(result.groups[0].range, (model::BlockRange{0, 100, 100}));
  EXPECT_EQ(result.groups[1].range, (model::BlockRange{100, 300, 100}));
  EXPECT_EQ(result.groups[5].range, (model::BlockRange{900, 1000, 100}));
  EXPECT_THAT(result.tensors[0].groups, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(FusionPlan, FirstGroupIsSmall) {
  const FusionPlan result = plan(std::vector<PlannedTensor>(64, PlannedTensor{64 << 10}), FusionOptions{});
  EXPECT_EQ(result.groups.front().range.size() * 4, FusionOptions{}.first_group_bytes);
  EXPECT_EQ(result.groups[1].range.size() * 4, FusionOptions{}.group_bytes);
  EXPECT_LT(FusionOptions{}.first_group_bytes, FusionOptions{}.group_bytes);
}

TEST(FusionPlan, ArenasOfTwoDtypesAreWovenInForwardOrder) {
  const FusionPlan result =
      plan({{16}, {16, DType::kFloat64}, {16}, {16, DType::kFloat64}}, {.block_bytes = 64, .group_bytes = 64, .first_group_bytes = 64});
  ASSERT_EQ(result.arenas.size(), 2u);
  std::vector<std::size_t> first_tensors;
  for (const Group& group : result.groups) {
    first_tensors.push_back(group.tensors.front());
  }
  EXPECT_THAT(first_tensors, ElementsAre(0, 1, 1, 2, 3, 3));
}

TEST(FusionPlan, TensorWithoutElementsBelongsToNoGroup) {
  const FusionPlan result = plan({{0}, {5}, {0}}, FusionOptions{});
  EXPECT_THAT(result.tensors[0].groups, IsEmpty());
  EXPECT_THAT(result.tensors[1].groups, ElementsAre(0));
  EXPECT_EQ(result.arenas[0].count, 5u);
}

TEST(FusionPlan, NoTensorsMeanNoGroups) { EXPECT_THAT(plan({}, FusionOptions{}).groups, IsEmpty()); }

TEST(FusionPlan, TensorBelowTheSplitSizeIsNotCut) {
  const FusionOptions options{.block_bytes = 64, .group_bytes = 256, .first_group_bytes = 64, .split_bytes = 401};
  const FusionPlan result = plan({{100}, {101}, {10}}, options);  // 400, 404 and 40 bytes
  ASSERT_EQ(result.groups.size(), 3u);
  EXPECT_EQ(result.groups[0].range.end, 112u);  // grown to the end of the first tensor, and on to the end of its block
  EXPECT_EQ(result.groups[1].range.end, 176u);
  EXPECT_THAT(result.tensors[1].groups, ElementsAre(1, 2));
}

TEST(FusionPlan, GivenCutsAreTaken) {
  const FusionPlan result = plan_fusion_at({{32}, {32}, {20}}, 64, {{0, 1, 4}}).value();
  check_invariants({{32}, {32}, {20}}, result);
  ASSERT_EQ(result.groups.size(), 3u);
  EXPECT_EQ(result.groups[1].range, (model::BlockRange{16, 64, 16}));
  EXPECT_EQ(result.groups[2].range, (model::BlockRange{64, 84, 16}));
}

TEST(FusionPlan, RefusesMoreGroupsThanBlocksAndCutsOutOfOrder) {
  const auto more = plan_fusion_at({{32}}, 64, {{0, 1, 2}});
  EXPECT_THAT(std::string(more.status().message()), HasSubstr("3 groups are more than the 2 blocks of 64 bytes"));
  for (const std::vector<std::size_t>& begins : {std::vector<std::size_t>{1}, {0, 0}, {0, 2}, {}}) {
    EXPECT_EQ(plan_fusion_at({{32}}, 64, {begins}).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(FusionPlan, RefusesSizesOfZeroAndNamesThem) {
  const auto result = plan_fusion({{1}}, {.block_bytes = 1, .group_bytes = 0});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("group_bytes is 0"));
}

}  // namespace
}  // namespace maypole::overlap
