// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a job would gain: every schedule with its best fusion on so many workers, what a faster link brings, and where more workers stop
// paying. Weak scaling: each worker has the batch of the profile.

#include "maypole/model/profile.h"
#include "maypole/overlap/best_fusion.h"
#include "maypole/overlap/network_model.h"

#include <absl/status/statusor.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace maypole::cli {

struct WhatIfRow {
  std::size_t workers = 1;
  overlap::FusionChoice choice;
  double efficiency = 0;     // of one worker alone, per worker
  double samples_per_s = 0;  // of all workers
};

/// The schedule `weave` on other links, and on other numbers of workers.
struct LinkGain {
  double factor = 1;  // times the bandwidth
  double iteration_s = 0;
};
struct Growth {
  std::size_t workers = 1;
  double efficiency = 0;
  double samples_per_s = 0;
};

struct WhatIf {
  std::vector<WhatIfRow> rows;  // by workers, then by schedule
  std::vector<LinkGain> links;  // at the most workers asked for
  std::vector<Growth> growth;   // 1, 2, 4 .. 1024 workers
  /// Up to here each worker of a doubling adds at least half of what one alone does; none: up to 1024 and on.
  std::optional<std::size_t> enough_workers;
};

struct WhatIfOptions {
  std::vector<std::size_t> workers;
  std::optional<std::size_t> num_groups = std::nullopt;
};
[[nodiscard]] absl::StatusOr<WhatIf> what_if(const model::Profile& profile, const overlap::Network& network, const WhatIfOptions& options);

[[nodiscard]] std::string what_if_text(const WhatIf& answer, const model::Profile& profile, const overlap::Network& network);
[[nodiscard]] std::string what_if_json(const WhatIf& answer, const model::Profile& profile, const overlap::Network& network);
[[nodiscard]] std::string what_if_html(const WhatIf& answer, const model::Profile& profile, const overlap::Network& network);

}  // namespace maypole::cli
