// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/worker_environment.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace maypole::cli {

namespace {

// Belong to one job; those of a job around ours (a worker that calls `maypole run`, a script under torchrun) would mislead.
constexpr std::array<std::string_view, 17> kOwned = {"RANK",
                                                     "WORLD_SIZE",
                                                     "LOCAL_RANK",
                                                     "LOCAL_WORLD_SIZE",
                                                     "MASTER_ADDR",
                                                     "MASTER_PORT",
                                                     "MAYPOLE_JOB_ID",
                                                     "MAYPOLE_SECRET",
                                                     "MAYPOLE_RENDEZVOUS",
                                                     "MAYPOLE_RENDEZVOUS_FD",
                                                     "MAYPOLE_HOST",
                                                     "MAYPOLE_REPORT_DIR",
                                                     "MAYPOLE_TIMELINE_DIR",
                                                     "GROUP_RANK",
                                                     "TORCHELASTIC_USE_AGENT_STORE",
                                                     "MAYPOLE_ELASTIC_FD",
                                                     "MAYPOLE_ELASTIC_WORKERS"};

constexpr std::array<std::string_view, 8> kForwardedNames = {"PATH", "PYTHONPATH", "PYTHONHOME",          "VIRTUAL_ENV", "LD_LIBRARY_PATH",
                                                             "LANG", "TZ",         "CUDA_VISIBLE_DEVICES"};
constexpr std::array<std::string_view, 13> kForwardedPrefixes = {"MAYPOLE_", "OMP_",  "GOMP_", "KMP_",    "MKL_",   "OPENBLAS_", "TORCH_",
                                                                 "PYTORCH_", "NCCL_", "GLOO_", "MALLOC_", "PYTHON", "LC_"};

bool is_owned(std::string_view name) { return std::ranges::find(kOwned, name) != kOwned.end(); }

std::map<std::string, std::string> to_map(const std::vector<std::string>& environment) {
  std::map<std::string, std::string> variables;
  for (const std::string& variable : environment) {
    const std::size_t equals = variable.find('=');
    if (equals != std::string::npos) {
      variables[variable.substr(0, equals)] = variable.substr(equals + 1);
    }
  }
  return variables;
}

}  // namespace

std::vector<std::string> worker_environment(const std::vector<std::string>& own, const WorkerSetting& setting) {
  const JobSpec& spec = setting.spec;
  std::map<std::string, std::string> variables = to_map(own);
  std::erase_if(variables, [](const auto& variable) { return is_owned(variable.first); });
  for (const auto& [name, value] : spec.environment) {
    variables[name] = value;
  }
  // Cores are shared by all workers of the machine, also those of other host entries (network namespaces on one machine).
  variables.try_emplace("OMP_NUM_THREADS", std::to_string(std::max(1, setting.cores / std::max(1, setting.order.workers_on_machine))));
  variables.try_emplace("PYTHONUNBUFFERED", "1");  // output is a pipe; without it Python's lines come late
  variables.try_emplace("MAYPOLE_TIMEOUT", "30min");
  variables.try_emplace("MAYPOLE_HEARTBEAT", "2s");
  variables["RANK"] = std::to_string(setting.rank);
  variables["WORLD_SIZE"] = std::to_string(spec.world_size);
  variables["LOCAL_RANK"] = std::to_string(setting.rank - spec.first_rank);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(spec.num_workers);
  variables["MASTER_ADDR"] = setting.order.master_address;
  variables["MASTER_PORT"] = std::to_string(setting.order.master_port);
  variables["MAYPOLE_JOB_ID"] = spec.job_id;
  variables["MAYPOLE_SECRET"] = spec.secret;
  variables["MAYPOLE_RENDEZVOUS"] = setting.order.rendezvous;
  variables["MAYPOLE_HOST"] = spec.host;
  if (setting.rendezvous_fd >= 0) {
    variables["MAYPOLE_RENDEZVOUS_FD"] = std::to_string(setting.rendezvous_fd);
  }
  if (setting.control_fd >= 0) {
    variables["MAYPOLE_ELASTIC_FD"] = std::to_string(setting.control_fd);
  }
  variables["MAYPOLE_REPORT_DIR"] = setting.folder + "/report";
  if (spec.timeline) {
    variables["MAYPOLE_TIMELINE_DIR"] = setting.folder + "/timeline";
  }
  std::vector<std::string> environment;
  environment.reserve(variables.size());
  for (const auto& [name, value] : variables) {
    environment.push_back(fmt::format("{}={}", name, value));
  }
  return environment;
}

std::map<std::string, std::string> forwarded_environment(const std::vector<std::string>& own) {
  std::map<std::string, std::string> variables = to_map(own);
  std::erase_if(variables, [](const auto& variable) {
    const std::string_view name = variable.first;
    const bool listed = std::ranges::find(kForwardedNames, name) != kForwardedNames.end() ||
                        std::ranges::any_of(kForwardedPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
    return !listed || is_owned(name);
  });
  return variables;
}

}  // namespace maypole::cli
