// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/best_fusion.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/overlap/cut_line.h"
#include "maypole/overlap/peers.h"
#include "maypole/overlap/plan_search.h"
#include "maypole/overlap/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace maypole::overlap {
namespace {

constexpr double kSmallest = 1 << 20;
constexpr double kLargest = 512 << 20;
constexpr std::array kCycles = {1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3};
constexpr std::size_t kSmallTensor = 8192;  // elements

std::string describe(const std::vector<GroupLoad>& groups) {
  const auto [least, most] = std::ranges::minmax_element(groups, {}, &GroupLoad::bytes);
  if (groups.empty()) {
    return "no groups";
  }
  if (groups.size() == 1) {
    return "1 group of " + base::format_bytes(groups.front().bytes);
  }
  return fmt::format("{} groups of {} to {}, the first {}", groups.size(), base::format_bytes(least->bytes),
                     base::format_bytes(most->bytes), base::format_bytes(groups.front().bytes));
}

/// Keeps the best of the groups that are offered under one schedule.
class Best {
 public:
  Best(const Schedule& schedule, IterationSetting setting) : schedule_(schedule), setting_(setting) {}

  void offer(std::vector<GroupLoad> groups, std::string note = "") {
    const double iteration_s = simulate(schedule_, groups, setting_).iteration_s;
    if (!found_ || iteration_s < iteration_s_) {
      found_ = true;
      iteration_s_ = iteration_s;
      groups_ = std::move(groups);
      note_ = std::move(note);
    }
  }

  [[nodiscard]] FusionChoice take(std::string_view name, bool record) {
    setting_.record = record;
    return {std::string(name), describe(groups_) + note_, simulate(schedule_, groups_, setting_)};
  }

 private:
  const Schedule& schedule_;
  IterationSetting setting_;
  bool found_ = false;
  double iteration_s_ = 0;
  std::vector<GroupLoad> groups_;
  std::string note_;
};

class Chooser {
 public:
  Chooser(const model::Profile& profile, const Network& network, std::size_t workers, const ChoiceOptions& options)
      : profile_(profile), network_(network), workers_(workers), options_(options), setting_(setting_of(profile, network, workers)) {}

  absl::StatusOr<FusionChoice> choose(std::string_view name) const {
    if (name == "mg-wfbp") {
      return mg_wfbp();
    }
    if (name == "horovod") {
      return horovod();
    }
    if (name == "priority") {
      return priority();
    }
    MAYPOLE_ASSIGN_OR_RETURN(const std::unique_ptr<Schedule> schedule, make_schedule(name));
    Best best(*schedule, setting_);
    MAYPOLE_RETURN_IF_ERROR(offer_cuts(*schedule, best));
    return best.take(name, options_.record);
  }

 private:
  absl::StatusOr<FusionChoice> mg_wfbp() const {
    const auto wfbp = make_schedule("wfbp").value();
    Best best(*wfbp, setting_);
    for (const std::size_t always_below : {std::size_t{0}, kSmallTensor}) {
      best.offer(group_loads(profile_, plan_mg_wfbp(profile_, {.phase = setting_.phase, .always_below_elements = always_below})));
    }
    return best.take("mg-wfbp", options_.record);
  }

  absl::StatusOr<FusionChoice> horovod() const {
    const auto wfbp = make_schedule("wfbp").value();
    Best best(*wfbp, setting_);
    for (double bytes = kSmallest; bytes <= kLargest; bytes *= 2) {
      for (const double cycle_s : kCycles) {
        best.offer(horovod_groups(profile_, {bytes, cycle_s, negotiation_s(network_, workers_)}),
                   fmt::format("; buffer {}, cycle {}", base::format_bytes(bytes), base::format_seconds(cycle_s)));
      }
    }
    return best.take("horovod", options_.record);
  }

  absl::StatusOr<FusionChoice> priority() const {
    const auto schedule = make_priority_schedule();
    Best best(*schedule, setting_);
    for (double bytes = kSmallest; bytes <= kLargest; bytes *= 2) {
      best.offer(tensor_parts(profile_, bytes), fmt::format("; parts of {}", base::format_bytes(bytes)));
    }
    MAYPOLE_RETURN_IF_ERROR(offer_cuts(*schedule, best));
    return best.take("priority", options_.record);
  }

  absl::Status offer_cuts(const Schedule& schedule, Best& best) const {
    const std::vector<PlannedTensor> tensors = planned_tensors(profile_);
    const auto line = CutLine::make(profile_, options_.block_bytes);
    if (options_.num_groups) {
      MAYPOLE_RETURN_IF_ERROR(line.status());
      std::vector<std::size_t> begins(*options_.num_groups);
      for (std::size_t g = 0; g < begins.size(); ++g) {
        begins[g] = g * line->num_blocks() / begins.size();
      }
      MAYPOLE_ASSIGN_OR_RETURN(const FusionPlan plan, plan_fusion_at(tensors, options_.block_bytes, {begins}));
      best.offer(group_loads(profile_, plan));
    } else if (line.ok()) {
      best.offer(line->loads(best_cuts(*line, setting_, schedule)));
    } else {
      for (double bytes = static_cast<double>(options_.block_bytes); bytes <= kLargest; bytes *= 2) {
        FusionOptions sizes;
        sizes.block_bytes = options_.block_bytes;
        sizes.group_bytes = static_cast<std::size_t>(bytes);
        MAYPOLE_ASSIGN_OR_RETURN(const FusionPlan plan, plan_fusion(tensors, sizes));
        best.offer(group_loads(profile_, plan));
      }
    }
    return absl::OkStatus();
  }

  const model::Profile& profile_;
  const Network& network_;
  std::size_t workers_;
  const ChoiceOptions& options_;
  IterationSetting setting_;
};

}  // namespace

const std::vector<std::string>& simulated_schedules() {
  static const std::vector<std::string> names = {"sync", "wfbp", "mg-wfbp", "horovod", "priority", "dear", "weave"};
  return names;
}

absl::StatusOr<FusionChoice> choose_fusion(const model::Profile& profile, const Network& network, std::size_t workers,
                                           std::string_view schedule, const ChoiceOptions& options) {
  if (std::ranges::find(simulated_schedules(), schedule) == simulated_schedules().end()) {
    return base::error(absl::StatusCode::kInvalidArgument, "schedule '{}' is unknown; take one of {}", schedule,
                       fmt::join(simulated_schedules(), ", "));
  }
  MAYPOLE_RETURN_IF_ERROR(check_network(network));
  if (workers == 0) {
    return base::error(absl::StatusCode::kInvalidArgument, "a job needs at least one worker");
  }
  return Chooser(profile, network, workers, options).choose(schedule);
}

}  // namespace maypole::overlap
