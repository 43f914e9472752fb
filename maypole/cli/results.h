// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/cli/job_output.h"
#include "maypole/cli/job_report.h"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace maypole::cli {

/// What `--json` prints at the end.
struct Summary {
  std::string job_id;
  int world_size = 1;
  double seconds = 0;
  int exit_code = 0;
  std::optional<int> failed_rank;
  std::string failed_host;  // "" = none
};

/// Collects what the workers measured and writes it where it was asked for.
class Results {
 public:
  void add_report(int rank, std::string_view part) { reports_[rank] += part; }
  void add_timeline(int rank, std::string_view part, const std::string& host, const std::string& machine);

  /// After a job that went well: prints the table, writes the files ("" = not asked for). Returns the exit code: 1 when a file could
  /// not be written.
  [[nodiscard]] int write(const std::string& report_file, const std::string& timeline_file, const std::map<int, std::string>& hosts,
                          JobOutput& output);

  /// After a job that failed: what lies at the places of its files is not its own.
  static void tell_unwritten(std::span<const std::pair<const char*, std::string>> files, JobOutput& output);

  /// The same for `maypole profile`: one profile of all workers.
  [[nodiscard]] int write_profile(const std::string& file, JobOutput& output) const;

  [[nodiscard]] std::string summary_json(const Summary& summary) const;

 private:
  std::map<int, std::string> reports_;  // as the workers wrote them
  std::map<int, RankTimeline> timelines_;
  std::optional<pipeline::Report> merged_;
};

}  // namespace maypole::cli
