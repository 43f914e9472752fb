// SPDX-License-Identifier: Apache-2.0
#pragma once

// A job.yaml from what `submit` was given: options, or a file, or a file with options over it.

#include <absl/status/statusor.h>

#include <map>
#include <string>
#include <vector>

namespace maypole::cli {

/// As written; empty: not given.
struct JobOptions {
  std::string file;
  std::string name;
  std::string workers;  // 4, or 1:8
  std::string cpus;
  std::string gpus;
  std::string memory;
  std::string utility;
  std::string weight;
  std::string bandwidth;
  std::string racks;
  std::string time;
  std::string retries;
  bool allow_wait = false;
  std::string chdir;
  std::vector<std::string> env;  // NAME=VALUE, or NAME
  std::vector<std::string> command;
};

/// The description as JSON, which is YAML too. `chdir` is made absolute from `directory` (where it came from the options) or the file's
/// folder. `environment`: beneath the job's own `env`. Errors name the option, or file, line and field.
[[nodiscard]] absl::StatusOr<std::string> describe_job(const JobOptions& options, const std::string& directory,
                                                       const std::map<std::string, std::string>& environment);

}  // namespace maypole::cli
