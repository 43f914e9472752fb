// SPDX-License-Identifier: Apache-2.0
#pragma once

// Several runs of one instance side by side: a table for the terminal, and one HTML page that needs nothing else (no script, no font,
// no other file): the table, utility and utilisation over time, completion times, and a Gantt chart of workers per job for each policy.

#include "maypole/model/job.h"
#include "maypole/sim/metrics.h"
#include "maypole/sim/simulator.h"

#include <span>
#include <string>
#include <vector>

namespace maypole::sim {

struct ReportRun {
  std::string name;
  const Simulation* simulation = nullptr;  // borrowed
  const Metrics* metrics = nullptr;        // borrowed
};

struct ReportText {
  std::string title;
  double utility_bound = 0;
  std::string utility_bound_kind;
  std::vector<std::string> notes;
};

/// Columns padded with blanks; a line a run.
[[nodiscard]] std::string report_table(std::span<const ReportRun> runs, double utility_bound);
[[nodiscard]] std::string report_html(std::span<const ReportRun> runs, const model::Instance& instance, const ReportText& text);

}  // namespace maypole::sim
