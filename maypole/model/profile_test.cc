// SPDX-License-Identifier: Apache-2.0
#include "maypole/model/profile.h"

#include "maypole/model/status_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace maypole::model {
namespace {

Profile two_layers() {
  Profile profile;
  profile.layers = {{"first", {1, 0}, {2, 0}}, {"second", {3, 0}, {4, 0}}};
  profile.tensors = {{"first.weight", 0, 10, base::DType::kFloat32}, {"second.weight", 1, 5, base::DType::kBFloat16}};
  return profile;
}

TEST(Profile, AddsUpTimesAndBytes) {
  const Profile profile = two_layers();
  EXPECT_TRUE(check_profile(profile).ok());
  EXPECT_EQ(profile.forward_s(), 4);
  EXPECT_EQ(profile.backward_s(), 6);
  EXPECT_EQ(profile.bytes(), 50u);
}

TEST(Profile, NamesTheFieldOfATimeThatIsNegativeOrNoNumber) {
  Profile profile = two_layers();
  profile.layers[1].backward.median_s = -1;
  EXPECT_THAT(check_profile(profile), FailsWith("layers[1].backward_s: the time of layer 'second' is -1"));
  profile = two_layers();
  profile.layers[0].forward.median_s = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(check_profile(profile), FailsWith("layers[0].forward_s"));
  profile = two_layers();
  profile.update_s = -0.5;
  EXPECT_THAT(check_profile(profile), FailsWith("update_s"));
}

TEST(Profile, RefusesATensorThatNoLayerOwns) {
  Profile profile = two_layers();
  profile.tensors[1].layer = 2;
  EXPECT_THAT(check_profile(profile), FailsWith("tensors[1].layer: no layer owns the tensor 'second.weight'"));
}

TEST(Profile, RefusesTensorsThatAreNotInOrderOfFirstUse) {
  Profile profile = two_layers();
  std::swap(profile.tensors[0], profile.tensors[1]);
  EXPECT_THAT(check_profile(profile), FailsWith("tensors[1]: 'first.weight' of layer 'first' stands after 'second.weight'"));
}

TEST(Profile, RefusesARingOfNoWorkersAndNegativeCosts) {
  Profile profile = two_layers();
  profile.ring = MeasuredRing{0, 1e-4, 1e-9};
  EXPECT_THAT(check_profile(profile), FailsWith("ring.workers"));
  profile.ring = MeasuredRing{2, -1e-4, 1e-9};
  EXPECT_THAT(check_profile(profile), FailsWith("ring: alpha_s is -0.0001"));
}

TEST(Profile, NeedsALayer) { EXPECT_THAT(check_profile({}), FailsWith("at least one layer")); }

}  // namespace
}  // namespace maypole::model
