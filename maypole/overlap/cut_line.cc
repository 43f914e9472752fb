// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/cut_line.h"

#include "maypole/base/status.h"

#include <algorithm>

namespace maypole::overlap {

absl::StatusOr<CutLine> CutLine::make(const model::Profile& profile, std::size_t block_bytes) {
  MAYPOLE_ASSIGN_OR_RETURN(
      const FusionPlan finest,
      plan_fusion(planned_tensors(profile), {.block_bytes = block_bytes, .group_bytes = block_bytes, .first_group_bytes = block_bytes}));
  if (finest.arenas.size() > 1) {
    return base::error(absl::StatusCode::kInvalidArgument, "the tensors have {} dtypes: cuts are searched within one only",
                       finest.arenas.size());
  }
  return CutLine(group_loads(profile, finest));
}

CutLine::CutLine(std::span<const GroupLoad> blocks) : blocks_(blocks.begin(), blocks.end()), bytes_before_(blocks.size() + 1, 0) {
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    bytes_before_[b + 1] = bytes_before_[b] + blocks_[b].bytes;
  }
}

std::size_t CutLine::furthest(std::size_t from, double bytes) const {
  const auto begin = bytes_before_.begin() + static_cast<std::ptrdiff_t>(from) + 1;
  return static_cast<std::size_t>(std::upper_bound(begin, bytes_before_.end(), bytes) - bytes_before_.begin()) - 1;
}

std::vector<GroupLoad> CutLine::loads(const Cuts& cuts) const {
  std::vector<GroupLoad> loads(cuts.size());
  for (std::size_t g = 0; g < cuts.size(); ++g) {
    loads[g] = blocks_[cuts[g]];
    loads[g].bytes = bytes_before_[g + 1 < cuts.size() ? cuts[g + 1] : num_blocks()] - bytes_before_[cuts[g]];
  }
  return loads;
}

Cuts CutLine::even_cuts(double first_bytes, double group_bytes) const {
  Cuts cuts;
  double target = first_bytes;
  for (std::size_t begin = 0; begin < num_blocks();) {
    cuts.push_back(begin);
    begin = std::max(begin + 1, furthest(begin, bytes_before_[begin] + target * (1 + 1e-12)));
    target = group_bytes;
  }
  return cuts;
}

}  // namespace maypole::overlap
