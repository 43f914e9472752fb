// SPDX-License-Identifier: Apache-2.0
#pragma once

// The options that `simulate`, `compare` and `convert` share: which cluster, which jobs, which slots; and the instance they make.

#include "maypole/formats/output_file.h"
#include "maypole/model/job.h"

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace maypole::cli {

/// The options as they were written.
struct ScenarioFlags {
  std::string cluster;
  std::string workload;
  int jobs = 0;                       // 0: not given
  int slots = -1;                     // -1: not given
  std::string slot;                   // empty: not given
  std::optional<std::uint64_t> seed;  // none: not given
  std::string budget;
  std::string utility;
  bool elastic = false;
  bool rigid = false;
  std::string measured;
  double gpus_per_server = 0;
  std::string server_bandwidth;
  std::string uplink_bandwidth;
};

void add_scenario_options(CLI::App& app, ScenarioFlags& flags);

/// Whether a workload's name means a whole instance, or one of the paper's workloads.
[[nodiscard]] bool is_instance(const std::string& workload);
[[nodiscard]] bool is_paper(const std::string& workload);

struct Scenario {
  model::Instance instance;
  std::vector<std::string> notes;  // what was filled in because the files do not say it; to be printed with any result
};

/// Errors name the option, or file, line and field.
[[nodiscard]] absl::StatusOr<Scenario> make_scenario(const ScenarioFlags& flags);

/// The error with the option that it comes from in front.
[[nodiscard]] absl::Status for_option(std::string_view option, const absl::Status& status);
/// A file that an option asks for.
[[nodiscard]] absl::StatusOr<formats::OutputFile> open_for(std::string_view option, const std::string& path);

/// The exit code for an error: 2 where the input or the use was wrong, else 1.
[[nodiscard]] int exit_code(const absl::Status& status);
/// Prints `maypole COMMAND: message` and returns exit_code().
int fail(const std::string& command, const absl::Status& status);

}  // namespace maypole::cli
