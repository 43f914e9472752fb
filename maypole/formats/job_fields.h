// SPDX-License-Identifier: Apache-2.0
#pragma once

// The parts of a job that several formats share: `utility {kind, ...}` and `progress {kind, ...}`. Their parameters have the names of
// model/utility.h and model/progress.h, and each kind takes its own only.

#include "maypole/formats/document.h"
#include "maypole/model/job.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace maypole::formats {

/// The kind of that name, or none.
[[nodiscard]] std::optional<model::UtilityKind> utility_kind(std::string_view name);
/// `sqrt, log, ...`
[[nodiscard]] std::string utility_kinds();

/// Reads a utility, and beside its parameters the field `weight` where `weight` is not null (job.yaml keeps it there).
[[nodiscard]] model::Utility read_utility(const Value& value, double* weight = nullptr);
[[nodiscard]] std::string utility_json(const model::Utility& utility);

[[nodiscard]] model::ProgressModel read_progress(const Value& value);
/// The same from a file of its own in `folder`, as `maypole plan --progress` writes it. Errors name the file; without a folder every file
/// is refused: a text from elsewhere shall not name files of ours.
[[nodiscard]] absl::StatusOr<model::ProgressModel> read_progress_file(const std::string& folder, const std::string& name);
[[nodiscard]] std::string progress_json(const model::ProgressModel& progress);

/// A number of at least 0, or a size such as `4GB`, for each name.
using NamedAmounts = std::vector<std::pair<std::string, double>>;
[[nodiscard]] NamedAmounts read_amounts(const Value& value);
[[nodiscard]] std::string amounts_json(const model::Amounts& amounts, const model::Cluster& cluster);

/// A rate that JSON holds: payload bytes per second above 0, or null where there is no limit.
[[nodiscard]] std::string limit_json(base::Bandwidth bandwidth);
[[nodiscard]] base::Bandwidth read_limit(const Value& value);

/// A rate that people write, `10Gbps` with its unit; nominal unless `payload`.
[[nodiscard]] base::Bandwidth read_bandwidth(const Value& value, bool payload);
/// A duration that people write: `2h`, or a bare number of seconds.
[[nodiscard]] double read_duration_s(const Value& value);

}  // namespace maypole::formats
