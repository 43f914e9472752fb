// SPDX-License-Identifier: Apache-2.0
#pragma once

// Some iterations in a row, as one rank saw them, and how all ranks' views become one. Pure: no clock, no threads.
//
//     begin() -> settling iterations, which still run in part in the groups before -> a window -> full: pack() -> [sum over ranks] ->
//     unpack()

#include "maypole/overlap/observed_iteration.h"

#include <cstddef>
#include <span>
#include <vector>

namespace maypole::pipeline {

/// Of one iteration, from one step() to the next; medians where of several.
struct TunedIteration {
  double iteration_s = 0;
  double exposed_s = 0;   // computing stood still
  double backward_s = 0;  // computing from the first gradient to the end of backward
  double busy_s = 0;      // at least one group was in motion
  double update_s = 0;
};

class TuningWindow {
 public:
  TuningWindow(std::size_t num_tensors, int num_ranks, int rank);

  /// `observing`: notes of single tensors are wanted as well.
  void begin(std::size_t settling, std::size_t length, bool observing);
  [[nodiscard]] bool observing() const { return observing_; }
  /// Tensor i's gradient was there after so much computing since the first one; it was used first after so much computing since step().
  void note_ready(std::size_t i, double seconds) { ready_[i] = seconds; }
  void note_need(std::size_t i, double seconds);
  /// An iteration has ended. True when the window is full.
  [[nodiscard]] bool add(const TunedIteration& iteration);

  /// This rank's part of a sum over ranks, of equal length on all: its medians in a slot of its own, and of every tensor the medians and
  /// whether there were any.
  [[nodiscard]] std::vector<double> pack() const;
  struct Seen {
    std::vector<TunedIteration> ranks;
    overlap::ObservedIteration tensors;  // averages over ranks; empty unless observing
  };
  [[nodiscard]] Seen unpack(std::span<const double> sums) const;

 private:
  std::size_t num_tensors_, num_ranks_, rank_;
  std::size_t settling_ = 0, length_ = 0;
  bool observing_ = false;
  std::vector<double> ready_, need_;  // of the iteration that runs; negative: not noted
  std::vector<TunedIteration> iterations_;
  std::vector<std::vector<double>> all_ready_, all_need_;  // [tensor][iteration]
};

}  // namespace maypole::pipeline
