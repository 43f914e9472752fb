// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/submit.h"

#include "maypole/base/status.h"
#include "maypole/cli/cluster_command.h"
#include "maypole/cli/job_description.h"
#include "maypole/cli/worker_environment.h"
#include "maypole/formats/document.h"
#include "maypole/net/child_process.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

namespace maypole::cli {

namespace {

struct Written {
  ClusterFlags flags;
  JobOptions job;
};

absl::StatusOr<std::string> id_of(const std::string& body) {
  MAYPOLE_ASSIGN_OR_RETURN(const formats::Node node, formats::parse_json(body, "the daemon's answer"));
  formats::Problems problems("the daemon's answer");
  formats::Map map(formats::Value(&node, 0, "", &problems));
  std::string id = map["id"].text();
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  return id;
}

}  // namespace

std::function<int()> add_submit(CLI::App& app, std::vector<std::string> command) {
  auto written = std::make_shared<Written>();  // shared with the function that outlives this one
  CLI::App* submit = app.add_subcommand("submit", "Give the daemon a job: options and a command after `--`, or a job.yaml");
  add_cluster_flags(*submit, written->flags);
  JobOptions& job = written->job;
  submit->add_option("file", job.file, "job.yaml; options overrule it");
  submit->add_option("--name", job.name, "What to call it");
  submit->add_option("--workers", job.workers, "How many workers, 4, or as the scheduler sees fit, 1:8; kept from start to end");
  submit->add_option("--cpus", job.cpus, "Cores a worker; default: 1");
  submit->add_option("--gpus", job.gpus, "GPUs a worker");
  submit->add_option("--memory", job.memory, "Memory a worker, as 4GB");
  submit->add_option("--utility", job.utility, "What work on it is worth: sqrt, log, linear, ...");
  submit->add_option("--weight", job.weight, "Multiplies the utility");
  submit->add_option("--bandwidth", job.bandwidth, "Reserve this rate on every edge of the ring and keep to it, as 1Gbps");
  submit->add_option("--racks", job.racks, "Most racks, as 1, or 1@10min for the first ten minutes of waiting");
  submit->add_option("--time", job.time, "End it after this time of running, as 2h");
  submit->add_option("--env", job.env, "NAME=VALUE for every worker, or NAME to pass on this shell's; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  submit->add_option("--chdir", job.chdir, "Where workers start; default: here, or as the job.yaml says");
  submit->add_option("--retries", job.retries, "How often it may fail and be started again");
  submit->add_flag("--allow-wait", job.allow_wait, "Where the cluster is too small for it: wait for a larger one instead of being refused");
  if (!command.empty()) {
    command.erase(command.begin());  // the dashes
  }
  job.command = std::move(command);
  return [written] {
    // What a shell has set up (a virtual environment, library paths) is what the job would see if it were run there.
    std::map<std::string, std::string> environment = forwarded_environment(net::current_environment());
    for (const char* ours : {"MAYPOLE_TOKEN", "MAYPOLE_ADDRESS", "MAYPOLE_DATA_DIR"}) {
      environment.erase(ours);
    }
    std::error_code failed;
    const absl::StatusOr<std::string> description = describe_job(written->job, std::filesystem::current_path(failed).string(), environment);
    if (!description.ok()) {
      return report_failure("submit", description.status());
    }
    return with_client("submit", written->flags, [&](daemon::Client& client) -> absl::StatusOr<int> {
      MAYPOLE_ASSIGN_OR_RETURN(const daemon::Answer answer, client.call("POST", "/v1/jobs", *description));
      MAYPOLE_ASSIGN_OR_RETURN(const std::string id, id_of(answer.body));
      fmt::print("{}\n", written->flags.json ? answer.body : id);
      return 0;
    });
  };
}

}  // namespace maypole::cli
