// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/profile_progress.h"

#include "maypole/base/status.h"
#include "maypole/overlap/iteration_simulator.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

namespace maypole::overlap {
namespace {

constexpr double kTolerance = 1e-3;
constexpr int kMostHalvings = 12;
constexpr std::size_t kEachWorker = 16;

using Line = std::function<double(double)>;  // s per byte -> s per iteration
using Point = model::IterationPoint;

bool on_line(const Point& begin, const Point& end, double s_per_byte, double iteration_s) {
  const double share = (s_per_byte - begin.s_per_byte) / (end.s_per_byte - begin.s_per_byte);
  return std::abs(std::lerp(begin.iteration_s, end.iteration_s, share) - iteration_s) <= kTolerance * iteration_s;
}

/// Adds the points between two, and the second one.
void halve(const Line& line, const Point& begin, const Point& end, int halvings, std::vector<Point>& points) {
  const auto at = [&](double share) {
    Point point = begin;
    point.s_per_byte = std::lerp(begin.s_per_byte, end.s_per_byte, share);
    point.iteration_s = line(point.s_per_byte);
    return point;
  };
  const auto fits = [&](const Point& point) { return on_line(begin, end, point.s_per_byte, point.iteration_s); };
  const Point middle = at(0.5);
  if (halvings > 0 && !(fits(middle) && fits(at(0.25)) && fits(at(0.75)))) {
    halve(line, begin, middle, halvings - 1, points);
    halve(line, middle, end, halvings - 1, points);
    return;
  }
  points.push_back(end);
}

void add_points(const Line& line, std::size_t workers, bool spread, double link_bound, std::vector<Point>& points) {
  const auto at = [&](double s_per_byte) { return Point{static_cast<int>(workers), spread, s_per_byte, line(s_per_byte)}; };
  points.push_back(at(0));
  if (workers == 1) {
    return;
  }
  // From some point on only the link counts, and time grows in proportion: there the line may be prolonged.
  Point end = at(link_bound);
  for (int doubling = 0; doubling < kMostHalvings; ++doubling) {
    const Point further = at(2 * end.s_per_byte);
    const Point furthest = at(4 * end.s_per_byte);
    if (on_line(end, furthest, further.s_per_byte, further.iteration_s)) {
      break;
    }
    end = further;
  }
  const Point begin = points.back();
  halve(line, begin, end, kMostHalvings, points);
  points.push_back(at(2 * end.s_per_byte));
}

std::vector<std::size_t> workers_up_to(std::size_t most) {
  std::vector<std::size_t> workers;
  for (std::size_t count = 1; count < most; count += std::max<std::size_t>(1, count / kEachWorker)) {
    workers.push_back(count);
  }
  workers.push_back(most);
  return workers;
}

}  // namespace

absl::StatusOr<model::ProgressModel> progress_of(const model::Profile& profile, const ProfiledJob& job) {
  MAYPOLE_RETURN_IF_ERROR(model::check_profile(profile));
  MAYPOLE_RETURN_IF_ERROR(check_network(job.network));
  MAYPOLE_ASSIGN_OR_RETURN(const std::unique_ptr<Schedule> schedule, make_schedule(job.schedule));
  if (job.update == UpdateMode::kSharded && !schedule->traits().allows_sharded) {
    return base::error(absl::StatusCode::kInvalidArgument, "schedule {} has no sharded updates: take dear or weave, or replicated",
                       job.schedule);
  }
  if (job.max_workers == 0) {
    return base::error(absl::StatusCode::kInvalidArgument, "a job needs at least one worker");
  }
  MAYPOLE_ASSIGN_OR_RETURN(const FusionPlan plan, plan_fusion(planned_tensors(profile), job.fusion));
  const std::vector<GroupLoad> loads = group_loads(profile, plan);

  model::ProgressModel progress;
  progress.kind = model::ProgressKind::kProfile;
  const auto bandwidth_of = [](const EdgeCost& edge) { return base::Bandwidth{edge.beta_s_per_byte > 0 ? 1 / edge.beta_s_per_byte : 0}; };
  progress.bandwidth = bandwidth_of(job.network.between_hosts);
  progress.local_bandwidth = bandwidth_of(job.network.within_host);
  for (const bool spread : {false, true}) {
    for (const std::size_t workers : workers_up_to(job.max_workers)) {
      if (spread && workers == 1) {
        continue;
      }
      const Line line = [&](double s_per_byte) {
        Network network = job.network;  // one ring, whose edges all cost the same
        network.collective = Collective::kRing;
        network.workers_per_host = 1;
        if (!spread) {
          network.between_hosts = job.network.within_host;
          network.contention_s_per_byte = 0;
        }
        network.between_hosts.beta_s_per_byte = s_per_byte;
        IterationSetting setting = setting_of(profile, network, workers);
        setting.update = job.update;
        return simulate(*schedule, loads, setting).iteration_s;
      };
      const double bytes = static_cast<double>(profile.bytes());
      const double link_bound = 2 * (line(0) + profile.update_s) / std::max(1.0, bytes);
      add_points(line, workers, spread, link_bound, progress.iterations);
    }
  }
  return progress;
}

}  // namespace maypole::overlap
