// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/cli/timeline_picture.h"
#include "maypole/overlap/iteration_simulator.h"

#include <string>

namespace maypole::cli {

/// One simulated iteration, from the begin of backward to the end of the next forward; `axis_s` makes several comparable.
[[nodiscard]] TimelinePicture picture_of(const overlap::SimulatedIteration& iteration, std::string title, double axis_s);

}  // namespace maypole::cli
