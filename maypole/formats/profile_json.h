// SPDX-License-Identifier: Apache-2.0
#pragma once

// A profile as JSON (`maypole profile -o`, `maypole plan --profile`):
// {version, model, batch, modelled, source, update_s, ring: {workers, alpha_s, beta_s_per_byte} or null,
//  layers: [{name, forward_s, forward_spread_s, backward_s, backward_spread_s}], in the order of forward
//  tensors: [{name, layer, elements, dtype}]}, in the order of first use

#include "maypole/model/profile.h"

#include <absl/status/statusor.h>

#include <string>
#include <string_view>

namespace maypole::formats {

[[nodiscard]] std::string profile_json(const model::Profile& profile);

/// Reads and checks (model::check_profile) a profile. Errors name the text's `file` and the field: `p.json: layers[3].forward_s: ...`.
[[nodiscard]] absl::StatusOr<model::Profile> parse_profile(std::string_view text, std::string_view file);
[[nodiscard]] absl::StatusOr<model::Profile> read_profile(const std::string& path);

}  // namespace maypole::formats
