// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/size_range.h"

#include "maypole/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::cli {
namespace {

TEST(SizeRangeTest, ANumberIsARangeOfItsOwn) {
  EXPECT_EQ(parse_size_range("6")->min, 6);
  EXPECT_EQ(parse_size_range("6")->max, 6);
  EXPECT_EQ(parse_size_range("2:8")->min, 2);
  EXPECT_EQ(parse_size_range("2:8")->max, 8);
}

TEST(SizeRangeTest, AnythingElseIsRefusedWithWhatItShouldLookLike) {
  for (const char* text : {"", ":", "0", "-1", "2:", ":3", "8:2", "2:8:9", "six", "6 ", "+3", "5000", "1.5", "99999999999"}) {
    const auto range = parse_size_range(text);
    ASSERT_FALSE(range.ok()) << text;
    EXPECT_THAT(base::message(range.status()), ::testing::StartsWith("'" + std::string(text) + "' is no number of workers: write one"));
  }
}

}  // namespace
}  // namespace maypole::cli
