// SPDX-License-Identifier: Apache-2.0
#include "maypole/model/progress.h"

#include "maypole/base/check.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

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

}  // namespace

double ProgressModel::iteration_s(const RingShape& shape) const {
  const double w = shape.workers;
  const base::Bandwidth b = shape.servers <= 1 ? local_bandwidth : (shape.bandwidth.limited() ? shape.bandwidth : bandwidth);
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
      return slot_s * shape.workers / iteration_s(shape);
    case ProgressKind::kTable:
      return slot_s * interpolated(points, shape.workers, shape.servers);
  }
  return 0;
}

}  // namespace maypole::model
