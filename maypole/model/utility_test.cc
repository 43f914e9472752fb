// SPDX-License-Identifier: Apache-2.0
#include "maypole/model/utility.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace maypole::model {
namespace {

// One of each kind, with parameters that bend within the progress tried below.
std::vector<Utility> one_of_each() {
  return {{.kind = UtilityKind::kSqrt},
          {.kind = UtilityKind::kLog},
          {.kind = UtilityKind::kLinear},
          {.kind = UtilityKind::kEnergy, .cost = 0.01},
          {.kind = UtilityKind::kSigmoid, .sensitivity = 0.2, .expected = 40},
          {.kind = UtilityKind::kDeadline, .deadline_s = 10, .late = 0.25, .work = 60}};
}

TEST(UtilityTest, HasTheClosedFormOfItsKind) {
  EXPECT_EQ((Utility{.kind = UtilityKind::kSqrt}).value(9), 3);
  EXPECT_DOUBLE_EQ((Utility{.kind = UtilityKind::kLog}).value(std::exp(2) - 1), 2);
  EXPECT_EQ((Utility{.kind = UtilityKind::kLinear}).value(7), 7);
  EXPECT_EQ((Utility{.kind = UtilityKind::kEnergy, .cost = 0.125}).value(2), 1.5);
  EXPECT_EQ((Utility{.kind = UtilityKind::kSigmoid, .sensitivity = 0.5, .expected = 300}).value(300), 0.5);
  EXPECT_DOUBLE_EQ((Utility{.kind = UtilityKind::kSigmoid, .sensitivity = 0.5, .expected = 300}).value(302), 1 / (1 + std::exp(-1)));
}

TEST(UtilityTest, KeepsSmallDifferencesOfSmallProgress) {
  EXPECT_EQ((Utility{.kind = UtilityKind::kLog}).value(1e-20), 1e-20) << "log(1 + k) would be 0";
}

TEST(UtilityTest, EnergyStaysAtItsPeak) {
  const Utility energy{.kind = UtilityKind::kEnergy, .cost = 0.125};
  EXPECT_EQ(energy.value(4), 2) << "1 / (4 cost), at 1 / (2 cost)";
  EXPECT_EQ(energy.value(1e300), 2);
  EXPECT_EQ((Utility{.kind = UtilityKind::kEnergy, .cost = 0}).value(1e300), 1e300) << "without a cost it is linear";
  EXPECT_EQ((Utility{.kind = UtilityKind::kEnergy, .cost = 1e-320}).value(5), 5);
}

TEST(UtilityTest, ASigmoidIsExactInItsTails) {
  const Utility sigmoid{.kind = UtilityKind::kSigmoid, .sensitivity = 1, .expected = 720};
  EXPECT_GT(sigmoid.value(0), 0) << "exp(-720) is a double, although exp(720) is none";
  EXPECT_DOUBLE_EQ(sigmoid.value(700), std::exp(-20) / (1 + std::exp(-20)));
  EXPECT_DOUBLE_EQ(sigmoid.value(20), std::exp(-700));
  const Utility steep{.kind = UtilityKind::kSigmoid, .sensitivity = 0.999, .expected = 3000};
  EXPECT_EQ(steep.value(0), 0) << "exp(-2997) is not a double";
  EXPECT_EQ(steep.value(1e9), 1);
  const Utility absurd{.kind = UtilityKind::kSigmoid, .sensitivity = 1e300, .expected = 1e300};
  EXPECT_EQ(absurd.value(0), 0);
  EXPECT_EQ(absurd.value(1e301), 1);
}

TEST(UtilityTest, ADeadlineCountsLateProgressByItsShare) {
  const Utility deadline{.kind = UtilityKind::kDeadline, .deadline_s = 10, .late = 0.25, .work = 100};
  EXPECT_EQ(deadline.value(50), 0.5);
  EXPECT_EQ(deadline.value(50, 20), (30 + 0.25 * 20) / 100);
  EXPECT_EQ(deadline.value(100, 100), 0.25) << "all of it late";
  EXPECT_EQ(deadline.value(150), 1) << "more than is due is worth nothing more";
  EXPECT_EQ(deadline.value(150, 100), (50 + 0.25 * 50) / 100) << "of the late half only what was still due";
  EXPECT_EQ(deadline.value(0.3, 0.1 + 0.2), 0.25 * (0.1 + 0.2) / 100) << "sums that round differently give no negative part";
  const Utility worthless{.kind = UtilityKind::kDeadline, .deadline_s = 10, .late = 0, .work = 100};
  EXPECT_EQ(worthless.value(80, 30), 0.5);
}

TEST(UtilityTest, NeverFalls) {
  for (const Utility& utility : one_of_each()) {
    double before = utility.value(0);
    EXPECT_GE(before, 0) << name_of(utility.kind);
    for (double k = 0.5; k < 200; k += 0.5) {
      const double value = utility.value(k);
      EXPECT_GE(value, before) << name_of(utility.kind) << " at " << k;
      before = value;
    }
  }
}

TEST(UtilityTest, TheKindsThatSayTheyAreConcaveAre) {
  for (const Utility& utility : one_of_each()) {
    bool concave = true;
    for (double k = 1; k < 200; k += 1) {
      concave = concave && utility.value(k + 1) - utility.value(k) <= utility.value(k) - utility.value(k - 1) + 1e-12;
    }
    EXPECT_EQ(concave, utility.concave()) << name_of(utility.kind);
  }
}

TEST(UtilityTest, HasTheNamesThatFilesUse) {
  std::string names;
  for (const Utility& utility : one_of_each()) {
    names += std::string(name_of(utility.kind)) + " ";
  }
  EXPECT_EQ(names, "sqrt log linear energy sigmoid deadline ");
}

}  // namespace
}  // namespace maypole::model
