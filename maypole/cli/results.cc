// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/results.h"

#include "maypole/base/status.h"
#include "maypole/cli/commit.h"
#include "maypole/cli/job_profile.h"
#include "maypole/formats/profile_json.h"

#include <nlohmann/json.hpp>

namespace maypole::cli {

void Results::add_timeline(int rank, std::string_view part, const std::string& host, const std::string& machine) {
  RankTimeline& timeline = timelines_[rank];
  timeline.json += part;
  timeline.host = host;
  timeline.machine = machine;
}

int Results::write(const std::string& report_file, const std::string& timeline_file, const std::map<int, std::string>& hosts,
                   JobOutput& output) {
  bool good = true;
  bool too_short = false;
  std::map<int, pipeline::Report> reports;
  for (const auto& [rank, text] : reports_) {
    auto report = parse_report(text);
    if (report.ok() && report->iterations == 0) {
      too_short = true;
    } else if (report.ok()) {
      reports[rank] = std::move(report).value();
    } else {
      output.say(fmt::format("maypole: the report of rank {} is damaged: {}\n", rank, base::message(report.status())));
    }
  }
  if (!reports.empty()) {
    merged_ = merge_reports(reports);
    output.say(report_table(*merged_) + slow_ranks(reports, hosts));
  }
  const std::string_view why_nothing =
      too_short ? "the run was over before any iteration was measured: those count that follow the first three, and the tuning of groups"
                : "no worker measured anything (a script measures by maypole.DistributedOptimizer)";
  if (too_short && !merged_ && report_file.empty()) {
    output.say(fmt::format("maypole: what communication cost is not known: {}\n", why_nothing));
  }
  const auto save = [&](const char* option, const std::string& file, const absl::StatusOr<std::string>& text) {
    if (file.empty()) {
      return;
    }
    if (absl::IsNotFound(text.status())) {
      const bool stale = remove_file(file);
      output.say(fmt::format("maypole: {} {} is not written: {}{}\n", option, file, why_nothing,
                             stale ? "; the file of an earlier run is removed" : ""));
      return;
    }
    const std::string problem = text.ok() ? write_or_keep(file, *text) : base::message(text.status());
    if (!problem.empty()) {
      output.say(fmt::format("maypole: {}: {}\n", option, problem));
      good = false;
    }
  };
  const absl::Status nothing = absl::NotFoundError("");
  save("--report", report_file, merged_ ? absl::StatusOr<std::string>(report_json(*merged_, describe_machine(), kCommit)) : nothing);
  save("--timeline", timeline_file,
       timelines_.empty() || timeline_file.empty() ? absl::StatusOr<std::string>(nothing) : merge_timelines(timelines_));
  return good ? 0 : 1;
}

void Results::tell_unwritten(std::span<const std::pair<const char*, std::string>> files, JobOutput& output) {
  for (const auto& [option, file] : files) {
    if (!file.empty() && is_file(file)) {
      output.say(fmt::format("maypole: {} {} is not written, since the job failed: the file there is of an earlier run\n", option, file));
    }
  }
}

int Results::write_profile(const std::string& file, JobOutput& output) const {
  auto profile = merge_profiles(reports_);
  if (profile.ok()) {
    profile->source += fmt::format("; {}", describe_machine());
    output.say(profile_table(*profile));
  }
  const std::string problem = profile.ok() ? write_or_keep(file, formats::profile_json(*profile)) : base::message(profile.status());
  if (!problem.empty()) {
    output.say(fmt::format("maypole: profile {} is not written: {}\n", file, problem));
    return 1;
  }
  return 0;
}

std::string Results::summary_json(const Summary& summary) const {
  nlohmann::ordered_json object;
  object["job_id"] = summary.job_id;
  object["exit_code"] = summary.exit_code;
  object["seconds"] = summary.seconds;
  object["world_size"] = summary.world_size;
  object["failed_rank"] = summary.failed_rank ? nlohmann::ordered_json(*summary.failed_rank) : nlohmann::ordered_json();
  object["failed_host"] = summary.failed_host.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(summary.failed_host);
  object["report"] = merged_ ? nlohmann::ordered_json::parse(report_json(*merged_, describe_machine(), kCommit)) : nlohmann::ordered_json();
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace maypole::cli
