// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/cli/cluster_view.h"
#include "maypole/cli/job_view.h"

#include <string>
#include <vector>

namespace maypole::cli {

/// What `maypole top` has learnt.
struct TopView {
  std::string address;  // of the daemon
  ClusterView cluster;
  JobList running;  // those that hold capacity, or did and wait to go on
  JobList waiting;  // in the order of their ids
  double now_s = 0;
  std::string trouble;  // why it may be old; empty: it is not
};

struct FrameSize {
  std::size_t columns = 80;
  std::size_t lines = 24;
};

/// Servers, then what runs, then what waits, in lines that fit the size. What there is no room for is counted.
[[nodiscard]] std::vector<std::string> top_frame(const TopView& view, const FrameSize& size);

}  // namespace maypole::cli
