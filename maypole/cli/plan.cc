// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/plan.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/cli/prediction.h"
#include "maypole/cli/scenario.h"
#include "maypole/cli/what_if.h"
#include "maypole/cli/whole_number.h"
#include "maypole/formats/job_fields.h"
#include "maypole/formats/number.h"
#include "maypole/formats/profile_json.h"
#include "maypole/formats/text_file.h"
#include "maypole/overlap/paper_models.h"
#include "maypole/overlap/profile_progress.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace maypole::cli {
namespace {

constexpr double kBytesPerGb = 1e9;
constexpr int kMostWorkers = 1 << 20;
constexpr int kMostGroups = 1'000'000;

struct Written {
  std::string profile;
  std::string model;
  std::string save_profile;
  std::string network;
  std::string alpha;
  std::string workers = "8,16,32,64";
  std::string collective = "ring";
  std::size_t workers_per_host = 1;
  double contention = 0;
  std::size_t groups = 0;  // 0: the best
  std::vector<std::string> fit;
  std::vector<std::string> check;
  std::string html;
  std::string progress;
  std::string schedule = "weave";
  std::string group_size;
  bool sharded = false;
  bool json = false;
};

absl::Status for_flag(std::string_view flag, const absl::Status& status) {
  return status.ok() ? status : base::error(absl::StatusCode::kInvalidArgument, "{}: {}", flag, base::message(status));
}

absl::StatusOr<model::Profile> read(const Written& written) {
  if (written.profile.empty() == written.model.empty()) {
    return base::error(absl::StatusCode::kInvalidArgument, "give either --profile or --model");
  }
  if (!written.profile.empty()) {
    return formats::read_profile(written.profile);
  }
  auto profile = overlap::paper_profile(written.model);
  MAYPOLE_RETURN_IF_ERROR(for_flag("--model", profile.status()));
  return profile;
}

absl::StatusOr<overlap::Network> network_of(const Written& written, const model::Profile& profile) {
  overlap::Network network;
  if (!written.network.empty()) {
    auto named = overlap::named_network(written.network);
    MAYPOLE_RETURN_IF_ERROR(for_flag("--network", named.status()));
    network = *std::move(named);
  } else if (profile.ring) {
    network.name = "the ring that was profiled";
    network.between_hosts = {profile.ring->alpha_s, profile.ring->beta_s_per_byte};
    network.within_host = network.between_hosts;
  } else {
    return base::error(absl::StatusCode::kInvalidArgument,
                       "the profile was not measured on a ring: give --network, one of {}, or a rate such as 2.5Gbps",
                       fmt::join(overlap::network_names(), ", "));
  }
  if (!written.alpha.empty()) {
    const auto alpha = base::parse_duration(written.alpha);
    MAYPOLE_RETURN_IF_ERROR(for_flag("--alpha", alpha.status()));
    network.between_hosts.alpha_s = base::to_seconds(*alpha);
  }
  auto collective = overlap::parse_collective(written.collective);
  MAYPOLE_RETURN_IF_ERROR(for_flag("--collective", collective.status()));
  network.collective = *collective;
  network.workers_per_host = written.workers_per_host;
  network.contention_s_per_byte = written.contention / kBytesPerGb;
  MAYPOLE_RETURN_IF_ERROR(overlap::check_network(network));
  return network;
}

absl::StatusOr<std::vector<MeasuredRun>> read_runs(const std::vector<std::string>& paths) {
  std::vector<MeasuredRun> runs;
  for (const std::string& path : paths) {
    MAYPOLE_ASSIGN_OR_RETURN(MeasuredRun run, read_measured_run(path));
    runs.push_back(std::move(run));
  }
  return runs;
}

/// The iterations of reports in the simulator, beside what they took.
absl::Status check_runs(const Written& written, const model::Profile& profile, const overlap::Network& network) {
  MAYPOLE_ASSIGN_OR_RETURN(const std::vector<MeasuredRun> runs, read_runs(written.check));
  std::vector<Prediction> predictions;
  for (const MeasuredRun& run : runs) {
    MAYPOLE_ASSIGN_OR_RETURN(Prediction prediction, predict(profile, network, run));
    predictions.push_back(std::move(prediction));
  }
  if (written.json) {
    fmt::print("{{\"contention_s_per_gb\": {}, \"checks\": {}}}\n", formats::format_number(network.contention_s_per_byte * kBytesPerGb),
               predictions_json(predictions));
  } else {
    fmt::print("contention {:.3g} s/GB\n{}", network.contention_s_per_byte * kBytesPerGb, predictions_text(predictions));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::size_t>> workers_of(const std::string& text) {
  std::vector<std::size_t> workers;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const auto count = formats::parse_unsigned(text.substr(begin, end - begin));
    if (!count || *count == 0 || *count > kMostWorkers) {
      return base::error(absl::StatusCode::kInvalidArgument, "--workers: '{}' is not a list of counts from 1 to {}, such as 8,16,32", text,
                         kMostWorkers);
    }
    workers.push_back(*count);
    begin = end + 1;
  }
  std::ranges::sort(workers);
  workers.erase(std::unique(workers.begin(), workers.end()), workers.end());
  return workers;
}

/// The job as the scheduler sees it: what one more worker, or a faster edge, brings.
absl::Status write_progress(const Written& written, const model::Profile& profile, const overlap::Network& network,
                            std::size_t max_workers) {
  overlap::ProfiledJob job{.schedule = written.schedule, .fusion = {}, .network = network, .max_workers = max_workers};
  job.update = written.sharded ? overlap::UpdateMode::kSharded : overlap::UpdateMode::kReplicated;
  if (!written.group_size.empty()) {
    const auto bytes = base::parse_bytes(written.group_size);
    MAYPOLE_RETURN_IF_ERROR(for_flag("--group-size", bytes.status()));
    job.fusion.group_bytes = *bytes;
  }
  MAYPOLE_ASSIGN_OR_RETURN(const model::ProgressModel progress, overlap::progress_of(profile, job));
  return formats::write_text_file(written.progress, formats::progress_json(progress) + "\n");
}

absl::Status plan(const Written& written) {
  MAYPOLE_ASSIGN_OR_RETURN(const model::Profile profile, read(written));
  if (!written.save_profile.empty()) {
    MAYPOLE_RETURN_IF_ERROR(formats::write_text_file(written.save_profile, formats::profile_json(profile)));
    if (written.network.empty() && !profile.ring) {
      return absl::OkStatus();
    }
  }
  MAYPOLE_ASSIGN_OR_RETURN(overlap::Network network, network_of(written, profile));
  if (!written.fit.empty()) {
    MAYPOLE_ASSIGN_OR_RETURN(const std::vector<MeasuredRun> runs, read_runs(written.fit));
    MAYPOLE_ASSIGN_OR_RETURN(network.contention_s_per_byte, fit_contention_to(profile, network, runs));
  }
  if (!written.check.empty()) {
    return check_runs(written, profile, network);
  }
  WhatIfOptions options;
  MAYPOLE_ASSIGN_OR_RETURN(options.workers, workers_of(written.workers));
  if (!written.progress.empty()) {
    MAYPOLE_RETURN_IF_ERROR(write_progress(written, profile, network, options.workers.back()));
  }
  if (written.groups > 0) {
    options.num_groups = written.groups;
  }
  MAYPOLE_ASSIGN_OR_RETURN(const WhatIf answer, what_if(profile, network, options));
  if (!written.html.empty()) {
    MAYPOLE_RETURN_IF_ERROR(formats::write_text_file(written.html, what_if_html(answer, profile, network)));
  }
  fmt::print("{}", written.json ? what_if_json(answer, profile, network) : what_if_text(answer, profile, network));
  return absl::OkStatus();
}

}  // namespace

std::function<int()> add_plan(CLI::App& app) {
  CLI::App* command = app.add_subcommand("plan", "What would a job gain: schedules, groups, links and workers, from its profile");
  auto written = std::make_shared<Written>();  // shared with the function that outlives this one
  command->add_option("--profile", written->profile, "Profile of the job, a JSON file");
  command->add_option(
      "--model", written->model,
      fmt::format("Instead of a profile: one modelled from its definition ({})", fmt::join(overlap::paper_model_names(), ", ")));
  command->add_option("--save-profile", written->save_profile, "Write the profile that is used, as JSON");
  command->add_option(
      "--network", written->network,
      fmt::format("{}, or a rate such as 2.5Gbps; default: the ring that was profiled", fmt::join(overlap::network_names(), ", ")));
  command->add_option("--alpha", written->alpha, "Start-up time of a message, as 50us; default: the network's");
  command->add_option("--workers", written->workers, "Numbers of workers, separated by commas")->capture_default_str();
  command->add_option("--collective", written->collective, "ring, halving-doubling or hierarchical")->capture_default_str();
  command->add_option("--workers-per-host", written->workers_per_host, "Workers that share a host")
      ->capture_default_str()
      ->check(whole_number(1, kMostWorkers));
  command
      ->add_option("--contention", written->contention,
                   "Seconds of computing that a gigabyte on the link costs: moving it needs the processor")
      ->capture_default_str();
  command->add_option("--fit", written->fit, "Fit the contention to a report of `maypole run --report`; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option("--check", written->check,
                   "Instead: what the simulator says of the run of a report, beside what it took; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--groups", written->groups, "So many even groups instead of the best fusion")->check(whole_number(1, kMostGroups));
  CLI::Option* progress = command->add_option(
      "--progress", written->progress,
      "Write what the scheduler needs to know of this job, up to the most of --workers: `progress` of a job in an instance");
  command->add_option("--schedule", written->schedule, "The schedule under which --progress sees the job")
      ->capture_default_str()
      ->needs(progress);
  command->add_option("--group-size", written->group_size, "The size of its groups; default: that of training")->needs(progress);
  command->add_flag("--sharded", written->sharded, "Its updates are sharded")->needs(progress);
  command->add_option("--html", written->html, "Write one self-contained HTML page");
  command->add_flag("--json", written->json, "Print one JSON object");
  return [written] {
    const absl::Status status = plan(*written);
    return status.ok() ? 0 : fail("plan", status);
  };
}

}  // namespace maypole::cli
