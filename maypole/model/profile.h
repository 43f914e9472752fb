// SPDX-License-Identifier: Apache-2.0
#pragma once

// What one worker of a job computes in an iteration, and what it has to exchange: measured by `maypole profile`, or modelled from a
// network's definition. From a profile the iteration simulator (overlap/) predicts how long an iteration takes under a schedule, a fusion
// plan, a number of workers and a network.

#include "maypole/base/dtype.h"

#include <absl/status/status.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace maypole::model {

/// Of some iterations: the median, and the distance between the quartiles.
struct Timing {
  double median_s = 0;
  double spread_s = 0;
  bool operator==(const Timing&) const = default;
};

struct ProfiledLayer {
  std::string name;
  Timing forward;
  Timing backward;
  bool operator==(const ProfiledLayer&) const = default;
};

struct ProfiledTensor {
  std::string name;
  std::size_t layer = 0;  // that uses it first: its gradient is there when the backward of this layer ends
  std::size_t elements = 0;
  base::DType dtype = base::DType::kFloat32;

  [[nodiscard]] std::size_t bytes() const { return elements * base::size_of(dtype); }
  bool operator==(const ProfiledTensor&) const = default;
};

/// The ring that the profile ran on: a step that moves n bytes takes alpha_s + n * beta_s_per_byte on every edge.
struct MeasuredRing {
  int workers = 1;
  double alpha_s = 0;
  double beta_s_per_byte = 0;
  bool operator==(const MeasuredRing&) const = default;
};

struct Profile {
  std::string model;
  std::size_t batch = 0;                // samples per worker and iteration
  bool modelled = false;                // not measured
  std::string source;                   // for people: the machine, or where modelled times come from
  double update_s = 0;                  // of all parameters, by one worker
  std::optional<MeasuredRing> ring;     // none: ran alone, or modelled
  std::vector<ProfiledLayer> layers;    // in the order of forward
  std::vector<ProfiledTensor> tensors;  // in the order of first use

  [[nodiscard]] double forward_s() const;
  [[nodiscard]] double backward_s() const;
  [[nodiscard]] std::size_t bytes() const;
  bool operator==(const Profile&) const = default;
};

/// Errors name the field (`layers[3].forward_s: ...`): a negative time, no layers or layers that take no time at all, a tensor of a layer
/// that is not there, or tensors whose layers do not ascend, which then are not in the order of first use.
[[nodiscard]] absl::Status check_profile(const Profile& profile);

}  // namespace maypole::model
