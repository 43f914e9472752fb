// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/paper_models.h"

#include "maypole/model/status_testing.h"
#include "maypole/overlap/fusion_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace maypole::overlap {
namespace {

/// Counted by others from the definitions in torchvision and transformers (BERT's vocabulary padded to 30,528, its decoder tied).
struct Counted {
  const char* name;
  std::size_t batch;
  std::size_t modules;
  std::size_t tensors;
  double million_parameters;
  double megabytes;
  std::ptrdiff_t small_tensors;  // below 64 KiB
};

class PaperModels : public ::testing::TestWithParam<Counted> {};

TEST_P(PaperModels, HaveTheCountsOfTheirDefinitions) {
  const Counted& expected = GetParam();
  const model::Profile profile = paper_profile(expected.name).value();
  EXPECT_TRUE(model::check_profile(profile).ok());
  EXPECT_TRUE(profile.modelled);
  EXPECT_EQ(profile.batch, expected.batch);
  EXPECT_EQ(profile.layers.size(), expected.modules);
  EXPECT_EQ(profile.tensors.size(), expected.tensors);
  EXPECT_NEAR(static_cast<double>(profile.bytes()) / 4e6, expected.million_parameters, 0.0051);
  EXPECT_NEAR(static_cast<double>(profile.bytes()) / 1e6, expected.megabytes, 0.051);
  EXPECT_EQ(std::ranges::count_if(profile.tensors, [](const auto& tensor) { return tensor.bytes() < (64 << 10); }), expected.small_tensors);
  EXPECT_NEAR(profile.backward_s(), 2 * profile.forward_s(), 1e-9);
}

INSTANTIATE_TEST_SUITE_P(All, PaperModels,
                         ::testing::Values(Counted{"resnet50", 64, 107, 161, 25.56, 102.2, 109},
                                           Counted{"densenet201", 32, 402, 604, 20.01, 80.1, 406},
                                           Counted{"inceptionv4", 64, 299, 449, 42.68, 170.7, 303},
                                           Counted{"bert-base", 64, 105, 206, 110.11, 440.4, 129},
                                           Counted{"bert-large", 32, 201, 398, 336.23, 1344.9, 249}));

TEST(PaperModels, ComputeAtTheStatedThroughput) {
  const model::Profile resnet = paper_profile("resnet50").value();
  EXPECT_NEAR(resnet.forward_s() + resnet.backward_s(), 64 / 253.1, 1e-9);
  // torchvision states 4.09 G multiply-adds a sample.
  double flops = 0;
  for (const DefinedLayer& layer : define_resnet50()) {
    flops += layer.name.ends_with(".norm") ? 0 : layer.forward_flops;
  }
  EXPECT_NEAR(flops / 2e9, 4.09, 0.01);
}

TEST(PaperModels, UnknownOneListsTheNamesThereAre) {
  EXPECT_THAT(paper_profile("vgg16"), model::FailsWith("resnet50, densenet201, inceptionv4, bert-base, bert-large"));
}

}  // namespace
}  // namespace maypole::overlap
