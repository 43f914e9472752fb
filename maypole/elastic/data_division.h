// SPDX-License-Identifier: Apache-2.0
#pragma once

// How samples become global batches, and a global batch the workers' shares. The batches of an epoch of the data depend on nothing that
// changes while a run trains, so a step trains on the same samples whoever takes part in it; only the shares depend on how many do.

#include <absl/status/statusor.h>

#include <cstddef>

namespace maypole::elastic {

/// Positions begin .. end-1 in the order of an epoch of the data, or within a batch.
struct SampleRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::size_t size() const { return end - begin; }
  bool operator==(const SampleRange&) const = default;
};

/// Cuts an epoch of `num_samples` into batches of `batch_size`. What is left at the end is a batch of its own when each of `max_workers`
/// gets a sample of it, and belongs to the last full batch otherwise: no worker ever has a share of nothing.
class DataDivision {
 public:
  /// kInvalidArgument: a batch, or all the data, has fewer samples than there may be workers.
  static absl::StatusOr<DataDivision> make(std::size_t num_samples, std::size_t batch_size, std::size_t max_workers);

  [[nodiscard]] std::size_t num_batches() const { return num_batches_; }
  [[nodiscard]] SampleRange batch(std::size_t index) const;

 private:
  DataDivision(std::size_t num_samples, std::size_t batch_size, std::size_t num_batches)
      : num_samples_(num_samples), batch_size_(batch_size), num_batches_(num_batches) {}

  std::size_t num_samples_;
  std::size_t batch_size_;
  std::size_t num_batches_;
};

/// Rank `rank`'s share of a batch of `num_samples` among `num_ranks`: sizes differ by at most one, the first ranks have more (64 over 3
/// is 22, 21, 21).
[[nodiscard]] SampleRange share_of(std::size_t num_samples, int num_ranks, int rank);

}  // namespace maypole::elastic
