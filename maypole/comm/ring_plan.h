// SPDX-License-Identifier: Apache-2.0
#pragma once

// The ring plan: who sends which bytes to whom at which step. Pure values; `ring_collectives` only carries them out.
//
// Notation. P ranks in ring order; rank r sends to r+1 and receives from r-1 (mod P). A buffer is cut into P chunks, chunk c owned by
// rank c (model/block_layout.h); a chunk travels in segments of at most `segment_elements`, cut at blocks, which are the unit of
// pipelining: while one segment is on the wire the one before is being reduced and the one before that is leaving for the next rank.
//
//   reduce-scatter, step s = 0 .. P-2:  rank r sends chunk r-1-s and receives chunk r-2-s, adding its own part.
//       Chunk c starts at rank c+1 (step 0), collects one part per hop, and arrives complete at its owner c in step P-2.
//   all-gather,     step s = 0 .. P-2:  rank r sends chunk r-s and receives chunk r-1-s.
//       Chunk c starts at its owner c and ends at rank c-1, which does not pass it on.
//
// Cost: (P-1) steps of n/P elements each way per half; both halves together 2(P-1)/P n, the least any all-reduce can move.
// Every rank sends in step order, so the link is busy from the first to the last byte: when step 0 is sent, the first segment of
// step 1 has long arrived.

#include "maypole/model/block_layout.h"

#include <cstddef>
#include <vector>

namespace maypole::comm {

struct RingPosition {
  std::size_t rank = 0;
  std::size_t num_ranks = 1;

  [[nodiscard]] std::size_t next() const { return (rank + 1) % num_ranks; }
  [[nodiscard]] std::size_t previous() const { return (rank + num_ranks - 1) % num_ranks; }
  [[nodiscard]] std::size_t num_steps() const { return num_ranks - 1; }
  /// Chunk that this rank sends in step s of a reduce-scatter; it receives reduce_scatter_send(s + 1).
  [[nodiscard]] std::size_t reduce_scatter_send(std::size_t step) const { return (rank + 2 * num_ranks - 1 - step) % num_ranks; }
  [[nodiscard]] std::size_t reduce_scatter_receive(std::size_t step) const { return reduce_scatter_send(step + 1); }
  /// Step in which this rank receives chunk c of a reduce-scatter (c is not r-1, which starts here).
  [[nodiscard]] std::size_t reduce_scatter_receive_step(std::size_t chunk) const { return (rank + 2 * num_ranks - 2 - chunk) % num_ranks; }
  [[nodiscard]] std::size_t all_gather_send(std::size_t step) const { return (rank + num_ranks - step) % num_ranks; }
  [[nodiscard]] std::size_t all_gather_receive(std::size_t step) const { return all_gather_send(step + 1); }
  /// Step in which this rank receives chunk c of an all-gather (c is not r, which starts here).
  [[nodiscard]] std::size_t all_gather_receive_step(std::size_t chunk) const { return (rank + 2 * num_ranks - 1 - chunk) % num_ranks; }
};

/// How the blocks of a range become chunks: each rank owns its share, or (broadcast) one rank owns everything.
class ChunkMap {
 public:
  /// Chunk c of every block belongs to rank c.
  static ChunkMap shared(const model::BlockRange& range, std::size_t num_ranks, std::size_t segment_elements);
  /// Everything is chunk `root`.
  static ChunkMap rooted(std::size_t count, std::size_t root, std::size_t num_ranks, std::size_t segment_elements);

  [[nodiscard]] std::size_t num_segments(std::size_t chunk) const;
  /// Elements (of the arena) of segment i of a chunk. Cost: O(1).
  [[nodiscard]] model::Interval segment(std::size_t chunk, std::size_t i) const;
  [[nodiscard]] const model::BlockRange& range() const { return range_; }

 private:
  [[nodiscard]] model::Interval chunk_at(std::size_t block, std::size_t chunk) const;
  [[nodiscard]] std::size_t segments_per_full_block(std::size_t chunk) const;

  model::BlockRange range_;
  std::size_t num_ranks_ = 1;
  std::size_t segment_elements_ = 1;
  bool rooted_ = false;
  std::size_t root_ = 0;
};

/// Segment size for a collective over `bytes` bytes by P ranks: small enough that a chunk makes several segments (pipelining), large
/// enough that a segment's header and system calls do not count. The same on every rank, since it depends on the arguments alone.
[[nodiscard]] std::size_t segment_bytes_for(std::size_t bytes, std::size_t num_ranks);

}  // namespace maypole::comm
