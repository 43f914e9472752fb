// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reads a timeline that `maypole run --timeline` wrote (Chrome trace events) and picks iterations out of it.

#include "maypole/cli/timeline_picture.h"

#include <absl/status/statusor.h>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::cli {

struct RecordedRank {
  std::string name;
  std::vector<PictureSpan> spans;  // times of the recording's clock
};

/// What a rank's iterations were made of, from one begin of backward to the next: medians, seconds. Passes count without what they waited.
struct RecordedIterations {
  std::size_t count = 0;
  double iteration_s = 0;
  double forward_s = 0;
  double backward_s = 0;
  double exposed_s = 0;
  double reduce_scatter_s = 0;
  double all_gather_s = 0;
};

struct RecordedTimeline {
  std::map<int, RecordedRank> ranks;

  /// Of one rank, as the picture shows it.
  [[nodiscard]] RecordedIterations iterations(int rank) const;
  /// `count` iterations of every rank, the last ones that are whole on the first rank; all there is where there are not so many.
  [[nodiscard]] TimelinePicture picture(std::string title, std::size_t count) const;
};

/// Errors name `file`: no JSON, no trace, or no events of ours.
[[nodiscard]] absl::StatusOr<RecordedTimeline> parse_timeline(std::string_view text, std::string_view file);

}  // namespace maypole::cli
