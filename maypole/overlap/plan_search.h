// SPDX-License-Identifier: Apache-2.0
#pragma once

// The best cuts of a model into groups, from its profile and the alpha-beta cost of a phase.
//
// Notation: groups 0 .. m-1 in forward order, group g covers the blocks [s_g, e_g). With a phase of start + n beta, the
// first g+1 groups together cost
//
//   P_g = (g+1) start + beta bytes[0, e_g)
//
// which depends on where the last of them ends and on how many they are, not on where they are cut. Backward runs towards group 0, so
// what is sent after group g became ready at T(s_g) is P_g, and forward needs group g when P_g has been gathered, with Z(s_g) to go:
//
//   wfbp  F + max(B, max_g T(s_g) + 2 P_g)
//   dear  max(F + B, x + y)   x = max(B, max_g T(s_g) + P_g)   y = max_g P_g + Z(s_g)
//
// T and Z both fall along the blocks. So for given limits on x and y the dynamic program "how far do m groups reach" keeps one number a
// step: further is never worse, and the reach of m+1 groups follows from that of m by one search among prefix sums. The least x is
// found by bisection; x + y by branch and bound over x, since the least y falls as x grows. Both are exact where contention and update
// cost nothing, to within 1e-7 of the result.
//
// weave preempts, which no formula of this kind covers: there the best of several plans is improved by moves, each tried in the
// iteration simulator.

#include "maypole/overlap/cut_line.h"
#include "maypole/overlap/iteration_simulator.h"
#include "maypole/overlap/schedule.h"

#include <cstddef>
#include <span>

namespace maypole::overlap {

/// Least iteration under wfbp. Cost: O(groups log blocks) for each of some 40 steps.
[[nodiscard]] Cuts best_wfbp_cuts(const CutLine& line, const IterationSetting& setting);
/// Least iteration under dear.
[[nodiscard]] Cuts best_dear_cuts(const CutLine& line, const IterationSetting& setting);

/// Tries to remove, move and add cuts from each of `starts`, the best first, for at most `trials` runs of the simulator besides those of
/// the starts, of which there must be one.
[[nodiscard]] Cuts improve_cuts(const CutLine& line, const IterationSetting& setting, const Schedule& schedule,
                                std::span<const Cuts> starts, std::size_t trials);

/// The cuts for any schedule: exact ones for wfbp and dear, the result of a search for the others.
[[nodiscard]] Cuts best_cuts(const CutLine& line, const IterationSetting& setting, const Schedule& schedule);

}  // namespace maypole::overlap
