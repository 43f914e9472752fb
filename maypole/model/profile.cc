// SPDX-License-Identifier: Apache-2.0
#include "maypole/model/profile.h"

#include "maypole/base/status.h"

#include <cmath>
#include <numeric>
#include <utility>

namespace maypole::model {
namespace {

bool is_duration(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

}  // namespace

double Profile::forward_s() const {
  return std::accumulate(layers.begin(), layers.end(), 0.0,
                         [](double sum, const ProfiledLayer& layer) { return sum + layer.forward.median_s; });
}

double Profile::backward_s() const {
  return std::accumulate(layers.begin(), layers.end(), 0.0,
                         [](double sum, const ProfiledLayer& layer) { return sum + layer.backward.median_s; });
}

std::size_t Profile::bytes() const {
  return std::accumulate(tensors.begin(), tensors.end(), std::size_t{0},
                         [](std::size_t sum, const ProfiledTensor& tensor) { return sum + tensor.bytes(); });
}

absl::Status check_profile(const Profile& profile) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  if (profile.layers.empty()) {
    return base::error(kInvalid, "layers: a profile needs at least one layer");
  }
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    const ProfiledLayer& layer = profile.layers[i];
    for (const auto& [field, seconds] :
         {std::pair("forward_s", layer.forward.median_s), std::pair("forward_spread_s", layer.forward.spread_s),
          std::pair("backward_s", layer.backward.median_s), std::pair("backward_spread_s", layer.backward.spread_s)}) {
      if (!is_duration(seconds)) {
        return base::error(kInvalid, "layers[{}].{}: the time of layer '{}' is {}: it must be zero or above", i, field, layer.name,
                           seconds);
      }
    }
  }
  if (!(profile.forward_s() + profile.backward_s() > 0)) {
    return base::error(kInvalid, "layers: forward and backward of all layers take no time: nothing was measured");
  }
  if (!is_duration(profile.update_s)) {
    return base::error(kInvalid, "update_s: the time is {}: it must be zero or above", profile.update_s);
  }
  for (std::size_t i = 0; i < profile.tensors.size(); ++i) {
    const ProfiledTensor& tensor = profile.tensors[i];
    if (tensor.layer >= profile.layers.size()) {
      return base::error(kInvalid, "tensors[{}].layer: no layer owns the tensor '{}'", i, tensor.name);
    }
    if (i > 0 && tensor.layer < profile.tensors[i - 1].layer) {
      return base::error(
          kInvalid, "tensors[{}]: '{}' of layer '{}' stands after '{}' of the later layer '{}': list tensors in the order of first use", i,
          tensor.name, profile.layers[tensor.layer].name, profile.tensors[i - 1].name, profile.layers[profile.tensors[i - 1].layer].name);
    }
  }
  if (const auto& ring = profile.ring) {
    if (ring->workers < 1) {
      return base::error(kInvalid, "ring.workers: {} workers make no ring", ring->workers);
    }
    if (!is_duration(ring->alpha_s) || !is_duration(ring->beta_s_per_byte)) {
      return base::error(kInvalid, "ring: alpha_s is {} and beta_s_per_byte {}: both must be zero or above", ring->alpha_s,
                         ring->beta_s_per_byte);
    }
  }
  return absl::OkStatus();
}

}  // namespace maypole::model
