// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the Pollux artifact measured of one application (a folder measured/<application>):
//   placements.csv   placement (GPUs on each server, as digits), local_bsz, step_time, sync_time     up to 16 GPUs
//   scalability.csv  num_nodes, num_replicas, local_bsz, step_time, sync_time                        beyond
//   validation-B.csv progress, iteration, ... of a training with batch B
//
// The time of a step with b samples a worker lies on the line between the measured b's; below the smallest it is that of the smallest;
// above the largest L the step is cut into n = ceil(b / L) equal parts, whose gradients add up: (n - 1) times a part's step without its
// synchronisation, and one whole part. Placements over the same number of servers and workers are averaged, since the progress model
// does not tell them apart.

#include "maypole/model/progress.h"

#include <absl/status/statusor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace maypole::formats {

class PolluxMeasurements {
 public:
  struct Step {
    double local_batch = 0;
    double step_s = 0;
    double sync_s = 0;
    int count = 1;  // placements averaged
  };

  /// Samples that the whole training takes with that batch.
  [[nodiscard]] double samples(double batch) const;
  /// Samples per second at each measured (servers, workers), sorted as a progress table wants.
  [[nodiscard]] std::vector<model::RatePoint> rates(double batch) const;
  /// The most workers that were measured and still get the smallest measured part of the batch; at least 1.
  [[nodiscard]] int most_workers(double batch) const;

 private:
  friend absl::StatusOr<PolluxMeasurements> read_pollux_measurements(const std::string& folder);

  std::map<std::pair<int, int>, std::vector<Step>> steps_;  // [servers, workers]: by local batch
  std::map<double, double> samples_;                        // by batch
};

/// Errors name file, line and field.
[[nodiscard]] absl::StatusOr<PolluxMeasurements> read_pollux_measurements(const std::string& folder);

}  // namespace maypole::formats
