// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/job_file.h"

#include "maypole/base/status.h"
#include "maypole/formats/document.h"
#include "maypole/formats/number.h"
#include "maypole/formats/text_file.h"

#include <algorithm>
#include <limits>

namespace maypole::formats {

namespace {

using base::error;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int kMostInt = std::numeric_limits<int>::max();

int optional_integer(const Value& value, int least, int otherwise) {
  return value.present() ? static_cast<int>(value.integer(least, kMostInt)) : otherwise;
}

void read_workers(Map& map, model::Job& job) {
  const Value least = map["min_workers"];
  const Value most = map["max_workers"];
  job.workers = optional_integer(map["workers"], 1, optional_integer(least, 1, 1));
  job.min_workers = optional_integer(least, 1, job.workers);
  job.max_workers = optional_integer(most, 1, job.workers);
  if (job.min_workers > job.workers) {
    least.problem(fmt::format("{} is more than workers, {}: give min_workers <= workers <= max_workers", job.min_workers, job.workers));
  }
  if (job.max_workers < job.workers) {
    most.problem(fmt::format("{} is less than workers, {}: give min_workers <= workers <= max_workers", job.max_workers, job.workers));
  }
}

std::vector<std::string> read_command(const Value& value) {
  std::vector<std::string> words;
  for (const Value& item : value.list()) {
    words.push_back(item.scalar());
  }
  if (words.empty()) {
    value.problem("is empty: give the program and its arguments, such as [python3, train.py]");
  }
  return words;
}

std::vector<std::pair<std::string, std::string>> read_env(const Value& value) {
  std::vector<std::pair<std::string, std::string>> env;
  for (const Value::Entry& entry : value.entries()) {
    if (entry.name.empty() || entry.name.find('=') != std::string::npos) {
      entry.value.problem(fmt::format("'{}' is no name of a variable", entry.name));
    }
    env.emplace_back(entry.name, entry.value.present() ? entry.value.scalar() : "");
  }
  return env;
}

void read_racks(const Value& value, model::Job& job) {
  const absl::StatusOr<RackLimit> limit = parse_rack_limit(value.scalar());
  if (!limit.ok()) {
    value.problem(base::message(limit.status()));
    return;
  }
  job.max_racks = limit->racks;
  job.max_racks_s = limit->for_s;
}

/// A map as in an instance, or the file that holds one.
void read_job_progress(const Value& value, const std::string& folder, model::Job& job) {
  if (value.is_map()) {
    job.progress = read_progress(value);
    return;
  }
  absl::StatusOr<model::ProgressModel> read = read_progress_file(folder, value.scalar());
  if (!read.ok()) {
    value.problem(base::message(read.status()));
    return;
  }
  job.progress = *std::move(read);
}

}  // namespace

absl::StatusOr<JobFile> parse_job_file(std::string_view text, std::string_view file, const std::string& folder) {
  MAYPOLE_ASSIGN_OR_RETURN(const Node node, parse_yaml(text, file));
  Problems problems{std::string(file)};
  Map map(Value(&node, 1, "", &problems));
  JobFile read;
  const Value version = map["version"];
  if (const std::int64_t number = version.integer(1, kMostInt); number != 1 && problems.ok()) {
    version.problem(fmt::format("this program reads version 1, the file has {}", number));
  }
  const Value payload = map["payload"];
  const Value name = map["name"];
  read.name = name.present() ? name.scalar() : "";
  read.command = read_command(map["command"]);
  read_workers(map, read.job);
  if (const Value amounts = map["per_worker"]; amounts.present()) {
    read.per_worker = read_amounts(amounts);
  }
  if (const Value bandwidth = map["edge_bandwidth"]; bandwidth.present()) {
    read.job.edge_bandwidth = read_bandwidth(bandwidth, payload.present() && payload.boolean());
  }
  if (const Value utility = map["utility"]; utility.present()) {
    read.job.utility = read_utility(utility, &read.job.weight);
  }
  if (const Value env = map["env"]; env.present()) {
    read.env = read_env(env);
  }
  if (const Value chdir = map["chdir"]; chdir.present()) {
    read.chdir = chdir.scalar();
  }
  if (const Value time_limit = map["time_limit"]; time_limit.present()) {
    read.time_limit_s = read_duration_s(time_limit);
    if (!(*read.time_limit_s > 0)) {
      time_limit.problem("must be above 0: give a time such as 2h, or leave it out");
    }
  }
  if (const Value progress = map["progress"]; progress.present()) {
    read_job_progress(progress, folder, read.job);
  }
  read.retries = optional_integer(map["retries"], 0, 0);
  if (const Value allow_wait = map["allow_wait"]; allow_wait.present()) {
    read.allow_wait = allow_wait.boolean();
  }
  if (const Value racks = map["racks"]; racks.present()) {
    read_racks(racks, read.job);
  }
  map.refuse_others();
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  return read;
}

absl::StatusOr<JobFile> read_job_file(const std::string& path) {
  MAYPOLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  return parse_job_file(text, file_name(path), folder_of(path));
}

absl::StatusOr<model::Amounts> demand_on(const model::Cluster& cluster, const NamedAmounts& per_worker) {
  model::Amounts demand(cluster.num_resources(), 0);
  for (const auto& [name, amount] : per_worker) {
    const std::optional<model::ResourceId> resource = cluster.find_resource(name);
    if (!resource) {
      return error(kInvalid, "per_worker.{}: no server has any '{}': give one of {}", name, name,
                   fmt::join(cluster.parts().resources, ", "));
    }
    demand[*resource] = amount;
  }
  return demand;
}

absl::StatusOr<RackLimit> parse_rack_limit(std::string_view text) {
  const std::size_t at = text.find('@');
  const std::optional<std::int64_t> racks = parse_integer(text.substr(0, at));
  RackLimit limit;
  if (!racks || *racks < 1 || *racks > kMostInt) {
    return error(kInvalid, "'{}' is no limit of racks: write 1, or 1@10min for the first ten minutes of waiting", text);
  }
  limit.racks = static_cast<int>(*racks);
  if (at != std::string_view::npos) {
    MAYPOLE_ASSIGN_OR_RETURN(const base::Nanoseconds wait, base::parse_duration(text.substr(at + 1)));
    limit.for_s = base::to_seconds(wait);
    if (!(limit.for_s > 0)) {
      return error(kInvalid, "'{}' holds for no time: write 1@10min, or 1 for always", text);
    }
  }
  return limit;
}

absl::StatusOr<WeightedUtility> parse_utility(std::string_view text) {
  const bool bare = text.find('{') == std::string_view::npos;
  constexpr std::string_view kOption = "--utility";
  MAYPOLE_ASSIGN_OR_RETURN(Node node, parse_yaml(bare ? fmt::format("{{kind: {}}}", text) : std::string(text), kOption));
  bool deadline = false;
  for (Field& field : node.fields) {
    field.value.line = 0;  // an option of the command line has no lines
    deadline = deadline || (field.name == "kind" && field.value.text == name_of(model::UtilityKind::kDeadline));
  }
  if (deadline && std::ranges::find(node.fields, "work", &Field::name) == node.fields.end()) {
    node.fields.push_back({"work", {.kind = Node::Kind::kPlain, .line = 0, .text = "1", .items = {}, .fields = {}}});
  }
  Problems problems{std::string(kOption)};
  WeightedUtility read;
  read.utility = read_utility(Value(&node, 0, "", &problems), &read.weight);
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  return read;
}

}  // namespace maypole::formats
