// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/scenario.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/formats/cluster_file.h"
#include "maypole/formats/instance_json.h"
#include "maypole/formats/job_file.h"
#include "maypole/formats/number.h"
#include "maypole/formats/workload.h"
#include "maypole/sim/paper_cluster.h"
#include "maypole/sim/paper_workload.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace maypole::cli {

namespace {

constexpr int kWrongUse = 2;
constexpr int kFailed = 1;

absl::Status for_flag(const char* flag, const absl::Status& status) {
  return status.ok() ? status : base::error(absl::StatusCode::kInvalidArgument, "{}: {}", flag, base::message(status));
}

constexpr const char* kDefaultSlot = "60s";
constexpr std::uint64_t kDefaultSeed = 1;

absl::StatusOr<double> slot_seconds(const ScenarioFlags& flags) {
  const auto slot = base::parse_duration(flags.slot.empty() ? kDefaultSlot : flags.slot);
  MAYPOLE_RETURN_IF_ERROR(for_flag("--slot", slot.status()));
  if (*slot <= base::Nanoseconds::zero()) {
    return base::error(absl::StatusCode::kInvalidArgument, "--slot: duration '{}' must be above zero", flags.slot);
  }
  return base::to_seconds(*slot);
}

/// The utility of the paper's jobs, whose sigmoid has parameters of its own; none where the option is not given.
absl::StatusOr<std::optional<model::UtilityKind>> paper_utility(const std::string& name) {
  using enum model::UtilityKind;
  if (name.empty()) {
    return std::nullopt;
  }
  for (const model::UtilityKind kind : {kSqrt, kLog, kLinear, kSigmoid}) {
    if (model::name_of(kind) == name) {
      return kind;
    }
  }
  return base::error(absl::StatusCode::kInvalidArgument, "--utility: '{}' is none of the paper's: give sqrt, log, linear or sigmoid", name);
}

absl::StatusOr<base::Bandwidth> bandwidth(const char* flag, const std::string& text) {
  if (text.empty()) {
    return base::Bandwidth();
  }
  auto parsed = base::parse_bandwidth(text);
  MAYPOLE_RETURN_IF_ERROR(for_flag(flag, parsed.status()));
  return *parsed;
}

absl::StatusOr<model::Cluster> read_cluster(const ScenarioFlags& flags, std::vector<std::string>& notes) {
  const bool topology = flags.cluster.ends_with(".csv") || flags.cluster.ends_with(".csv.gz");
  for (const auto& [flag, given] : {std::pair("--gpus-per-server", flags.gpus_per_server > 0),
                                    {"--server-bandwidth", !flags.server_bandwidth.empty()},
                                    {"--uplink-bandwidth", !flags.uplink_bandwidth.empty()}}) {
    if (given && !topology) {
      return base::error(absl::StatusCode::kInvalidArgument, "{}: is for topologies in CSV, which do not say it; {}", flag,
                         flags.cluster.empty() ? "give one by --cluster" : flags.cluster + " says it itself");
    }
  }
  if (flags.cluster == "paper" || (flags.cluster.empty() && is_paper(flags.workload))) {
    base::Rng rng(flags.seed.value_or(kDefaultSeed), "cluster");
    return sim::paper_cluster({}, rng);
  }
  if (flags.cluster.empty()) {
    MAYPOLE_ASSIGN_OR_RETURN(formats::SuggestedCluster suggested, formats::suggest_cluster(flags.workload, flags.measured));
    notes.push_back(suggested.filling);
    return std::move(suggested.cluster);
  }
  formats::ClusterDefaults defaults;
  defaults.gpus_per_server = flags.gpus_per_server;
  MAYPOLE_ASSIGN_OR_RETURN(defaults.server_bandwidth, bandwidth("--server-bandwidth", flags.server_bandwidth));
  MAYPOLE_ASSIGN_OR_RETURN(defaults.uplink, bandwidth("--uplink-bandwidth", flags.uplink_bandwidth));
  MAYPOLE_ASSIGN_OR_RETURN(const model::Cluster cluster, formats::read_cluster(flags.cluster, defaults));
  // As an instance file would name its nodes, so that whoever reads that file sees the very same cluster.
  return formats::parse_instance_cluster(formats::instance_json({cluster, {}, 1, 0, 1}), flags.cluster);
}

/// The paper's jobs need one GPU a worker and nothing else.
absl::Status for_paper_only(const ScenarioFlags& flags, const model::Cluster& cluster) {
  if (!flags.measured.empty()) {
    return base::error(absl::StatusCode::kInvalidArgument, "--measured: is for traces of Pollux; `{}` is made up", flags.workload);
  }
  if (flags.elastic || flags.rigid) {
    return base::error(absl::StatusCode::kInvalidArgument, "--{}: is for traces; the jobs of `{}` have their own range of workers",
                       flags.elastic ? "elastic" : "rigid", flags.workload);
  }
  if (!cluster.find_resource("gpu")) {
    return base::error(absl::StatusCode::kInvalidArgument, "--cluster: the jobs of `{}` need the resource gpu, which {} does not have",
                       flags.workload, flags.cluster);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<model::Job>> read_jobs(const ScenarioFlags& flags, double slot_s, const model::Cluster& cluster,
                                                  std::vector<std::string>& notes) {
  if (!flags.budget.empty()) {
    return base::error(absl::StatusCode::kInvalidArgument, "--budget: is for the paper's workloads; {} has its own", flags.workload);
  }
  formats::WorkloadOptions options;
  options.elastic = flags.elastic;
  options.slot_s = slot_s;
  options.measured = flags.measured;
  options.most_jobs = static_cast<std::size_t>(flags.jobs);
  if (!flags.utility.empty()) {
    MAYPOLE_ASSIGN_OR_RETURN(const formats::WeightedUtility given, formats::parse_utility(flags.utility));
    options.utility = given.utility;
    options.weight = given.weight;
  }
  MAYPOLE_ASSIGN_OR_RETURN(formats::Workload workload, formats::read_workload(flags.workload, options, cluster));
  notes.push_back(std::move(workload.filling));
  return std::move(workload.jobs);
}

absl::StatusOr<std::vector<model::Job>> paper_jobs(const ScenarioFlags& flags, double slot_s, const model::Cluster& cluster) {
  sim::PaperWorkloadOptions options;
  options.contended = flags.workload == "paper-contended";
  options.slot_s = slot_s;
  if (flags.jobs > 0) {
    options.jobs = flags.jobs;
  }
  if (!flags.budget.empty()) {
    options.budget = flags.budget == "iterations" ? sim::BudgetReading::kIterations : sim::BudgetReading::kWorkerSlots;
  }
  MAYPOLE_ASSIGN_OR_RETURN(options.utility, paper_utility(flags.utility));
  base::Rng rng(flags.seed.value_or(kDefaultSeed), "workload");
  return sim::paper_workload(options, cluster, rng);
}

/// A whole problem from a file: what it says itself cannot be said again by an option.
absl::StatusOr<Scenario> read_whole(const ScenarioFlags& flags) {
  for (const auto& [flag, given] : {std::pair("--cluster", !flags.cluster.empty()),
                                    {"--slot", !flags.slot.empty()},
                                    {"--budget", !flags.budget.empty()},
                                    {"--utility", !flags.utility.empty()},
                                    {"--elastic", flags.elastic},
                                    {"--rigid", flags.rigid},
                                    {"--measured", !flags.measured.empty()},
                                    {"--gpus-per-server", flags.gpus_per_server > 0},
                                    {"--server-bandwidth", !flags.server_bandwidth.empty()},
                                    {"--uplink-bandwidth", !flags.uplink_bandwidth.empty()}}) {
    if (given) {
      return base::error(absl::StatusCode::kInvalidArgument, "{}: the instance {} says that itself: leave the option out", flag,
                         flags.workload);
    }
  }
  MAYPOLE_ASSIGN_OR_RETURN(model::Instance instance, formats::read_instance(flags.workload));
  std::vector<std::string> notes = {fmt::format("{}: an instance of {} jobs", flags.workload, instance.jobs.size())};
  if (!std::ranges::is_sorted(instance.jobs, {}, &model::Job::arrival_s)) {
    std::ranges::stable_sort(instance.jobs, {}, &model::Job::arrival_s);
    notes.front() += "; they are not in order of arrival: sorted";
  }
  if (flags.jobs > 0 && static_cast<std::size_t>(flags.jobs) < instance.jobs.size()) {
    instance.jobs.resize(static_cast<std::size_t>(flags.jobs));
    notes.front() += fmt::format("; the first {}", flags.jobs);
  }
  instance.slots = flags.slots >= 0 ? flags.slots : instance.slots;
  instance.seed = flags.seed.value_or(instance.seed);
  return Scenario{std::move(instance), std::move(notes)};
}

/// A whole number from `least` on, as its option wants it; the parser's own check prints ranges of 300 digits.
CLI::Validator whole(std::int64_t least) {
  return CLI::Validator(
      [least](const std::string& text) {
        const std::optional<std::int64_t> value = formats::parse_integer(text);
        const bool right = value && *value >= least && *value <= std::numeric_limits<int>::max();
        return right ? std::string()
                     : fmt::format("'{}' is not a whole number from {} to {}", text, least, std::numeric_limits<int>::max());
      },
      "");
}

CLI::Validator amount() {
  return CLI::Validator(
      [](const std::string& text) {
        const std::optional<double> value = formats::parse_number(text);
        return value && *value > 0 ? std::string() : fmt::format("'{}' is not a finite number above 0", text);
      },
      "");
}

CLI::Validator any_seed() {
  return CLI::Validator(
      [](const std::string& text) {
        return formats::parse_unsigned(text) ? std::string() : fmt::format("'{}' is not a whole number of 64 bits without a sign", text);
      },
      "");
}

}  // namespace

bool is_instance(const std::string& workload) { return workload.ends_with(".json") || workload.ends_with(".json.gz"); }

bool is_paper(const std::string& workload) { return workload == "paper" || workload == "paper-contended"; }

void add_scenario_options(CLI::App& app, ScenarioFlags& flags) {
  app.add_option("--cluster", flags.cluster,
                 "A cluster file, or `paper`: 50 servers in 2 to 5 racks; default: `paper`, of a trace one that carries it");
  app.add_option("--workload", flags.workload, "A workload file, an instance (.json), `paper` or `paper-contended`")->required();
  app.add_option("--jobs", flags.jobs, "Number of jobs of the paper's workloads (default 100, contended 400); of a file, the first so many")
      ->check(whole(1));
  app.add_option("--slots", flags.slots,
                 "The horizon; 0: until all jobs have ended; default: 200 for the paper's workloads, an instance's own, else 0")
      ->check(whole(0));
  app.add_option("--slot", flags.slot, fmt::format("Length of a slot; default: {}, an instance's own", kDefaultSlot));
  app.add_option("--seed", flags.seed,
                 fmt::format("Fixes the instance and the policy's random numbers; default: {}, an instance's own", kDefaultSeed))
      ->check(any_seed());
  app.add_option("--budget", flags.budget, "paper: what a job's budget counts; default: worker-slots, contended iterations")
      ->check(CLI::IsMember({"worker-slots", "iterations"}));
  app.add_option("--utility", flags.utility,
                 "Utility of every job, in place of the workload's own: sqrt, log, linear, or `{kind: sigmoid, sensitivity: 0.5, expected: "
                 "300}` and the like");
  CLI::Option* elastic = app.add_flag("--elastic", flags.elastic, "Jobs of a trace may have 1 to 2 times their workers");
  app.add_flag("--rigid", flags.rigid, "Jobs of a trace have their workers or none (the default)")->excludes(elastic);
  app.add_option("--gpus-per-server", flags.gpus_per_server, "For topologies that do not say it")->check(amount());
  app.add_option("--measured", flags.measured, "Pollux: the folder of measurements; default: ../measured beside the workload");
  app.add_option("--server-bandwidth", flags.server_bandwidth, "Server to rack, each direction, where the topology does not say it");
  app.add_option("--uplink-bandwidth", flags.uplink_bandwidth, "Rack to core, each direction, where the topology does not say it");
}

absl::StatusOr<Scenario> make_scenario(const ScenarioFlags& flags) {
  if (is_instance(flags.workload)) {
    return read_whole(flags);
  }
  MAYPOLE_ASSIGN_OR_RETURN(const double slot_s, slot_seconds(flags));
  std::vector<std::string> notes;
  MAYPOLE_ASSIGN_OR_RETURN(model::Cluster cluster, read_cluster(flags, notes));
  std::vector<model::Job> jobs;
  int slots = flags.slots;
  if (is_paper(flags.workload)) {
    MAYPOLE_RETURN_IF_ERROR(for_paper_only(flags, cluster));
    MAYPOLE_ASSIGN_OR_RETURN(jobs, paper_jobs(flags, slot_s, cluster));
    slots = slots >= 0 ? slots : sim::kPaperSlots;
  } else {
    MAYPOLE_ASSIGN_OR_RETURN(jobs, read_jobs(flags, slot_s, cluster, notes));
    slots = std::max(slots, 0);
  }
  Scenario scenario{{std::move(cluster), std::move(jobs), slot_s, slots, flags.seed.value_or(kDefaultSeed)}, std::move(notes)};
  MAYPOLE_RETURN_IF_ERROR(model::check_instance(scenario.instance));
  return scenario;
}

absl::Status for_option(std::string_view option, const absl::Status& status) {
  return status.ok() ? status : base::error(status.code(), "{}: {}", option, base::message(status));
}

absl::StatusOr<formats::OutputFile> open_for(std::string_view option, const std::string& path) {
  absl::StatusOr<formats::OutputFile> file = formats::OutputFile::open(path);
  MAYPOLE_RETURN_IF_ERROR(for_option(option, file.status()));
  return file;
}

int exit_code(const absl::Status& status) {
  const bool wrong_use = status.code() == absl::StatusCode::kInvalidArgument || status.code() == absl::StatusCode::kNotFound;
  return wrong_use ? kWrongUse : kFailed;
}

int fail(const std::string& command, const absl::Status& status) {
  fmt::print(stderr, "maypole {}: {}\n", command, base::message(status));
  return exit_code(status);
}

}  // namespace maypole::cli
