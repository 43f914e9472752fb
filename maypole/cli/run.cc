// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/run.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/cli/agent_link.h"
#include "maypole/cli/elastic_launch.h"
#include "maypole/cli/hosts.h"
#include "maypole/cli/job_report.h"
#include "maypole/cli/launch.h"
#include "maypole/cli/launcher_template.h"
#include "maypole/cli/size_range.h"
#include "maypole/cli/whole_number.h"

#include <net/if.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

namespace maypole::cli {

namespace {

constexpr int kWrongUse = 2;
constexpr int kMaxWorkers = 4096;

/// The options as they were written.
struct Written {
  int num_workers = 0;  // 0 = not given
  std::string hosts;
  std::string launcher;
  std::string schedule;
  std::string backend;
  std::string bandwidth;
  std::string interface;
  std::string transport;
  std::string timeout;
  std::string start_timeout;
  std::vector<std::string> environment;
  std::string heartbeat;
  bool no_undo = false;
  int iterations = 30;  // profile
  bool elastic = false;
  std::string workers;  // --elastic: MIN:MAX
  std::optional<int> retries;
  std::string name;
  std::string checkpoint_directory;
  std::string checkpoint_every;
  std::optional<int> checkpoint_keep;
  ElasticOptions elastic_options;
  RunOptions run;
};

/// Puts the flag in front, so that the one line says what to change.
absl::Status for_flag(const char* flag, const absl::Status& status) {
  return status.ok() ? status : base::error(absl::StatusCode::kInvalidArgument, "{}: {}", flag, base::message(status));
}

absl::Status add_variables(Written& written) {
  for (const std::string& variable : written.environment) {
    const std::size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    const char* own = ::getenv(name.c_str());
    if (name.empty() || (equals == std::string::npos && own == nullptr)) {
      return base::error(absl::StatusCode::kInvalidArgument, "--env: '{}' is neither NAME=VALUE nor the name of a variable that is set",
                         variable);
    }
    written.run.settings[name] = equals == std::string::npos ? own : variable.substr(equals + 1);
  }
  const std::pair<const char*, const std::string&> settings[] = {
      {"MAYPOLE_SCHEDULE", written.schedule},           {"MAYPOLE_BACKEND", written.backend},     {"MAYPOLE_BANDWIDTH", written.bandwidth},
      {"MAYPOLE_INTERFACE", written.interface},         {"MAYPOLE_TRANSPORT", written.transport}, {"MAYPOLE_TIMEOUT", written.timeout},
      {"MAYPOLE_START_TIMEOUT", written.start_timeout}, {"MAYPOLE_HEARTBEAT", written.heartbeat}};
  for (const auto& [name, value] : settings) {
    if (!value.empty()) {
      written.run.settings[name] = value;
    }
  }
  if (!written.run.profile.empty()) {
    written.run.settings["MAYPOLE_PROFILE"] = std::to_string(written.iterations);
  }
  return absl::OkStatus();
}

/// Checkpoints are the script's loop's to write; the workers are told by their environment.
absl::Status check_checkpoints(Written& written) {
  const auto wrong = absl::StatusCode::kInvalidArgument;
  if (written.checkpoint_directory.empty()) {
    const char* flag = !written.checkpoint_every.empty() ? "--checkpoint-every" : "--checkpoint-keep";
    return written.checkpoint_every.empty() && !written.checkpoint_keep ? absl::OkStatus()
                                                                        : base::error(wrong, "{} needs --checkpoint-dir", flag);
  }
  std::error_code failed;
  written.elastic_options.checkpoints = true;
  written.run.settings["MAYPOLE_CHECKPOINT_DIR"] = std::filesystem::absolute(written.checkpoint_directory, failed).string();
  if (const std::string& every = written.checkpoint_every; !every.empty()) {
    const bool steps = std::ranges::all_of(every, [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
    const auto duration = base::parse_duration(every);
    if (steps ? every.find_first_not_of('0') == std::string::npos : !duration.ok() || *duration <= base::Nanoseconds::zero()) {
      return base::error(wrong, "--checkpoint-every: '{}' is neither a number of steps nor a duration above zero: write 500, or 10min",
                         every);
    }
    written.run.settings["MAYPOLE_CHECKPOINT_EVERY"] = every;
  }
  if (written.checkpoint_keep) {
    written.run.settings["MAYPOLE_CHECKPOINT_KEEP"] = std::to_string(*written.checkpoint_keep);
  }
  return absl::OkStatus();
}

constexpr int kDefaultRetries = 3;

/// Checks what --elastic asks for, and sets how many workers there must be room for.
absl::Status check_elastic(Written& written) {
  const auto wrong = absl::StatusCode::kInvalidArgument;
  ElasticOptions& options = written.elastic_options;
  if (!written.elastic) {
    const char* flag = written.no_undo            ? "--no-undo"
                       : !written.workers.empty() ? "--workers"
                                                  : (written.retries ? "--retries" : (!written.name.empty() ? "--name" : nullptr));
    return flag == nullptr ? absl::OkStatus() : base::error(wrong, "{} needs --elastic: without it the number of workers is fixed", flag);
  }
  if (written.backend == "c10d") {
    return base::error(wrong, "--elastic needs the native back end: a torch process group keeps its members");
  }
  if (!written.run.report.empty() || !written.run.timeline.empty()) {
    return base::error(wrong, "{} describes one ring, and an elastic run has many: leave it out, or leave out --elastic",
                       written.run.report.empty() ? "--timeline" : "--report");
  }
  elastic::SizeRange range{1, std::max(1, written.num_workers)};
  if (!written.workers.empty()) {
    auto parsed = parse_size_range(written.workers);
    MAYPOLE_RETURN_IF_ERROR(for_flag("--workers", parsed.status()));
    range = *parsed;
  }
  options.min_workers = range.min;
  options.max_workers = range.max;
  options.workers = written.num_workers == 0 ? range.max : written.num_workers;
  if (options.workers < range.min || options.workers > range.max) {
    return base::error(wrong, "-n {} is outside of --workers {}:{}", options.workers, range.min, range.max);
  }
  if (written.no_undo) {
    written.run.settings["MAYPOLE_ELASTIC_UNDO"] = "0";
  }
  options.retries = written.retries.value_or(kDefaultRetries);
  options.name = written.name;
  if (!std::ranges::all_of(written.name,
                           [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.'; }) ||
      written.name.size() > 40) {
    return base::error(wrong, "--name: '{}' must be at most 40 letters, digits, '-', '_' and '.'", written.name);
  }
  const char* outside = ::getenv("MAYPOLE_HEARTBEAT");
  const std::string heartbeat = !written.heartbeat.empty() ? written.heartbeat : (outside != nullptr && *outside != '\0' ? outside : "2s");
  MAYPOLE_ASSIGN_OR_RETURN(options.silence, base::parse_duration(heartbeat));
  return absl::OkStatus();
}

/// Checks what can be wrong before anything is started, and makes the plan.
absl::StatusOr<std::vector<AgentLink>> check(Written& written) {
  RunOptions& run = written.run;
  if (run.command.empty()) {
    return base::error(absl::StatusCode::kInvalidArgument, "no command: write it after --, as in `maypole run -n 2 -- python3 train.py`");
  }
  if (!written.bandwidth.empty()) {
    const auto bandwidth = base::parse_bandwidth(written.bandwidth);
    MAYPOLE_RETURN_IF_ERROR(for_flag("--bandwidth", bandwidth.status()));
    written.elastic_options.bandwidth = *bandwidth;
  }
  for (const auto& [flag, value] : {std::pair("--timeout", written.timeout), std::pair("--start-timeout", written.start_timeout),
                                    std::pair("--heartbeat", written.heartbeat)}) {
    if (value.empty()) {
      continue;
    }
    const auto timeout = base::parse_duration(value);
    MAYPOLE_RETURN_IF_ERROR(for_flag(flag, timeout.status()));
    if (*timeout <= base::Nanoseconds::zero()) {
      return base::error(absl::StatusCode::kInvalidArgument, "{}: duration '{}' must be above zero", flag, value);
    }
  }
  if (!run.report.empty()) {
    MAYPOLE_RETURN_IF_ERROR(for_flag("--report", check_writable(run.report)));
  }
  if (!run.timeline.empty()) {
    MAYPOLE_RETURN_IF_ERROR(for_flag("--timeline", check_writable(run.timeline)));
  }
  if (!run.profile.empty()) {
    MAYPOLE_RETURN_IF_ERROR(for_flag("-o", check_writable(run.profile)));
  }
  if (!written.launcher.empty()) {
    MAYPOLE_RETURN_IF_ERROR(for_flag("--launcher", check_launcher(written.launcher)));
  }
  MAYPOLE_RETURN_IF_ERROR(add_variables(written));
  MAYPOLE_RETURN_IF_ERROR(check_elastic(written));
  MAYPOLE_RETURN_IF_ERROR(check_checkpoints(written));
  std::vector<HostEntry> hosts;
  if (!written.hosts.empty()) {
    auto parsed = parse_hosts(written.hosts);
    MAYPOLE_RETURN_IF_ERROR(for_flag("--hosts", parsed.status()));
    hosts = std::move(parsed).value();
  }
  MAYPOLE_ASSIGN_OR_RETURN(const std::vector<HostWorkers> places,
                           place_workers(hosts, written.elastic ? written.elastic_options.max_workers : written.num_workers));
  std::error_code failed;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", failed).string();
  auto agents = plan_agents(places, written.launcher, program);
  MAYPOLE_RETURN_IF_ERROR(for_flag("--hosts", agents.status()));
  const bool all_here = std::ranges::all_of(*agents, [](const AgentLink& agent) { return agent.direct; });
  if (all_here && !written.interface.empty() && ::if_nametoindex(written.interface.c_str()) == 0) {
    return base::error(absl::StatusCode::kInvalidArgument, "--interface: this machine has no interface '{}'", written.interface);
  }
  return agents;
}

constexpr const char* kExample = "The command and its arguments follow, best after `--`:\n  maypole {} -- python3 train.py";

// An empty value is a shell variable that was not set: the default in its place would start another job than was meant.
const CLI::Validator& filled() {
  static const CLI::Validator validator(
      [](const std::string& value) { return value.empty() ? std::string("the value is empty: leave the option out for its default") : ""; },
      "");
  return validator;
}

/// What every command that runs a job takes: where, and over which network.
void add_place_options(CLI::App& app, Written& written) {
  app.add_option("-n", written.num_workers, "Number of workers; default: all slots of --hosts, or 1")->check(whole_number(1, kMaxWorkers));
  app.add_option("--hosts", written.hosts, "name[=address]:slots,...; filled in order; default: this machine")->check(filled());
  app.add_option("--launcher", written.launcher,
                 "How to start a program on a host; {host} is its name, {command} the program; default: directly here, `ssh {host} "
                 "{command}` elsewhere")
      ->check(filled());
  app.add_option("--bandwidth", written.bandwidth, "Pace every ring edge to this rate, as 200Mbps")->check(filled());
  app.add_option("--interface", written.interface, "Network interface of the ring; default: the one that routes to the peers")
      ->check(filled());
  app.add_option("--transport", written.transport, "auto, shm or tcp; default: auto, shared memory within a host entry")
      ->check(CLI::IsMember({"auto", "shm", "tcp"}));
  app.add_option("--timeout", written.timeout, "How late a live peer may be before the others give up, as 30min (the default)")
      ->check(filled());
  app.add_option("--start-timeout", written.start_timeout, "How long workers wait for each other at the start, as 5min (the default)")
      ->check(filled());
  app.add_option("--env", written.environment, "NAME=VALUE for every worker, or NAME to pass on this machine's; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

/// The subcommand `name`, whose last words are the job's command.
std::function<int()> add_job_command(CLI::App& sub, std::vector<std::string> command, std::shared_ptr<Written> written) {
  sub.prefix_command();  // from the first word that is not an option on, everything belongs to the command
  sub.footer(fmt::format(fmt::runtime(kExample), sub.get_name() == "run" ? "run -n 2" : "profile -o profile.json"));
  written->run.command = std::move(command);
  return [&sub, written = std::move(written)] {
    // A command may begin without `--`; a later `--` is then its own.
    const std::vector<std::string> rest = sub.remaining();
    std::vector<std::string>& words = written->run.command;
    if (!rest.empty() && rest.front().starts_with("-")) {
      fmt::print(stderr, "maypole {}: {} is not an option: see `maypole {} --help`\n", sub.get_name(), rest.front(), sub.get_name());
      return kWrongUse;
    }
    if (rest.empty() && !words.empty()) {
      words.erase(words.begin());
    }
    words.insert(words.begin(), rest.begin(), rest.end());
    absl::StatusOr<std::vector<AgentLink>> agents = check(*written);
    if (!agents.ok()) {
      fmt::print(stderr, "maypole {}: {}\n", sub.get_name(), base::message(agents.status()));
      return kWrongUse;
    }
    return written->elastic ? launch_elastic(written->run, written->elastic_options, std::move(agents).value())
                            : launch(written->run, std::move(agents).value());
  };
}

}  // namespace

std::function<int()> add_run(CLI::App& app, std::vector<std::string> command) {
  CLI::App* run = app.add_subcommand("run", "Run one job: start its workers here or on hosts, and end with its exit code");
  auto written = std::make_shared<Written>();  // shared with the function that outlives this one
  add_place_options(*run, *written);
  run->add_option("--schedule", written->schedule, "sync, wfbp, dear or weave; overrides what the script says")
      ->check(CLI::IsMember({"sync", "wfbp", "dear", "weave"}));
  run->add_option("--backend", written->backend, "native or c10d; overrides what the script says")
      ->check(CLI::IsMember({"native", "c10d"}));
  run->add_option("--report", written->run.report, "Write what communication cost, as JSON")->check(filled());
  run->add_option("--timeline", written->run.timeline, "Write a trace of every worker for Perfetto")->check(filled());
  run->add_flag("--elastic", written->elastic, "Let workers come and go: `maypole resize` changes their number, lost ones are replaced");
  run->add_option("--workers", written->workers, "With --elastic: how many there may be, as 1:8; default: 1 to -n")->check(filled());
  run->add_option("--retries", written->retries, "With --elastic: how many lost workers are replaced; default: 3")
      ->check(whole_number(0, 1000000));
  run->add_option("--name", written->name, "With --elastic: the run's name for `maypole resize`; default: a random one")->check(filled());
  run->add_option("--checkpoint-dir", written->checkpoint_directory,
                  "Folder of the checkpoints of maypole.elastic.Loop, the same for all workers; training begins with the newest good one")
      ->check(filled());
  run->add_option("--checkpoint-every", written->checkpoint_every, "A number of steps, or a duration, as 10min (the default)")
      ->check(filled());
  run->add_option("--checkpoint-keep", written->checkpoint_keep, "How many checkpoints stay; default: 3")->check(CLI::Range(1, 1000000));
  run->add_flag("--no-undo", written->no_undo,
                "With --elastic: keep no last values; replicated updates wait for all averages, with shards a broken step costs those "
                "since the last copy");
  run->add_option("--heartbeat", written->heartbeat, "Silence after which a worker is lost, as 2s (the default)")->check(filled());
  run->add_flag("--json", written->run.json, "Print one JSON object at the end; the workers' output goes to standard error");
  return add_job_command(*run, std::move(command), std::move(written));
}

std::function<int()> add_profile(CLI::App& app, std::vector<std::string> command) {
  CLI::App* profile = app.add_subcommand("profile", "Run some iterations of a job and write what each layer computes, for `maypole plan`");
  auto written = std::make_shared<Written>();
  written->schedule = "sync";  // nothing communicates while anything computes
  add_place_options(*profile, *written);
  profile->add_option("-o,--output", written->run.profile, "The profile's file")->required()->check(filled());
  profile->add_option("--iterations", written->iterations, "Iterations to measure, after five that warm up; the script ends after them")
      ->check(whole_number(1, 100000))
      ->capture_default_str();
  return add_job_command(*profile, std::move(command), std::move(written));
}

}  // namespace maypole::cli
