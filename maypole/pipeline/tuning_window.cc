// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/tuning_window.h"

#include "maypole/base/check.h"

#include <algorithm>
#include <array>

namespace maypole::pipeline {
namespace {

constexpr std::array kFigures = {&TunedIteration::iteration_s, &TunedIteration::exposed_s, &TunedIteration::backward_s,
                                 &TunedIteration::busy_s, &TunedIteration::update_s};
constexpr std::size_t kPerTensor = 4;  // ready, ranks that saw it, need, ranks that saw it
constexpr double kNotNoted = -1;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

TuningWindow::TuningWindow(std::size_t num_tensors, int num_ranks, int rank)
    : num_tensors_(num_tensors),
      num_ranks_(static_cast<std::size_t>(num_ranks)),
      rank_(static_cast<std::size_t>(rank)),
      ready_(num_tensors, kNotNoted),
      need_(num_tensors, kNotNoted),
      all_ready_(num_tensors),
      all_need_(num_tensors) {}

void TuningWindow::begin(std::size_t settling, std::size_t length, bool observing) {
  settling_ = settling;
  length_ = length;
  observing_ = observing;
  iterations_.clear();
  for (std::size_t i = 0; i < num_tensors_; ++i) {
    ready_[i] = need_[i] = kNotNoted;
    all_ready_[i].clear();
    all_need_[i].clear();
  }
}

void TuningWindow::note_need(std::size_t i, double seconds) {
  if (need_[i] < 0) {
    need_[i] = seconds;
  }
}

bool TuningWindow::add(const TunedIteration& iteration) {
  const bool counts = settling_ == 0;
  settling_ -= counts ? 0 : 1;
  if (counts) {
    iterations_.push_back(iteration);
  }
  for (std::size_t i = 0; observing_ && i < num_tensors_; ++i) {
    if (counts && ready_[i] >= 0) {
      all_ready_[i].push_back(ready_[i]);
    }
    if (counts && need_[i] >= 0) {
      all_need_[i].push_back(need_[i]);
    }
    ready_[i] = need_[i] = kNotNoted;
  }
  return counts && iterations_.size() == length_;
}

std::vector<double> TuningWindow::pack() const {
  MAYPOLE_CHECK(!iterations_.empty());
  std::vector<double> packed(num_ranks_ * kFigures.size() + (observing_ ? kPerTensor * num_tensors_ : 0));
  for (std::size_t f = 0; f < kFigures.size(); ++f) {
    std::vector<double> values;
    for (const TunedIteration& iteration : iterations_) {
      values.push_back(iteration.*kFigures[f]);
    }
    packed[rank_ * kFigures.size() + f] = median(std::move(values));
  }
  double* tensor = packed.data() + num_ranks_ * kFigures.size();
  for (std::size_t i = 0; observing_ && i < num_tensors_; ++i, tensor += kPerTensor) {
    if (!all_ready_[i].empty()) {
      tensor[0] = median(all_ready_[i]);
      tensor[1] = 1;
    }
    if (!all_need_[i].empty()) {
      tensor[2] = median(all_need_[i]);
      tensor[3] = 1;
    }
  }
  return packed;
}

TuningWindow::Seen TuningWindow::unpack(std::span<const double> sums) const {
  Seen seen;
  seen.ranks.resize(num_ranks_);
  for (std::size_t r = 0; r < num_ranks_; ++r) {
    for (std::size_t f = 0; f < kFigures.size(); ++f) {
      seen.ranks[r].*kFigures[f] = sums[r * kFigures.size() + f];
    }
  }
  const double* tensor = sums.data() + num_ranks_ * kFigures.size();
  for (std::size_t i = 0; observing_ && i < num_tensors_; ++i, tensor += kPerTensor) {
    seen.tensors.ready_s.push_back(tensor[1] > 0 ? tensor[0] / tensor[1] : 0);
    seen.tensors.need_s.push_back(tensor[3] > 0 ? tensor[2] / tensor[3] : kNotNoted);
  }
  return seen;
}

}  // namespace maypole::pipeline
