// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/rng.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace maypole::base {
namespace {

TEST(Rng, RepeatsFromItsSeedOnEveryMachine) {
  Rng rng(1);
  const std::array<std::int64_t, 4> first = {rng.uniform_int(0, 99), rng.uniform_int(0, 99), rng.uniform_int(0, 99),
                                             rng.uniform_int(0, 99)};
  Rng again(1);
  for (const std::int64_t value : first) {
    EXPECT_EQ(again.uniform_int(0, 99), value);
  }
  EXPECT_EQ(Rng(5489).bits(), 14514284786278117030ULL);  // the first output of mt19937_64 by its default seed
}

TEST(Rng, StreamsOfOneSeedDiffer) { EXPECT_NE(Rng(1, "instance").bits(), Rng(1, "policy").bits()); }

TEST(Rng, DrawsEveryIntegerOfARangeAboutEquallyOften) {
  Rng rng(7);
  std::array<int, 5> count{};
  for (int i = 0; i < 50000; ++i) {
    ++count[static_cast<std::size_t>(rng.uniform_int(-2, 2) + 2)];
  }
  for (const int n : count) {
    EXPECT_NEAR(n, 10000, 500);
  }
}

TEST(Rng, UniformAndExponentialHaveTheirMeans) {
  Rng rng(3);
  double uniform = 0;
  double exponential = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    uniform += rng.uniform(2, 4) / kDraws;
    exponential += rng.exponential(5) / kDraws;
  }
  EXPECT_NEAR(uniform, 3, 0.02);
  EXPECT_NEAR(exponential, 5, 0.1);
}

}  // namespace
}  // namespace maypole::base
