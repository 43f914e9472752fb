// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/search_race.h"

#include "maypole/base/rng.h"
#include "maypole/base/status.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace maypole::overlap {
namespace {

constexpr std::size_t kBlockBytes = 256 << 10;
constexpr std::size_t kLatticeLine = 64;
constexpr std::size_t kLatticeEdge = 8;

double iteration_at(const model::Profile& profile, const IterationSetting& setting, const Schedule& schedule, const FusionSizes& sizes) {
  const FusionPlan plan = plan_fusion(planned_tensors(profile), sizes.options(kBlockBytes)).value();
  return simulate(schedule, group_loads(profile, plan), setting).iteration_s;
}

}  // namespace

absl::StatusOr<SearchRace> SearchRace::make(const model::Profile& profile, const Network& network, std::string_view schedule,
                                            const RaceOptions& options) {
  MAYPOLE_RETURN_IF_ERROR(check_network(network));
  SearchRace race(profile, options);
  MAYPOLE_ASSIGN_OR_RETURN(race.schedule_, make_schedule(schedule));
  race.setting_ = setting_of(profile, network, options.workers);
  const std::size_t edge = options.joint ? kLatticeEdge : kLatticeLine;
  const auto size = [&](std::size_t i) {
    return options.smallest * std::pow(options.largest / options.smallest, static_cast<double>(i) / static_cast<double>(edge - 1));
  };
  race.best_s_ = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < edge; ++i) {
    for (std::size_t j = options.joint ? 0 : i; j < (options.joint ? edge : i + 1); ++j) {
      for (std::size_t k = options.joint ? 0 : i; k < (options.joint ? edge : i + 1); ++k) {
        race.best_s_ = std::min(race.best_s_, iteration_at(profile, race.setting_, *race.schedule_, {size(i), size(j), size(k)}));
      }
    }
  }
  return race;
}

absl::StatusOr<RaceResult> SearchRace::run(std::string_view search_name) const {
  RaceResult result;
  for (std::size_t seed = 0; seed < options_.seeds; ++seed) {
    MAYPOLE_ASSIGN_OR_RETURN(const std::unique_ptr<FusionSearch> search,
                             make_fusion_search(search_name, {.smallest = options_.smallest,
                                                              .largest = options_.largest,
                                                              .joint = options_.joint,
                                                              .most_samples = options_.most_samples,
                                                              .seed = seed}));
    base::Rng rng(seed, "noise");
    std::optional<std::size_t> arrived;
    std::size_t samples = 0;
    while (const std::optional<FusionSizes> sizes = search->ask()) {
      ++samples;
      const double iteration_s = iteration_at(*profile_, setting_, *schedule_, *sizes);
      if (iteration_s <= best_s_ * (1 + options_.tolerance)) {
        arrived = samples;
        break;
      }
      search->tell(iteration_s * (1 + options_.noise * rng.uniform(-1, 1)));
    }
    result.push_back(arrived);
  }
  return result;
}

std::optional<std::size_t> median_samples(RaceResult result) {
  std::ranges::sort(result, [](const auto& a, const auto& b) { return a.has_value() && (!b.has_value() || *a < *b); });
  return result.empty() ? std::nullopt : result[(result.size() - 1) / 2];
}

}  // namespace maypole::overlap
