// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/job_profile.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/formats/profile_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace maypole::cli {

namespace {

using nlohmann::json;

absl::StatusOr<model::Profile> profile_of(int rank, const std::string& report) {
  const json object = json::parse(report, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return base::error(absl::StatusCode::kInvalidArgument, "the report of rank {} is damaged", rank);
  }
  const auto found = object.find("profile");
  if (found == object.end()) {
    return base::error(absl::StatusCode::kFailedPrecondition,
                       "rank {} measured nothing: the script must train by maypole.DistributedOptimizer", rank);
  }
  if (found->is_string()) {
    return base::error(absl::StatusCode::kFailedPrecondition, "rank {} measured nothing: {}", rank, found->get<std::string>());
  }
  return formats::parse_profile(found->dump(), fmt::format("the profile of rank {}", rank));
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

template <typename Field>
model::Timing merged(const std::vector<model::Profile>& profiles, std::size_t layer, Field field) {
  std::vector<double> medians;
  model::Timing timing;
  for (const model::Profile& profile : profiles) {
    const model::Timing& one = profile.layers[layer].*field;
    medians.push_back(one.median_s);
    timing.spread_s = std::max(timing.spread_s, one.spread_s);
  }
  timing.median_s = median(std::move(medians));
  return timing;
}

}  // namespace

absl::StatusOr<model::Profile> merge_profiles(const std::map<int, std::string>& reports) {
  std::vector<model::Profile> profiles;
  for (const auto& [rank, report] : reports) {
    MAYPOLE_ASSIGN_OR_RETURN(model::Profile profile, profile_of(rank, report));
    if (!profiles.empty()) {
      const auto same = [](const model::ProfiledLayer& one, const model::ProfiledLayer& other) { return one.name == other.name; };
      if (!std::ranges::equal(profile.layers, profiles.front().layers, same)) {
        return base::error(absl::StatusCode::kFailedPrecondition,
                           "rank {} used its layers in another order than the first rank: profile with -n 1", rank);
      }
    }
    profiles.push_back(std::move(profile));
  }
  if (profiles.empty()) {
    return base::error(absl::StatusCode::kFailedPrecondition,
                       "no worker measured anything: the script must train by maypole.DistributedOptimizer");
  }
  model::Profile whole = profiles.front();
  for (std::size_t i = 0; i < whole.layers.size(); ++i) {
    whole.layers[i].forward = merged(profiles, i, &model::ProfiledLayer::forward);
    whole.layers[i].backward = merged(profiles, i, &model::ProfiledLayer::backward);
  }
  return whole;
}

std::string profile_table(const model::Profile& profile) {
  std::string text =
      fmt::format("maypole: profile of {}, {} samples an iteration: forward {}, backward {}, {} tensors in {} layers, {}\n", profile.model,
                  profile.batch, base::format_seconds(profile.forward_s()), base::format_seconds(profile.backward_s()),
                  profile.tensors.size(), profile.layers.size(), base::format_bytes(static_cast<double>(profile.bytes())));
  constexpr std::size_t kShown = 10;
  std::vector<std::size_t> bytes(profile.layers.size(), 0);
  for (const model::ProfiledTensor& tensor : profile.tensors) {
    bytes[tensor.layer] += tensor.bytes();
  }
  std::vector<std::size_t> order(profile.layers.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  const auto cost = [&](std::size_t i) { return profile.layers[i].forward.median_s + profile.layers[i].backward.median_s; };
  std::ranges::stable_sort(order, std::greater(), cost);
  order.resize(std::min(order.size(), kShown));
  text += fmt::format("maypole:   {:>10} {:>10} {:>10}   the layers that compute longest\n", "forward", "backward", "size");
  for (const std::size_t i : order) {
    const model::ProfiledLayer& layer = profile.layers[i];
    text += fmt::format("maypole:   {:>10} {:>10} {:>10}   {}\n", base::format_seconds(layer.forward.median_s),
                        base::format_seconds(layer.backward.median_s), base::format_bytes(static_cast<double>(bytes[i])), layer.name);
  }
  return text;
}

}  // namespace maypole::cli
