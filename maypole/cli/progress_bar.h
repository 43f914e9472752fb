// SPDX-License-Identifier: Apache-2.0
#pragma once

// How far a long run is, on a terminal only: one line on standard error that is written over, and gone at the end.

#include "maypole/base/units.h"

#include <string>

namespace maypole::cli {

class ProgressBar {
 public:
  /// Shows nothing where standard error is no terminal.
  explicit ProgressBar(std::string what);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  /// `share` in [0, 1]; drawn at most ten times a second.
  void show(double share, const std::string& detail);

 private:
  std::string what_;
  bool terminal_;
  bool shown_ = false;
  base::TimePoint last_;
};

}  // namespace maypole::cli
