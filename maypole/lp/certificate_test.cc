// SPDX-License-Identifier: Apache-2.0
#include "maypole/lp/certificate.h"

#include <gtest/gtest.h>

namespace maypole::lp {
namespace {

using Point = base::IdVector<ColumnId, double>;
using Multipliers = base::IdVector<RowId, double>;

template <typename Vector>
Vector values(std::initializer_list<double> list) {
  Vector vector;
  for (const double value : list) {
    vector.push_back(value);
  }
  return vector;
}

// maximise 3x + 2y, x + y <= 4, x + 3y <= 6, 0 <= x <= 3: optimum 11 at (3, 1); multipliers (2, 0), and x's bound is worth 1.
LinearProgram small() {
  LinearProgram program;
  const RowId first = program.add_row({.upper = 4});
  const RowId second = program.add_row({.upper = 6});
  program.add_column({.objective = 3, .upper = 3, .terms = {{first, 1}, {second, 1}}});
  program.add_column({.objective = 2, .terms = {{first, 1}, {second, 3}}});
  return program;
}

TEST(CertificateTest, TheOptimumWithItsMultipliersIsAccepted) {
  EXPECT_TRUE(check_optimal(small(), values<Point>({3, 1}), values<Multipliers>({2, 0})).ok());
  EXPECT_DOUBLE_EQ(dual_bound(small(), values<Multipliers>({2, 0})), 11);
}

TEST(CertificateTest, AWorsePointAWorseBoundAndAPointOutsideAreRefused) {
  EXPECT_FALSE(check_optimal(small(), values<Point>({3, 0.9}), values<Multipliers>({2, 0})).ok());
  EXPECT_FALSE(check_optimal(small(), values<Point>({3, 1}), values<Multipliers>({2.1, 0})).ok());
  EXPECT_FALSE(check_optimal(small(), values<Point>({3, 1}), values<Multipliers>({2, -0.1})).ok());
  EXPECT_FALSE(check_optimal(small(), values<Point>({3.1, 0.9}), values<Multipliers>({2, 0})).ok());
  EXPECT_NEAR(primal_violation(small(), values<Point>({3.1, 0.9})), 0.1 / 4, 1e-12);
}

TEST(CertificateTest, ABoundHoldsForAnyMultipliersAndIsInfiniteWhereTheyProveNothing) {
  EXPECT_DOUBLE_EQ(dual_bound(small(), values<Multipliers>({2, 1})), 4 * 2 + 6 * 1);
  EXPECT_EQ(dual_bound(small(), values<Multipliers>({0, 0})), kInfinity);   // y has no bound of its own
  EXPECT_EQ(dual_bound(small(), values<Multipliers>({2, -1})), kInfinity);  // the row has no lower bound
}

TEST(CertificateTest, RepairMakesAFiniteBoundThatIsNoSmallerThanTheOptimum) {
  for (const double first : {-1.0, 0.0, 0.5, 2.0, 7.0}) {
    for (const double second : {-1.0, 0.0, 0.3, 2.0}) {
      const double bound = repaired_dual_bound(small(), values<Multipliers>({first, second}));
      EXPECT_LT(bound, kInfinity);
      EXPECT_GE(bound, 11 - 1e-9) << first << " " << second;
    }
  }
  EXPECT_DOUBLE_EQ(repaired_dual_bound(small(), values<Multipliers>({2, 0})), 11);
  // Column y, left without a bound, is priced out by the second row (6 per 3), not by the first (4 per 1).
  EXPECT_NEAR(repaired_dual_bound(small(), values<Multipliers>({0, 0})), 3 * (3 - 2.0 / 3) + 6 * 2.0 / 3, 1e-9);
}

TEST(CertificateTest, RepairGivesUpWhereAColumnHasNoRow) {
  LinearProgram program;
  program.add_row({.upper = 1});
  program.add_column({.objective = 1});
  EXPECT_EQ(repaired_dual_bound(program, values<Multipliers>({0})), kInfinity);
}

// x + y >= 3 and x + y <= 2.
LinearProgram contradiction() {
  LinearProgram program;
  const RowId first = program.add_row({.lower = 3});
  const RowId second = program.add_row({.upper = 2});
  program.add_column({.terms = {{first, 1}, {second, 1}}});
  program.add_column({.terms = {{first, 1}, {second, 1}}});
  return program;
}

TEST(CertificateTest, AFarkasRayProvesInfeasibilityAndOthersDoNot) {
  EXPECT_TRUE(check_infeasible(contradiction(), values<Multipliers>({-1, 1})).ok());
  EXPECT_FALSE(check_infeasible(contradiction(), values<Multipliers>({1, -1})).ok());
  EXPECT_FALSE(check_infeasible(contradiction(), values<Multipliers>({-1, 1.6})).ok());
  EXPECT_FALSE(check_infeasible(contradiction(), values<Multipliers>({0, 0})).ok());
  EXPECT_FALSE(check_infeasible(small(), values<Multipliers>({1, 1})).ok());
}

TEST(CertificateTest, ADirectionWithoutEndProvesUnboundednessAndOthersDoNot) {
  LinearProgram program;  // maximise x + y, x - y <= 1, y <= 5 through a row of its own
  const RowId first = program.add_row({.upper = 1});
  const RowId second = program.add_row({.upper = 5});
  program.add_column({.objective = 1, .lower = -kInfinity, .terms = {{first, 1}}});
  program.add_column({.objective = -2, .lower = -kInfinity, .terms = {{first, -1}, {second, 1}}});
  EXPECT_TRUE(check_unbounded(program, values<Point>({0, 0}), values<Point>({-1, -1})).ok());
  EXPECT_FALSE(check_unbounded(program, values<Point>({2, 0}), values<Point>({-1, -1})).ok());  // not feasible
  EXPECT_FALSE(check_unbounded(program, values<Point>({0, 0}), values<Point>({1, 1})).ok());    // y ends at 5
  EXPECT_FALSE(check_unbounded(program, values<Point>({0, 0}), values<Point>({-1, 0})).ok());   // gains nothing
}

}  // namespace
}  // namespace maypole::lp
