// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/scenario.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/formats/cluster_file.h"
#include "maypole/formats/instance_json.h"
#include "maypole/formats/workload.h"
#include "maypole/sim/paper_cluster.h"
#include "maypole/sim/paper_workload.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <utility>

namespace maypole::cli {

namespace {

constexpr int kWrongUse = 2;
constexpr int kFailed = 1;

absl::Status for_flag(const char* flag, const absl::Status& status) {
  return status.ok() ? status : base::error(absl::StatusCode::kInvalidArgument, "{}: {}", flag, base::message(status));
}

bool is_paper(const std::string& workload) { return workload == "paper" || workload == "paper-contended"; }

absl::StatusOr<double> slot_seconds(const ScenarioFlags& flags) {
  const auto slot = base::parse_duration(flags.slot);
  MAYPOLE_RETURN_IF_ERROR(for_flag("--slot", slot.status()));
  if (*slot <= base::Nanoseconds::zero()) {
    return base::error(absl::StatusCode::kInvalidArgument, "--slot: duration '{}' must be above zero", flags.slot);
  }
  return base::to_seconds(*slot);
}

std::optional<model::UtilityKind> utility_named(const std::string& name) {
  using enum model::UtilityKind;
  for (const model::UtilityKind kind : {kSqrt, kLog, kLinear, kSigmoid}) {
    if (model::name_of(kind) == name) {
      return kind;
    }
  }
  return std::nullopt;
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
  if (flags.cluster == "paper" || (flags.cluster.empty() && is_paper(flags.workload))) {
    base::Rng rng(flags.seed, "cluster");
    return sim::paper_cluster({}, rng);
  }
  if (flags.cluster.empty()) {
    MAYPOLE_ASSIGN_OR_RETURN(formats::SuggestedCluster suggested, formats::suggest_cluster(flags.workload));
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
  options.most_jobs = static_cast<std::size_t>(flags.jobs);
  if (!flags.utility.empty()) {
    if (flags.utility == "sigmoid") {
      return base::error(absl::StatusCode::kInvalidArgument, "--utility: a sigmoid needs parameters that {} does not have", flags.workload);
    }
    options.utility = model::Utility{.kind = *utility_named(flags.utility)};
  }
  MAYPOLE_ASSIGN_OR_RETURN(formats::Workload workload, formats::read_workload(flags.workload, options, cluster));
  notes.push_back(std::move(workload.filling));
  return std::move(workload.jobs);
}

std::vector<model::Job> paper_jobs(const ScenarioFlags& flags, double slot_s, const model::Cluster& cluster) {
  sim::PaperWorkloadOptions options;
  options.contended = flags.workload == "paper-contended";
  options.slot_s = slot_s;
  if (flags.jobs > 0) {
    options.jobs = flags.jobs;
  }
  if (!flags.budget.empty()) {
    options.budget = flags.budget == "iterations" ? sim::BudgetReading::kIterations : sim::BudgetReading::kWorkerSlots;
  }
  options.utility = utility_named(flags.utility);
  base::Rng rng(flags.seed, "workload");
  return sim::paper_workload(options, cluster, rng);
}

}  // namespace

void add_scenario_options(CLI::App& app, ScenarioFlags& flags) {
  app.add_option("--cluster", flags.cluster,
                 "A cluster file, or `paper`: 50 servers in 2 to 5 racks; default: `paper`, of a trace one that carries it");
  app.add_option("--workload", flags.workload, "A workload file, `paper` or `paper-contended`")->required();
  app.add_option("--jobs", flags.jobs, "Number of jobs of the paper's workloads (default 100, contended 400); of a file, the first so many")
      ->check(CLI::PositiveNumber);
  app.add_option("--slots", flags.slots, "The horizon; 0: until all jobs have ended; default: 200 for the paper's workloads, else 0")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--slot", flags.slot, "Length of a slot")->capture_default_str();
  app.add_option("--seed", flags.seed, "Fixes the instance and the policy's random numbers")->capture_default_str();
  app.add_option("--budget", flags.budget, "paper: what a job's budget counts; default: worker-slots, contended iterations")
      ->check(CLI::IsMember({"worker-slots", "iterations"}));
  app.add_option("--utility", flags.utility, "Utility of every job, in place of the workload's own")
      ->check(CLI::IsMember({"sqrt", "log", "linear", "sigmoid"}));
  CLI::Option* elastic = app.add_flag("--elastic", flags.elastic, "Jobs of a trace may have 1 to 2 times their workers");
  app.add_flag("--rigid", flags.rigid, "Jobs of a trace have their workers or none (the default)")->excludes(elastic);
  app.add_option("--gpus-per-server", flags.gpus_per_server, "For topologies that do not say it")->check(CLI::PositiveNumber);
  app.add_option("--server-bandwidth", flags.server_bandwidth, "Server to rack, each direction, where the topology does not say it");
  app.add_option("--uplink-bandwidth", flags.uplink_bandwidth, "Rack to core, each direction, where the topology does not say it");
}

absl::StatusOr<Scenario> make_scenario(const ScenarioFlags& flags) {
  MAYPOLE_ASSIGN_OR_RETURN(const double slot_s, slot_seconds(flags));
  std::vector<std::string> notes;
  MAYPOLE_ASSIGN_OR_RETURN(model::Cluster cluster, read_cluster(flags, notes));
  std::vector<model::Job> jobs;
  int slots = flags.slots;
  if (is_paper(flags.workload)) {
    MAYPOLE_RETURN_IF_ERROR(for_paper_only(flags, cluster));
    jobs = paper_jobs(flags, slot_s, cluster);
    slots = slots >= 0 ? slots : sim::kPaperSlots;
  } else {
    MAYPOLE_ASSIGN_OR_RETURN(jobs, read_jobs(flags, slot_s, cluster, notes));
    slots = std::max(slots, 0);
  }
  Scenario scenario{{std::move(cluster), std::move(jobs), slot_s, slots, flags.seed}, std::move(notes)};
  MAYPOLE_RETURN_IF_ERROR(model::check_instance(scenario.instance));
  return scenario;
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
