// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/job_description.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/formats/document.h"
#include "maypole/formats/job_file.h"
#include "maypole/formats/json_text.h"
#include "maypole/formats/number.h"
#include "maypole/formats/text_file.h"

#include <fmt/ranges.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <optional>

namespace maypole::cli {

namespace {

using base::error;
using formats::json_string;
using formats::Node;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

/// JSON of a YAML tree; what YAML leaves unquoted keeps its meaning where it is a number or a truth value.
std::string json_of(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      return "null";
    case Node::Kind::kBool:
    case Node::Kind::kNumber:
      return node.text;
    case Node::Kind::kText:
      return json_string(node.text);
    case Node::Kind::kPlain:
      return formats::parse_number(node.text) || node.text == "true" || node.text == "false" ? node.text : json_string(node.text);
    case Node::Kind::kList: {
      std::vector<std::string> items;
      for (const Node& item : node.items) {
        items.push_back(json_of(item));
      }
      return fmt::format("[{}]", fmt::join(items, ", "));
    }
    case Node::Kind::kMap: {
      std::vector<std::string> fields;
      for (const formats::Field& field : node.fields) {
        fields.push_back(fmt::format("{}: {}", json_string(field.name), json_of(field.value)));
      }
      return fmt::format("{{{}}}", fmt::join(fields, ", "));
    }
  }
  return "null";
}

/// The fields of a description, in the order in which they came.
class Description {
 public:
  void set(const std::string& name, std::string json) {
    const auto found = std::ranges::find(fields_, name, &Field::first);
    if (found != fields_.end()) {
      found->second = std::move(json);
    } else {
      fields_.emplace_back(name, std::move(json));
    }
  }
  [[nodiscard]] std::string json() const {
    std::vector<std::string> parts;
    for (const auto& [name, value] : fields_) {
      parts.push_back(fmt::format("{}: {}", json_string(name), value));
    }
    return fmt::format("{{{}}}", fmt::join(parts, ", "));
  }

 private:
  using Field = std::pair<std::string, std::string>;
  std::vector<Field> fields_;
};

std::string object_of(const std::map<std::string, std::string>& values) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : values) {
    parts.push_back(fmt::format("{}: {}", json_string(name), value));
  }
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

absl::Status set_workers(const std::string& text, Description& description) {
  const std::size_t colon = text.find(':');
  const std::optional<std::int64_t> least = formats::parse_integer(text.substr(0, colon));
  const std::optional<std::int64_t> most = colon == std::string::npos ? least : formats::parse_integer(text.substr(colon + 1));
  if (!least || !most || *least < 1 || *most < *least) {
    return error(kInvalid, "--workers: '{}' is no number of workers: write 4, or 1:8 for a range", text);
  }
  description.set("workers", std::to_string(*least));
  description.set("min_workers", std::to_string(*least));
  description.set("max_workers", std::to_string(*most));
  return absl::OkStatus();
}

/// One option whose value stands in the description as a text or a number.
void set_scalar(const char* field, const std::string& text, Description& description) {
  if (!text.empty()) {
    description.set(field, formats::parse_number(text) ? text : json_string(text));
  }
}

absl::Status set_number(const char* option, const char* field, const std::string& text, Description& description) {
  if (text.empty()) {
    return absl::OkStatus();
  }
  if (!formats::parse_number(text)) {
    return error(kInvalid, "{}: '{}' is no number", option, text);
  }
  description.set(field, text);
  return absl::OkStatus();
}

absl::Status set_utility(const JobOptions& options, const formats::JobFile& file, Description& description) {
  if (options.utility.empty() && options.weight.empty()) {
    return absl::OkStatus();
  }
  formats::WeightedUtility utility{file.job.utility, file.job.weight};
  if (!options.utility.empty()) {
    MAYPOLE_ASSIGN_OR_RETURN(utility, formats::parse_utility(options.utility));
  }
  if (!options.weight.empty()) {
    const std::optional<double> weight = formats::parse_number(options.weight);
    if (!weight) {
      return error(kInvalid, "--weight: '{}' is no number", options.weight);
    }
    utility.weight = *weight;
  }
  std::string json = formats::utility_json(utility.utility);
  json.insert(json.size() - 1, fmt::format(", \"weight\": {}", formats::json_number(utility.weight)));
  description.set("utility", std::move(json));
  return absl::OkStatus();
}

absl::Status set_amounts(const JobOptions& options, const formats::JobFile& file, Description& description) {
  std::map<std::string, std::string> amounts;
  for (const auto& [name, amount] : file.per_worker) {
    amounts[name] = formats::json_number(amount);
  }
  for (const auto& [option, name, text] : {std::tuple("--cpus", "cpu", options.cpus), std::tuple("--gpus", "gpu", options.gpus),
                                           std::tuple("--memory", "memory", options.memory)}) {
    if (text.empty()) {
      continue;
    }
    const std::optional<double> number = formats::parse_number(text);
    const absl::StatusOr<std::uint64_t> bytes = base::parse_bytes(text);
    const bool size = std::string(name) == "memory" && bytes.ok();
    if (!number && !size) {
      return error(kInvalid, "{}: '{}' is no {}", option, text, std::string(name) == "memory" ? "size: write 4GB" : "number");
    }
    amounts[name] = number ? text : std::to_string(*bytes);
  }
  if (!amounts.empty()) {
    description.set("per_worker", object_of(amounts));
  }
  return absl::OkStatus();
}

absl::Status set_environment(const JobOptions& options, const formats::JobFile& file, std::map<std::string, std::string> variables,
                             Description& description) {
  for (const auto& [name, value] : file.env) {
    variables[name] = value;
  }
  for (const std::string& variable : options.env) {
    const std::size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    const char* own = ::getenv(name.c_str());
    if (name.empty() || (equals == std::string::npos && own == nullptr)) {
      return error(kInvalid, "--env: '{}' is neither NAME=VALUE nor the name of a variable that is set", variable);
    }
    variables[name] = equals == std::string::npos ? own : variable.substr(equals + 1);
  }
  std::map<std::string, std::string> quoted;
  for (const auto& [name, value] : variables) {
    quoted[name] = json_string(value);
  }
  if (!quoted.empty()) {
    description.set("env", object_of(quoted));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> describe_job(const JobOptions& options, const std::string& directory,
                                         const std::map<std::string, std::string>& environment) {
  Description description;
  description.set("version", "1");
  formats::JobFile file;
  std::filesystem::path folder = directory;
  if (!options.file.empty()) {
    MAYPOLE_ASSIGN_OR_RETURN(file, formats::read_job_file(options.file));
    MAYPOLE_ASSIGN_OR_RETURN(const std::string text, formats::read_text_file(options.file));
    MAYPOLE_ASSIGN_OR_RETURN(const Node node, formats::parse_yaml(text, formats::file_name(options.file)));
    for (const formats::Field& field : node.fields) {
      description.set(field.name, json_of(field.value));
    }
    if (std::ranges::find(node.fields, "progress", &formats::Field::name) != node.fields.end()) {
      description.set("progress", formats::progress_json(file.job.progress));  // it may name a file that only we see
    }
    folder = std::filesystem::absolute(options.file).parent_path();
  } else if (options.command.empty()) {
    return error(kInvalid, "no command: write it after --, as in `maypole submit -- python3 train.py`, or give a job.yaml");
  }
  if (!options.command.empty()) {
    std::vector<std::string> words;
    for (const std::string& word : options.command) {
      words.push_back(json_string(word));
    }
    description.set("command", fmt::format("[{}]", fmt::join(words, ", ")));
  }
  if (!options.name.empty()) {
    description.set("name", json_string(options.name));
  }
  if (!options.workers.empty()) {
    MAYPOLE_RETURN_IF_ERROR(set_workers(options.workers, description));
  }
  MAYPOLE_RETURN_IF_ERROR(set_amounts(options, file, description));
  MAYPOLE_RETURN_IF_ERROR(set_utility(options, file, description));
  MAYPOLE_RETURN_IF_ERROR(set_number("--retries", "retries", options.retries, description));
  if (!options.bandwidth.empty()) {
    const absl::StatusOr<base::Bandwidth> rate = base::parse_bandwidth(options.bandwidth);
    if (!rate.ok()) {
      return error(kInvalid, "--bandwidth: {}", base::message(rate.status()));
    }
    description.set("edge_bandwidth", json_string(options.bandwidth));
    description.set("payload", "false");  // what people write on the command line is nominal
  }
  if (!options.racks.empty()) {
    if (const absl::StatusOr<formats::RackLimit> limit = formats::parse_rack_limit(options.racks); !limit.ok()) {
      return error(kInvalid, "--racks: {}", base::message(limit.status()));
    }
    description.set("racks", json_string(options.racks));
  }
  if (!options.time.empty()) {
    if (const absl::StatusOr<base::Nanoseconds> time = base::parse_duration(options.time); !time.ok()) {
      return error(kInvalid, "--time: {}", base::message(time.status()));
    }
    set_scalar("time_limit", options.time, description);
  }
  if (options.allow_wait) {
    description.set("allow_wait", "true");
  }
  MAYPOLE_RETURN_IF_ERROR(set_environment(options, file, environment, description));
  const std::filesystem::path chdir = options.chdir.empty() ? folder / file.chdir : std::filesystem::path(directory) / options.chdir;
  description.set("chdir", json_string(chdir.lexically_normal().string()));
  std::string json = description.json();
  MAYPOLE_RETURN_IF_ERROR(formats::parse_job_file(json, "the job").status());
  return json;
}

}  // namespace maypole::cli
