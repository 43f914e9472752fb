// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/ring_plan.h"

#include "maypole/base/check.h"

#include <algorithm>

namespace maypole::comm {

namespace {

constexpr std::size_t kMinSegmentBytes = std::size_t{16} << 10;
constexpr std::size_t kMaxSegmentBytes = std::size_t{128} << 10;
constexpr std::size_t kSegmentsPerChunk = 8;

std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

}  // namespace

ChunkMap ChunkMap::shared(const model::BlockRange& range, std::size_t num_ranks, std::size_t segment_elements) {
  MAYPOLE_CHECK_GT(segment_elements, 0u);
  ChunkMap map;
  map.range_ = range;
  map.num_ranks_ = num_ranks;
  map.segment_elements_ = segment_elements;
  return map;
}

ChunkMap ChunkMap::rooted(std::size_t count, std::size_t root, std::size_t num_ranks, std::size_t segment_elements) {
  ChunkMap map = shared(model::whole_buffer(count), num_ranks, segment_elements);
  map.rooted_ = true;
  map.root_ = root;
  return map;
}

model::Interval ChunkMap::chunk_at(std::size_t block, std::size_t chunk) const {
  if (rooted_) {
    return chunk == root_ ? range_.block_at(block) : model::Interval{};
  }
  return range_.chunk_at(block, chunk, num_ranks_);
}

std::size_t ChunkMap::segments_per_full_block(std::size_t chunk) const {
  return range_.size() < range_.block ? 0 : divide_up(chunk_at(0, chunk).size(), segment_elements_);
}

std::size_t ChunkMap::num_segments(std::size_t chunk) const {
  const std::size_t blocks = range_.num_blocks();
  if (blocks == 0) {
    return 0;
  }
  // All blocks but the last are full and have equally many segments.
  return (blocks - 1) * segments_per_full_block(chunk) + divide_up(chunk_at(blocks - 1, chunk).size(), segment_elements_);
}

model::Interval ChunkMap::segment(std::size_t chunk, std::size_t i) const {
  const std::size_t per_block = segments_per_full_block(chunk);
  const std::size_t last = range_.num_blocks() - 1;
  const std::size_t block = per_block == 0 ? last : std::min(i / per_block, last);
  const model::Interval whole = chunk_at(block, chunk);
  const std::size_t begin = whole.begin + (i - block * per_block) * segment_elements_;
  MAYPOLE_CHECK_LT(begin, whole.end);
  return {begin, std::min(begin + segment_elements_, whole.end)};
}

std::size_t segment_bytes_for(std::size_t bytes, std::size_t num_ranks) {
  const std::size_t wanted = bytes / num_ranks / kSegmentsPerChunk;
  const std::size_t rounded = divide_up(std::max<std::size_t>(wanted, 1), 64) * 64;  // whole cache lines, whole elements of every type
  return std::clamp(rounded, kMinSegmentBytes, kMaxSegmentBytes);
}

}  // namespace maypole::comm
