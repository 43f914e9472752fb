// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where a model may be cut into groups: the blocks of its arena, with what each costs the iteration simulator.

#include "maypole/model/profile.h"
#include "maypole/overlap/iteration_simulator.h"

#include <absl/status/statusor.h>

#include <cstddef>
#include <span>
#include <vector>

namespace maypole::overlap {

/// Groups by the blocks at which they begin: ascending, the first is 0.
using Cuts = std::vector<std::size_t>;

class CutLine {
 public:
  /// Errors: kInvalidArgument where the tensors fill more than one arena (dtype): cuts of one would depend on those of the other.
  [[nodiscard]] static absl::StatusOr<CutLine> make(const model::Profile& profile, std::size_t block_bytes);
  /// Blocks with loads that are known: bytes of any size, ready_s and need_s as a plan has them (descending, ascending).
  explicit CutLine(std::span<const GroupLoad> blocks);

  [[nodiscard]] std::size_t num_blocks() const { return blocks_.size(); }
  /// The load of block b alone.
  [[nodiscard]] const GroupLoad& block(std::size_t b) const { return blocks_[b]; }
  /// Bytes of all blocks before b.
  [[nodiscard]] double bytes_before(std::size_t b) const { return bytes_before_[b]; }
  [[nodiscard]] double bytes() const { return bytes_before_.back(); }
  /// The first block in (from, num_blocks()] before which more than `bytes` lie, minus one; at least `from`.
  [[nodiscard]] std::size_t furthest(std::size_t from, double bytes) const;

  [[nodiscard]] std::vector<GroupLoad> loads(const Cuts& cuts) const;
  /// Cuts into groups of about `group_bytes`, the first of about `first_bytes`.
  [[nodiscard]] Cuts even_cuts(double first_bytes, double group_bytes) const;

 private:
  std::vector<GroupLoad> blocks_;
  std::vector<double> bytes_before_;
};

}  // namespace maypole::overlap
