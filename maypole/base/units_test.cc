// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::base {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;

TEST(UnitsTest, NominalRatesBecomePayload) {
  EXPECT_THAT(parse_bandwidth("200Mbps")->bytes_per_second, DoubleNear(200e6 / 8 * 0.95, 1));
  EXPECT_THAT(parse_bandwidth("10Gbps")->bytes_per_second, DoubleNear(10e9 / 8 * 0.95, 1));
  EXPECT_THAT(parse_bandwidth("125MB/s")->bytes_per_second, DoubleNear(125e6 * 0.95, 1));
}

TEST(UnitsTest, WrongRatesAreRefusedWithTheUnitsThereAre) {
  for (const char* text : {"", "fast", "10", "-5Mbps", "10Mbpss", "nanGbps", "0Mbps"}) {
    EXPECT_FALSE(parse_bandwidth(text).ok()) << text;
  }
  EXPECT_THAT(std::string(parse_bandwidth("10 parsecs").status().message()), HasSubstr("Mbps"));
}

TEST(UnitsTest, SizesKnowDecimalAndBinaryPrefixes) {
  EXPECT_EQ(*parse_bytes("25MB"), 25'000'000u);
  EXPECT_EQ(*parse_bytes("64KiB"), 65'536u);
  EXPECT_EQ(*parse_bytes("4096"), 4096u);
  EXPECT_FALSE(parse_bytes("-1").ok());
}

TEST(UnitsTest, OneOfAKindIsNoPlural) {
  EXPECT_EQ(counted(1, "worker"), "1 worker");
  EXPECT_EQ(counted(0, "worker"), "0 workers");
  EXPECT_EQ(counted(12, "group"), "12 groups");
}

TEST(UnitsTest, DurationsReadAsPeopleWriteThem) {
  EXPECT_EQ(*parse_duration("500ms"), std::chrono::milliseconds(500));
  EXPECT_EQ(*parse_duration("5min"), std::chrono::minutes(5));
  EXPECT_EQ(*parse_duration("2"), std::chrono::seconds(2));
  EXPECT_FALSE(parse_duration("soon").ok());
}

TEST(UnitsTest, RatesAreWrittenWithoutExponents) {
  EXPECT_EQ(format_bandwidth(*parse_bandwidth("25Gbps")), "23.75 Gbit/s of payload");
  EXPECT_EQ(format_bandwidth(*parse_bandwidth("10Gbps")), "9500 Mbit/s of payload");
}

}  // namespace
}  // namespace maypole::base
