// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who owns which element of an arena.
//
// An arena of `count` elements is cut into blocks of `block` elements (the last may be shorter); each block is cut into P chunks, one
// per rank, as evenly as possible: chunk c of a block of length L holds elements [L c / P, L (c+1) / P). The owner of an element
// thus depends on P alone, never on the fusion plan: regrouping moves no byte. A plain buffer is one block.
//
// Notation: P = num_ranks; offsets and counts are elements, never bytes.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace maypole::model {

/// Half-open run of elements.
struct Interval {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::size_t size() const { return end - begin; }
  [[nodiscard]] bool empty() const { return begin == end; }
  bool operator==(const Interval&) const = default;
};

/// Elements [floor(length c / P), floor(length (c+1) / P)) of a run of `length` elements: chunk c of P.
[[nodiscard]] constexpr Interval chunk_of(std::size_t length, std::size_t c, std::size_t num_ranks) {
  return {length * c / num_ranks, length * (c + 1) / num_ranks};
}

/// A run of whole blocks of an arena: what one collective moves.
struct BlockRange {
  std::size_t begin = 0;  // first element; a multiple of `block`
  std::size_t end = 0;    // past the last element; a multiple of `block`, or the end of the arena
  std::size_t block = 1;  // elements per block, > 0

  [[nodiscard]] std::size_t size() const { return end - begin; }
  [[nodiscard]] std::size_t num_blocks() const { return (size() + block - 1) / block; }
  /// Arena elements of block b of this range (b counts from 0).
  [[nodiscard]] Interval block_at(std::size_t b) const {
    const std::size_t first = begin + b * block;
    return {first, first + block < end ? first + block : end};
  }
  /// Arena elements of chunk `c` within block b; may be empty.
  [[nodiscard]] Interval chunk_at(std::size_t b, std::size_t c, std::size_t num_ranks) const {
    const Interval whole = block_at(b);
    const Interval part = chunk_of(whole.size(), c, num_ranks);
    return {whole.begin + part.begin, whole.begin + part.end};
  }
  /// Elements of chunk c over all blocks of the range.
  [[nodiscard]] std::size_t chunk_size(std::size_t c, std::size_t num_ranks) const;
  bool operator==(const BlockRange&) const = default;
};

/// The whole of a plain buffer of n elements as one block: rank r's chunk is contiguous.
[[nodiscard]] constexpr BlockRange whole_buffer(std::size_t n) { return {0, n, n == 0 ? 1 : n}; }

/// The parts of arena elements `range` that rank `c` owns, in ascending order, given the arena's `arena_count` and `block`.
[[nodiscard]] std::vector<Interval> owned_parts(Interval range, std::size_t arena_count, std::size_t block, std::size_t c,
                                                std::size_t num_ranks);

}  // namespace maypole::model
