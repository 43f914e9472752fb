// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/paper_models.h"

#include "maypole/base/status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

namespace maypole::overlap {
namespace {

constexpr double kBackwardToForward = 2;

struct Entry {
  std::string_view name;
  std::size_t batch;
  double samples_per_second;  // of one GPU; 0: at the operations per second of ResNet-50
  std::vector<DefinedLayer> (*define)();
};

constexpr std::array kEntries = {
    Entry{"resnet50", 64, 253.1, define_resnet50},
    Entry{"densenet201", 32, 0, define_densenet201},
    Entry{"inceptionv4", 64, 0, define_inceptionv4},
    Entry{"bert-base", 64, 212.8, [] { return define_bert({.layers = 12, .hidden = 768}); }},
    Entry{"bert-large", 32, 49, [] { return define_bert({.layers = 24, .hidden = 1024}); }},
};

double forward_flops(const std::vector<DefinedLayer>& layers) {
  double sum = 0;
  for (const DefinedLayer& layer : layers) {
    sum += layer.forward_flops;
  }
  return sum;
}

/// Operations a second, forward and backward.
double rate_of(const Entry& entry, const std::vector<DefinedLayer>& layers) {
  if (entry.samples_per_second > 0) {
    return entry.samples_per_second * (1 + kBackwardToForward) * forward_flops(layers);
  }
  return rate_of(kEntries.front(), kEntries.front().define());
}

}  // namespace

std::vector<std::string> paper_model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) {
    names.emplace_back(entry.name);
  }
  return names;
}

absl::StatusOr<model::Profile> paper_profile(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name != name) {
      continue;
    }
    const std::vector<DefinedLayer> layers = entry.define();
    const double rate = rate_of(entry, layers);
    model::Profile profile;
    profile.model = std::string(name);
    profile.batch = entry.batch;
    profile.modelled = true;
    profile.source = fmt::format("modelled, not measured: operations of the definition at {:.2f} TFLOP/s, backward {:g} times forward",
                                 rate / 1e12, kBackwardToForward);
    for (const DefinedLayer& layer : layers) {
      const double forward_s = layer.forward_flops * static_cast<double>(entry.batch) / rate;
      for (const DefinedLayer::Tensor& tensor : layer.tensors) {
        profile.tensors.push_back({layer.name + "." + tensor.name, profile.layers.size(), tensor.elements, base::DType::kFloat32});
      }
      profile.layers.push_back({layer.name, {forward_s, 0}, {kBackwardToForward * forward_s, 0}});
    }
    return profile;
  }
  return base::error(absl::StatusCode::kInvalidArgument, "model '{}' is unknown: take one of {}", name,
                     fmt::join(paper_model_names(), ", "));
}

}  // namespace maypole::overlap
