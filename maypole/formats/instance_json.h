// SPDX-License-Identifier: Apache-2.0
#pragma once

// A whole scheduling problem as JSON (`--instance`): {version, slot_s, slots, seed, servers, links, jobs}; see docs/formats.md.
//
// Doubles come back with the same bits. Switches are the ends of links that are no servers, in the order in which links name them;
// racks are numbered in the order in which servers name them, and a switch that bears a rack's name is its top.

#include "maypole/formats/document.h"
#include "maypole/model/job.h"

#include <absl/status/statusor.h>

#include <string>
#include <string_view>

namespace maypole::formats {

[[nodiscard]] std::string instance_json(const model::Instance& instance);

/// Reads and checks (model::check_instance) an instance. Errors name the text's `file` and the place: `i.json:12: jobs[3].utility.kind:
/// ...`.
[[nodiscard]] absl::StatusOr<model::Instance> parse_instance(std::string_view text, std::string_view file);
[[nodiscard]] absl::StatusOr<model::Instance> read_instance(const std::string& path);
/// The same where it is a part of another document, whose problems those are.
[[nodiscard]] absl::StatusOr<model::Instance> read_instance(const Value& value, Problems& problems);

/// Only the servers and links of an instance.
[[nodiscard]] absl::StatusOr<model::Cluster> parse_instance_cluster(std::string_view text, std::string_view file);

}  // namespace maypole::formats
