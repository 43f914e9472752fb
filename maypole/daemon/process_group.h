// SPDX-License-Identifier: Apache-2.0
#pragma once

// All processes of a worker, whatever they have made of themselves since: a control group (cgroup version 2) of its own, where the machine
// lets its user make one. A process leaves it only by moving itself, which takes the right to write in the group above.

#include <absl/status/status.h>

#include <string>

namespace maypole::daemon {

/// The group of this process, in which groups can be made; empty where they cannot.
[[nodiscard]] std::string parent_of_groups();

/// The group of this process, of either version, in which groups can be made that limit their cores; empty where they cannot.
[[nodiscard]] std::string parent_of_quotas();

/// Makes a group, which a child enters by ChildOptions::control_groups.
[[nodiscard]] absl::Status make_group(const std::string& group);
/// No more processor time than so many cores give; of a group below parent_of_quotas().
[[nodiscard]] absl::Status limit_cores(const std::string& group, double cores);
/// Kills all that is in a group and in those below it. True: nothing was left, and the group is gone; else call again.
[[nodiscard]] bool end_group(const std::string& group);

}  // namespace maypole::daemon
