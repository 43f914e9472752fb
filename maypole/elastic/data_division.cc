// SPDX-License-Identifier: Apache-2.0
#include "maypole/elastic/data_division.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"

#include <algorithm>

namespace maypole::elastic {

absl::StatusOr<DataDivision> DataDivision::make(std::size_t num_samples, std::size_t batch_size, std::size_t max_workers) {
  if (batch_size < max_workers) {
    return base::error(absl::StatusCode::kInvalidArgument,
                       "a batch of {} samples cannot be divided over {} workers: take a larger batch_size or fewer workers", batch_size,
                       max_workers);
  }
  if (num_samples < max_workers) {
    return base::error(absl::StatusCode::kInvalidArgument,
                       "a data set of {} samples cannot be divided over {} workers: take more data or fewer workers", num_samples,
                       max_workers);
  }
  const std::size_t full = num_samples / batch_size;
  const std::size_t rest = num_samples % batch_size;
  return DataDivision(num_samples, batch_size, std::max<std::size_t>(1, full + (rest >= max_workers ? 1 : 0)));
}

SampleRange DataDivision::batch(std::size_t index) const {
  MAYPOLE_CHECK_LT(index, num_batches_);
  return {index * batch_size_, index + 1 == num_batches_ ? num_samples_ : (index + 1) * batch_size_};
}

SampleRange share_of(std::size_t num_samples, int num_ranks, int rank) {
  const auto ranks = static_cast<std::size_t>(num_ranks);
  const auto r = static_cast<std::size_t>(rank);
  const std::size_t each = num_samples / ranks;
  const std::size_t more = num_samples % ranks;
  const std::size_t begin = r * each + std::min(r, more);
  return {begin, begin + each + (r < more ? 1 : 0)};
}

}  // namespace maypole::elastic
