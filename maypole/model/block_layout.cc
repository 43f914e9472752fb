// SPDX-License-Identifier: Apache-2.0
#include "maypole/model/block_layout.h"

#include <algorithm>

namespace maypole::model {

std::size_t BlockRange::chunk_size(std::size_t c, std::size_t num_ranks) const {
  const std::size_t full = size() / block;
  const std::size_t rest = size() % block;
  return full * chunk_of(block, c, num_ranks).size() + chunk_of(rest, c, num_ranks).size();
}

std::vector<Interval> owned_parts(Interval range, std::size_t arena_count, std::size_t block, std::size_t c, std::size_t num_ranks) {
  std::vector<Interval> parts;
  const BlockRange arena{0, arena_count, block};
  for (std::size_t b = range.begin / block; b * block < range.end; ++b) {
    const Interval owned = arena.chunk_at(b, c, num_ranks);
    const Interval part{std::max(owned.begin, range.begin), std::min(owned.end, range.end)};
    if (part.begin < part.end) {
      parts.push_back(part);
    }
  }
  return parts;
}

}  // namespace maypole::model
