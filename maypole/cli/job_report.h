// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the workers of a job measured, made one: `--report`, `--timeline`, and the table at the end of a run.

#include "maypole/pipeline/report.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <map>
#include <string>
#include <string_view>

namespace maypole::cli {

/// Parses what a worker wrote at its end: the fields of `--report`, and its rank.
[[nodiscard]] absl::StatusOr<pipeline::Report> parse_report(std::string_view json);

/// Medians over ranks of every figure, but the slowest edge's C; what is not a figure is the first rank's. Needs at least one report.
[[nodiscard]] pipeline::Report merge_reports(const std::map<int, pipeline::Report>& by_rank);

/// The `--report` file; `machine` and `commit` say where the figures come from.
[[nodiscard]] std::string report_json(const pipeline::Report& report, std::string_view machine, std::string_view commit);

/// The table for people; each line begins with "maypole: ".
[[nodiscard]] std::string report_table(const pipeline::Report& report);

/// One line per rank whose forward + backward takes over 20 % more than the median of the other ranks; `hosts` by rank.
[[nodiscard]] std::string slow_ranks(const std::map<int, pipeline::Report>& by_rank, const std::map<int, std::string>& hosts);

struct RankTimeline {
  std::string json;     // Chrome trace events: an array, or an object with "traceEvents"
  std::string host;     // host entry, for the name of the track
  std::string machine;  // ranks of one machine share a clock; where another's is wrong by over a second, its ranks begin with the first
};
/// One Chrome trace in which each rank is a process.
[[nodiscard]] absl::StatusOr<std::string> merge_timelines(const std::map<int, RankTimeline>& by_rank);

/// Refuses a path that could not be written at the end of the job: no such folder, one in which nothing can be made, or a folder itself.
[[nodiscard]] absl::Status check_writable(const std::string& path);
/// Replaces the file as a whole, or leaves what was there when the disk is full.
[[nodiscard]] absl::Status write_file(const std::string& path, std::string_view text);

/// Whether a file lies there, not a pipe or the like, and whether one lay there and is removed.
[[nodiscard]] bool is_file(const std::string& path);
[[nodiscard]] bool remove_file(const std::string& path);

/// As write_file(); where that fails the text is kept in the folder for temporary files, if it can be. Returns what went wrong and where
/// the text is then, "" when all is well: what a job has measured is not lost to a full disk.
[[nodiscard]] std::string write_or_keep(const std::string& path, std::string_view text);

/// For the field `machine`: the processors' model, their number and the kernel.
[[nodiscard]] std::string describe_machine();

}  // namespace maypole::cli
