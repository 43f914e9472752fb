// SPDX-License-Identifier: Apache-2.0
#pragma once

// `maypole profile`: what each worker measured becomes one profile.

#include "maypole/model/profile.h"

#include <absl/status/statusor.h>

#include <map>
#include <string>

namespace maypole::cli {

/// Takes the profiles out of the workers' reports, [rank] = JSON; each time becomes the median over ranks, each spread the largest.
/// Errors: a rank that measured nothing (kFailedPrecondition, with its own reason), a damaged profile, ranks with different layers.
[[nodiscard]] absl::StatusOr<model::Profile> merge_profiles(const std::map<int, std::string>& reports);

/// Where time goes, for people: forward, backward, bytes, and the layers that take the most.
[[nodiscard]] std::string profile_table(const model::Profile& profile);

}  // namespace maypole::cli
