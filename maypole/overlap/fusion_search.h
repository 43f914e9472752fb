// SPDX-License-Identifier: Apache-2.0
#pragma once

// Searches for fusion sizes by trying them: ask which sizes to try, tell how long an iteration took. Pure: no clock, no threads; all
// randomness from a seed, so that ranks that tell the same values ask for the same sizes.
//
//   bayes   DeAR's tuner with its flaws mended (docs/planning.md): sizes in log scale, a Gaussian process with a noise term, expected
//   improvement
//           in units of the objective's spread, three sizes at once; ends when no improvement worth the name is expected
//   random  uniform in log scale
//   grid    the points of a lattice in log scale, in random order

#include "maypole/overlap/fusion_plan.h"

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace maypole::overlap {

/// Sizes in bytes; see FusionOptions.
struct FusionSizes {
  double first_group = 0;
  double group = 0;
  double split = 0;
  [[nodiscard]] FusionOptions options(std::size_t block_bytes) const;
};

struct KnownSizes {
  FusionSizes sizes;
  double seconds = 0;
};

struct SearchOptions {
  double smallest = 256 << 10;  // bytes, of every size
  double largest = 256 << 20;
  bool joint = true;                                // else one size for all three, as in the paper
  std::optional<FusionSizes> start = std::nullopt;  // tried first: what a plan proposes, or what runs already
  std::vector<KnownSizes> known = {};               // tried before, elsewhere; bayes asks its model at once instead of spreading samples
  std::size_t most_samples = 30;                    // besides those known
  std::uint64_t seed = 0;
};

class FusionSearch {
 public:
  virtual ~FusionSearch() = default;
  /// The sizes to try next; none: the search has ended.
  [[nodiscard]] virtual std::optional<FusionSizes> ask() = 0;
  /// What the sizes that were asked for last took, in any unit; several iterations' mean or median counts as one sample.
  virtual void tell(double seconds) = 0;
  /// The best sizes so far: of the least value told, or (bayes) of the least that the model expects among those tried.
  [[nodiscard]] virtual FusionSizes best() const = 0;
};

/// Errors list the names there are.
[[nodiscard]] absl::StatusOr<std::unique_ptr<FusionSearch>> make_fusion_search(std::string_view name, const SearchOptions& options);

}  // namespace maypole::overlap
