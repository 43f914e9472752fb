// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/measurements.h"

#include <algorithm>

namespace maypole::pipeline {
namespace {

constexpr std::size_t kWarmUp = 3;  // iterations
constexpr std::size_t kKept = 256;

}  // namespace

void Measurements::regroup(std::size_t num_groups) {
  samples_.clear();
  iterations_seen_ = 0;
  current_.group_exposed.assign(num_groups, {});
  current_.group_reduce.assign(num_groups, {});
  current_.group_gather.assign(num_groups, {});
}

void Measurements::mark_forward(base::TimePoint now) {
  forward_begin_ = now;
  exposed_at_phase_ = current_.exposed;
  phase_ = Phase::kForward;
}

void Measurements::mark_backward(base::TimePoint now) {
  if (phase_ == Phase::kForward) {
    current_.forward += now - forward_begin_ - (current_.exposed - exposed_at_phase_);
  }
  backward_begin_ = now;
  computed_at_backward_ = computed(now);
  exposed_at_phase_ = current_.exposed;
  phase_ = Phase::kBackward;
}

void Measurements::end_backward(base::TimePoint now) {
  if (phase_ == Phase::kBackward) {
    current_.backward += now - backward_begin_ - (current_.exposed - exposed_at_phase_);
  }
  phase_ = Phase::kOutside;
}

void Measurements::mark_step(base::TimePoint now) {
  if (last_step_ != base::TimePoint{}) {
    current_.iteration = now - last_step_;
    last_iteration_ = {.iteration_s = base::to_seconds(current_.iteration),
                       .exposed_s = base::to_seconds(current_.exposed),
                       .backward_s = base::to_seconds(current_.backward),
                       .busy_s = base::to_seconds(current_.busy),
                       .update_s = base::to_seconds(current_.update)};
    if (++iterations_seen_ > kWarmUp) {
      samples_.push_back(current_);
      if (samples_.size() > kKept) {
        samples_.pop_front();
      }
    }
  }
  last_step_ = now;
  current_ = Sample(current_.group_exposed.size());
  phase_ = Phase::kOutside;
  exposed_at_phase_ = {};
}

void Measurements::add_exposed(std::size_t group, base::Nanoseconds duration) {
  current_.exposed += duration;
  current_.group_exposed[group] += duration;
}

base::TimePoint Measurements::add_reduce_scatter(std::size_t group, base::TimePoint begin, base::TimePoint end) {
  const base::TimePoint alone = std::min(end, std::max(begin, last_reduce_end_));
  current_.reduce += end - alone;
  current_.group_reduce[group] += end - alone;
  last_reduce_end_ = end;
  add_busy(begin, end);
  return alone;
}

base::TimePoint Measurements::add_all_gather(std::size_t group, base::TimePoint begin, base::TimePoint end) {
  const base::TimePoint alone = std::min(end, std::max(begin, last_gather_end_));
  current_.gather += end - alone;
  current_.group_gather[group] += end - alone;
  last_gather_end_ = end;
  add_busy(begin, end);
  return alone;
}

/// The union of what was in motion; operations come in the order of their ends.
void Measurements::add_busy(base::TimePoint begin, base::TimePoint end) {
  current_.busy += end - std::min(end, std::max(begin, last_end_));
  last_end_ = end;
}

void Measurements::fill(Report& report) const {
  const auto median = [&](auto get) {
    std::vector<base::Nanoseconds> values;
    values.reserve(samples_.size());
    for (const Sample& sample : samples_) {
      values.push_back(get(sample));
    }
    if (values.empty()) {
      return 0.0;
    }
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return base::to_seconds(*middle);
  };
  report.iterations = iterations_seen_ > kWarmUp ? iterations_seen_ - kWarmUp : 0;
  report.iteration_s = median([](const Sample& s) { return s.iteration; });
  report.forward_s = median([](const Sample& s) { return s.forward; });
  report.backward_s = median([](const Sample& s) { return s.backward; });
  report.exposed_s = median([](const Sample& s) { return s.exposed; });
  report.reduce_scatter_s = median([](const Sample& s) { return s.reduce; });
  report.all_gather_s = median([](const Sample& s) { return s.gather; });
  report.update_s = median([](const Sample& s) { return s.update; });
  for (std::size_t g = 0; g < report.groups.size(); ++g) {
    report.groups[g].exposed_s = median([g](const Sample& s) { return s.group_exposed[g]; });
    report.groups[g].reduce_scatter_s = median([g](const Sample& s) { return s.group_reduce[g]; });
    report.groups[g].all_gather_s = median([g](const Sample& s) { return s.group_gather[g]; });
  }
}

}  // namespace maypole::pipeline
