// SPDX-License-Identifier: Apache-2.0
#include "maypole/model/progress.h"

#include "maypole/base/check.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <span>

namespace maypole::model {

std::string_view name_of(ProgressKind kind) {
  switch (kind) {
    case ProgressKind::kConstant:
      return "constant";
    case ProgressKind::kPower:
      return "power";
    case ProgressKind::kRing:
      return "ring";
    case ProgressKind::kOverlap:
      return "overlap";
    case ProgressKind::kProfile:
      return "profile";
    case ProgressKind::kTable:
      return "table";
  }
  return "?";
}

std::string_view name_of(OverlapSchedule schedule) {
  switch (schedule) {
    case OverlapSchedule::kSync:
      return "sync";
    case OverlapSchedule::kWfbp:
      return "wfbp";
    case OverlapSchedule::kDear:
      return "dear";
    case OverlapSchedule::kWeave:
      return "weave";
  }
  return "?";
}

namespace {

double interpolated(const std::vector<RatePoint>& points, int workers, int servers) {
  // The measured number of servers nearest to ours (ties: the smaller) among the points.
  int nearest = points.front().servers;
  for (const RatePoint& point : points) {
    if (std::abs(point.servers - servers) < std::abs(nearest - servers)) {
      nearest = point.servers;
    }
  }
  RatePoint below{0, nearest, 0};
  for (const RatePoint& point : points) {
    if (point.servers != nearest) {
      continue;
    }
    if (point.workers >= workers) {
      const double share = static_cast<double>(workers - below.workers) / (point.workers - below.workers);
      return below.rate + share * (point.rate - below.rate);
    }
    below = point;
  }
  return below.rate;
}

using Points = std::span<const IterationPoint>;

/// The points of one number of workers, as a broken line.
double along(Points points, double s_per_byte) {
  const auto after = std::ranges::upper_bound(points, s_per_byte, {}, &IterationPoint::s_per_byte);
  const auto end = after == points.end() ? after - 1 : after;
  if (end == points.begin()) {
    return end->iteration_s;
  }
  const auto begin = end - 1;
  const double slope = (end->iteration_s - begin->iteration_s) / (end->s_per_byte - begin->s_per_byte);
  return begin->iteration_s + slope * (s_per_byte - begin->s_per_byte);
}

/// The run of points with as many workers as `first`, which is one of `points`.
Points same_workers(Points points, const IterationPoint& first) {
  const auto run = std::ranges::equal_range(points, first.workers, {}, &IterationPoint::workers);
  return {run.begin(), run.end()};
}

double simulated_iteration_s(const std::vector<IterationPoint>& all, int workers, bool spread, double s_per_byte) {
  const auto placed = std::ranges::equal_range(all, spread, {}, &IterationPoint::spread);
  const Points points = placed.empty() ? Points(all) : Points(placed.begin(), placed.end());
  const auto above = std::ranges::lower_bound(points, workers, {}, &IterationPoint::workers);
  if (above == points.end()) {
    const IterationPoint& most = points.back();
    return along(same_workers(points, most), s_per_byte) * workers / most.workers;
  }
  const double at_above = along(same_workers(points, *above), s_per_byte);
  if (above->workers == workers || above == points.begin()) {
    return at_above;
  }
  const IterationPoint& below = *(above - 1);
  const double share = static_cast<double>(workers - below.workers) / (above->workers - below.workers);
  return std::lerp(along(same_workers(points, below), s_per_byte), at_above, share);
}

}  // namespace

double ProgressModel::iteration_s(const RingShape& shape) const {
  const double w = shape.workers;
  const base::Bandwidth b = shape.servers <= 1 ? local_bandwidth : (shape.bandwidth.limited() ? shape.bandwidth : bandwidth);
  if (kind == ProgressKind::kProfile) {
    return simulated_iteration_s(iterations, shape.workers, shape.servers > 1, b.limited() ? 1 / b.bytes_per_second : 0);
  }
  const double moved = gradient_bytes * (w - 1) / w;
  const double send = b.limited() ? moved / b.bytes_per_second : 0;
  const double reduce = reduce_bytes_per_s > 0 ? moved / reduce_bytes_per_s : 0;
  const double half = send + reduce / 2;  // of the reduce-scatter as of the all-gather; the sum is that of equation (1)
  const double communication = 2 * half;
  switch (kind == ProgressKind::kRing ? OverlapSchedule::kSync : schedule) {
    case OverlapSchedule::kSync:
      return forward_s + backward_s + communication + latency_s;
    case OverlapSchedule::kWfbp:
      return forward_s + std::max(backward_s, communication) + latency_s;
    case OverlapSchedule::kDear:
      return std::max(forward_s, half) + std::max(backward_s, half) + latency_s;
    case OverlapSchedule::kWeave:
      return std::max(forward_s + backward_s, communication) + latency_s;
  }
  return std::numeric_limits<double>::infinity();
}

double ProgressModel::per_slot(const RingShape& shape, double slot_s) const {
  if (shape.workers <= 0) {
    return 0;
  }
  switch (kind) {
    case ProgressKind::kConstant:
      return zeta * shape.workers;
    case ProgressKind::kPower:
      return zeta * reference * std::pow(shape.workers / reference, exponent);
    case ProgressKind::kRing:
    case ProgressKind::kOverlap:
    case ProgressKind::kProfile:
      return slot_s * shape.workers / iteration_s(shape);
    case ProgressKind::kTable:
      return slot_s * interpolated(points, shape.workers, shape.servers);
  }
  return 0;
}

}  // namespace maypole::model
