// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/whole_number.h"

#include <gtest/gtest.h>

namespace maypole::cli {
namespace {

TEST(WholeNumber, OfTheRangeHasNoProblem) {
  for (const char* good : {"1", "07", "4096"}) {
    EXPECT_EQ(whole_number_problem(good, 1, 4096), std::nullopt) << good;
  }
  EXPECT_EQ(whole_number_problem("-3", -5, 5), std::nullopt);
}

TEST(WholeNumber, AnythingElseIsNamedWithWhatIsWanted) {
  for (const char* bad : {"two", "", "0", "4097", "2.0", "2x", " 2", "99999999999999999999"}) {
    EXPECT_EQ(whole_number_problem(bad, 1, 4096), std::string("'") + bad + "' is not a whole number from 1 to 4096");
  }
}

}  // namespace
}  // namespace maypole::cli
