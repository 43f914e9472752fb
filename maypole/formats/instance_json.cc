// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/instance_json.h"

#include "maypole/base/status.h"
#include "maypole/formats/cluster_parts.h"
#include "maypole/formats/job_fields.h"
#include "maypole/formats/json_text.h"
#include "maypole/formats/number.h"
#include "maypole/formats/text_file.h"

#include <limits>
#include <string_view>
#include <unordered_set>

namespace maypole::formats {

namespace {

constexpr int kVersion = 1;
constexpr std::int64_t kMostInt = std::numeric_limits<int>::max();

std::string job_json(const model::Job& job, const model::Cluster& cluster) {
  std::string text = fmt::format(
      "{{\"id\": {}, \"arrival_s\": {}, \"min_workers\": {}, \"workers\": {}, \"max_workers\": {}, \"demand\": {}, "
      "\"edge_bandwidth\": {}, \"work\": {}, \"budget\": {}, \"weight\": {}, \"utility\": {}, \"progress\": {}",
      json_string(job.id), format_number(job.arrival_s), job.min_workers, job.workers, job.max_workers, amounts_json(job.demand, cluster),
      limit_json(job.edge_bandwidth), json_number(job.work), json_number(job.budget), format_number(job.weight), utility_json(job.utility),
      progress_json(job.progress));
  if (job.max_racks > 0) {
    text += fmt::format(", \"racks\": {{\"max\": {}, \"for_s\": {}}}", job.max_racks, format_number(job.max_racks_s));
  }
  return text + "}";
}

model::Job read_job(const Value& value, const model::Cluster& cluster) {
  Map map(value);
  model::Job job;
  job.id = map["id"].text();
  job.arrival_s = map["arrival_s"].number();
  job.min_workers = static_cast<int>(map["min_workers"].integer(1, kMostInt));
  job.workers = static_cast<int>(map["workers"].integer(1, kMostInt));
  job.max_workers = static_cast<int>(map["max_workers"].integer(1, kMostInt));
  const Value demand = map["demand"];
  job.demand.assign(cluster.num_resources(), 0);
  for (const auto& [name, amount] : read_amounts(demand)) {
    if (const std::optional<model::ResourceId> resource = cluster.find_resource(name)) {
      job.demand[*resource] = amount;
    } else {
      demand.problem(fmt::format("no server has any '{}': give one of {}", name, fmt::join(cluster.parts().resources, ", ")));
    }
  }
  job.edge_bandwidth = read_limit(map["edge_bandwidth"]);
  job.work = map["work"].optional_number();
  job.budget = map["budget"].optional_number();
  job.weight = map["weight"].number();
  job.utility = read_utility(map["utility"]);
  job.progress = read_progress(map["progress"]);
  if (const Value racks = map["racks"]; racks.present()) {
    Map fields(racks);
    job.max_racks = static_cast<int>(fields["max"].integer(1, kMostInt));
    job.max_racks_s = fields["for_s"].number();
    fields.refuse_others();
  }
  map.refuse_others();
  return job;
}

absl::StatusOr<model::Cluster> read_cluster(Map& root, Problems& problems) {
  ClusterNames names;
  for (const Value& item : root["servers"].list()) {
    Map map(item);
    const Value id = map["id"];
    const Value rack = map["rack"];
    if (!names.add_server(id.text(), rack.present() ? rack.text() : "", read_amounts(map["capacity"]))) {
      id.problem(fmt::format("server '{}' is there twice: give each its own id", id.text()));
    }
    map.refuse_others();
  }
  for (const Value& item : root["links"].list()) {
    Map map(item);
    const Value id = map["id"];
    if (!names.add_link(id.text(), map["from"].text(), map["to"].text(), read_limit(map["bandwidth"]))) {
      id.problem(fmt::format("link '{}' is there twice: give each its own id", id.text()));
    }
    map.refuse_others();
  }
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  return names.make(problems.file());
}

absl::Status check_version(Map& root, Problems& problems) {
  const Value version = root["version"];
  const std::int64_t number = version.integer(1, kMostInt);
  if (number != kVersion) {
    version.problem(fmt::format("this program reads version {}, the file has {}", kVersion, number));
  }
  return problems.status();
}

}  // namespace

std::string instance_json(const model::Instance& instance) {
  const model::Cluster& cluster = instance.cluster;
  std::string text =
      fmt::format("{{\"version\": {}, \"slot_s\": {}, \"slots\": {}, \"seed\": {},\n\"servers\": [", kVersion,
                  format_number(instance.slot_s), instance.slots > 0 ? fmt::to_string(instance.slots) : "null", instance.seed);
  std::string_view before = "\n";
  for (const model::Server& server : cluster.parts().servers) {
    text += fmt::format("{}{{\"id\": {}, \"rack\": {}, \"capacity\": {}}}", before, json_string(server.id),
                        server.rack.valid() ? json_string(cluster.rack(server.rack)) : "null", amounts_json(server.capacity, cluster));
    before = ",\n";
  }
  text += "],\n\"links\": [";
  before = "\n";
  for (const model::Link& link : cluster.parts().links) {
    text += fmt::format("{}{{\"id\": {}, \"from\": {}, \"to\": {}, \"bandwidth\": {}}}", before, json_string(link.id),
                        json_string(cluster.node_name(link.from)), json_string(cluster.node_name(link.to)), limit_json(link.bandwidth));
    before = ",\n";
  }
  text += "],\n\"jobs\": [";
  before = "\n";
  for (const model::Job& job : instance.jobs) {
    text += before;
    text += job_json(job, cluster);
    before = ",\n";
  }
  return text + "]}\n";
}

absl::StatusOr<model::Instance> read_instance(const Value& value, Problems& problems) {
  Map root(value);
  MAYPOLE_RETURN_IF_ERROR(check_version(root, problems));
  MAYPOLE_ASSIGN_OR_RETURN(model::Cluster cluster, read_cluster(root, problems));
  model::Instance instance{.cluster = std::move(cluster), .jobs = {}};
  instance.slot_s = root["slot_s"].number();
  const Value slots = root["slots"];
  instance.slots = slots.present() ? static_cast<int>(slots.integer(1, kMostInt)) : 0;
  instance.seed = root["seed"].unsigned_integer();
  for (const Value& item : root["jobs"].list()) {
    instance.jobs.push_back(read_job(item, instance.cluster));
  }
  root.refuse_others();
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  if (const absl::Status checked = check_instance(instance); !checked.ok()) {
    return base::error(checked.code(), "{}: {}", problems.file(), base::message(checked));
  }
  return instance;
}

absl::StatusOr<model::Instance> parse_instance(std::string_view text, std::string_view file) {
  MAYPOLE_ASSIGN_OR_RETURN(const Node node, parse_json(text, file));
  Problems problems{std::string(file)};
  return read_instance(Value(&node, 0, "", &problems), problems);
}

absl::StatusOr<model::Instance> read_instance(const std::string& path) {
  MAYPOLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  return parse_instance(text, file_name(path));
}

absl::StatusOr<model::Cluster> parse_instance_cluster(std::string_view text, std::string_view file) {
  MAYPOLE_ASSIGN_OR_RETURN(const Node node, parse_json(text, file));
  Problems problems{std::string(file)};
  Map root(Value(&node, 0, "", &problems));
  MAYPOLE_RETURN_IF_ERROR(check_version(root, problems));
  return read_cluster(root, problems);
}

}  // namespace maypole::formats
