// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/decision_text.h"

#include "maypole/base/status.h"
#include "maypole/cli/scenario.h"
#include "maypole/formats/document.h"
#include "maypole/formats/instance_json.h"
#include "maypole/formats/text_file.h"

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

namespace maypole::cli {

namespace {

using Json = nlohmann::ordered_json;
using base::error;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int kDumpVersion = 1;
constexpr std::int64_t kMostId = 10'000'000;  // tables are as long as the largest id

/// Calls visit(name, member) for every option. The binding names them all, so a new one does not compile before it is here.
template <typename Options, typename Visit>
void for_each_option(Options& options, const Visit& visit) {
  auto& [max_pivots, max_columns, max_roundings, ageing_per_s, las_threshold_s, topology_aware, exact_nodes, paper_roundings,
         paper_as_published] = options;
  visit("max_pivots", max_pivots);
  visit("max_columns", max_columns);
  visit("max_roundings", max_roundings);
  visit("ageing_per_s", ageing_per_s);
  visit("las_threshold_s", las_threshold_s);
  visit("topology_aware", topology_aware);
  visit("exact_nodes", exact_nodes);
  visit("paper_roundings", paper_roundings);
  visit("paper_as_published", paper_as_published);
}

Json options_json(const sched::PolicyOptions& options) {
  Json json;
  for_each_option(options, [&](const char* name, const auto& value) { json[name] = value; });
  return json;
}

void read(const formats::Value& value, bool& field) { field = value.boolean(); }
void read(const formats::Value& value, double& field) { field = value.number(); }
template <std::signed_integral Number>
void read(const formats::Value& value, Number& field) {
  field = static_cast<Number>(value.integer(std::numeric_limits<Number>::min(), std::numeric_limits<Number>::max()));
}

sched::PolicyOptions read_options(const formats::Value& value) {
  sched::PolicyOptions options;
  formats::Map map(value);
  for_each_option(options, [&](const char* name, auto& field) { read(map[name], field); });
  map.refuse_others();
  return options;
}

Json state_json(const sched::ActiveJob& job, const model::Cluster& cluster) {
  Json state = {{"id", job.id.value()},
                {"progress", job.progress},
                {"late_progress", job.late_progress},
                {"worker_slots", job.worker_slots},
                {"attained_s", job.attained_s},
                {"waiting_s", job.waiting_s},
                {"max_racks", job.job->max_racks},
                {"max_racks_s", job.job->max_racks_s},
                {"current", nullptr}};
  if (job.running()) {
    // As a decision of one job, so that one reader knows embeddings.
    formats::DecisionLine line;
    line.jobs.push_back(formats::job_line(job.job->id, *job.current, cluster));
    state["current"] = Json::parse(formats::decision_json(line));
  }
  return state;
}

/// A pair of each bin.
Json history_json(const sched::ServiceHistory& history) {
  Json bins = Json::array();
  for (const sched::ServiceHistory::Bin& bin : history.bins()) {
    bins.push_back({bin.ended, bin.passed});
  }
  return bins;
}

void read_history(const formats::Value& value, sched::ServiceHistory& history) {
  const std::vector<formats::Value> bins = value.list();
  if (bins.size() != history.bins().size()) {
    value.problem(fmt::format("has {} bins of service, not {}: dump the decision again", bins.size(), history.bins().size()));
    return;
  }
  for (std::size_t k = 0; k < bins.size(); ++k) {
    const std::vector<formats::Value> pair = bins[k].list();
    if (pair.size() != 2) {
      bins[k].problem("is no pair of jobs that ended and seconds that passed: dump the decision again");
      return;
    }
    history.bins()[k] = {pair[0].number(), pair[1].number()};
  }
}

/// A job's state at the position of its job in dump.instance.
absl::Status read_state(const formats::Value& value, const formats::NamedCluster& names, formats::Problems& problems, DecisionDump& dump) {
  formats::Map map(value);
  sched::JobRecord record;
  record.job = dump.instance.jobs[dump.records.size()];
  dump.ids.emplace_back(static_cast<std::int32_t>(map["id"].integer(0, kMostId)));
  record.progress = map["progress"].number();
  record.late_progress = map["late_progress"].number();
  record.worker_slots = map["worker_slots"].number();
  record.attained_s = map["attained_s"].number();
  dump.waiting_s.push_back(map["waiting_s"].number());
  record.job.max_racks = static_cast<int>(map["max_racks"].integer(0, std::numeric_limits<int>::max()));
  record.job.max_racks_s = map["max_racks_s"].number();
  if (const formats::Value current = map["current"]; current.present()) {
    const formats::DecisionLine line = formats::read_decision(current);
    if (line.jobs.size() != 1 && problems.ok()) {
      current.problem(fmt::format("holds {} embeddings where a job has one: dump the decision again", line.jobs.size()));
    }
    MAYPOLE_RETURN_IF_ERROR(problems.status());
    absl::StatusOr<model::Embedding> embedding = names.embedding(line.jobs.front());
    MAYPOLE_RETURN_IF_ERROR(for_option(problems.file(), embedding.status()));
    record.current = std::move(embedding).value();
    record.phase = sched::JobPhase::kRunning;
  }
  map.refuse_others();
  dump.records.push_back(std::move(record));
  return problems.status();
}

absl::StatusOr<DecisionDump> parse_dump(const std::string& text, const std::string& file) {
  MAYPOLE_ASSIGN_OR_RETURN(const formats::Node node, formats::parse_json(text, file));
  formats::Problems problems(file);
  formats::Map map(formats::Value(&node, 0, "", &problems));
  if (const formats::Value version = map["version"]; version.integer(1, std::numeric_limits<int>::max()) != kDumpVersion && problems.ok()) {
    version.problem(fmt::format("this program reads version {}", kDumpVersion));
  }
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  MAYPOLE_ASSIGN_OR_RETURN(model::Instance instance, formats::read_instance(map["instance"], problems));
  DecisionDump dump{{}, std::move(instance), {}, {}, {}, 0, 0, 0, {}, {}, {}, {}};
  dump.policy.text = map["policy"].text();
  dump.policy.name = map["policy_name"].text();
  dump.policy.options = read_options(map["options"]);
  dump.slot = map["slot"].integer(0, std::numeric_limits<std::int64_t>::max());
  dump.unchanged_slots = map["unchanged_slots"].integer(0, std::numeric_limits<std::int64_t>::max());
  dump.remaining_slots = map["remaining_slots"].optional_number().value_or(std::numeric_limits<double>::infinity());
  read_history(map["history"], dump.history);
  const formats::Value states = map["states"];
  const std::vector<formats::Value> listed = states.list();
  if (listed.size() != dump.instance.jobs.size() && problems.ok()) {
    states.problem(fmt::format("has {} entries for {} jobs: dump the decision again", listed.size(), dump.instance.jobs.size()));
  }
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  const formats::NamedCluster names(dump.instance.cluster);
  for (const formats::Value& state : listed) {
    MAYPOLE_RETURN_IF_ERROR(read_state(state, names, problems, dump));
  }
  dump.decision = formats::read_decision(map["decision"]);
  dump.note = map["note"].text();
  formats::Map work(map["work"]);
  read(work["pivots"], dump.work.pivots);
  read(work["columns"], dump.work.columns);
  read(work["roundings"], dump.work.roundings);
  work.refuse_others();
  map.refuse_others();
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  return dump;
}

}  // namespace

formats::DecisionLine to_line(const sched::Decision& decision, std::span<const model::Job> jobs, const model::Cluster& cluster) {
  formats::DecisionLine line;
  line.slot = decision.slot;
  for (const sched::Placement& placement : decision.placements) {
    line.jobs.push_back(formats::job_line(jobs[placement.job.index()].id, placement.embedding, cluster));
  }
  line.utility = decision.utility;
  line.objective = decision.objective;
  line.bound = decision.bound;
  line.bound_lp = decision.bound_lp;
  line.gap = decision.gap;
  line.limited = decision.limited;
  line.seconds = decision.seconds;
  return line;
}

absl::StatusOr<std::vector<sched::Decision>> to_decisions(const std::vector<formats::DecisionLine>& lines,
                                                          const model::Instance& instance) {
  std::unordered_map<std::string, model::JobId> ids;
  for (std::size_t i = 0; i < instance.jobs.size(); ++i) {
    ids.emplace(instance.jobs[i].id, model::JobId::from_index(i));
  }
  const formats::NamedCluster names(instance.cluster);
  std::vector<sched::Decision> decisions;
  for (const formats::DecisionLine& line : lines) {
    sched::Decision decision;
    decision.slot = line.slot;
    for (const formats::JobLine& job : line.jobs) {
      const auto found = ids.find(job.id);
      if (found == ids.end()) {
        return error(kInvalid, "slot {}: the instance has no job '{}': give the instance that the decisions were made for", line.slot,
                     job.id);
      }
      MAYPOLE_ASSIGN_OR_RETURN(model::Embedding embedding, names.embedding(job));
      decision.placements.push_back({found->second, std::move(embedding)});
    }
    std::ranges::sort(decision.placements, {}, &sched::Placement::job);
    decision.utility = line.utility;
    decision.objective = line.objective;
    decision.bound = line.bound;
    decision.bound_lp = line.bound_lp;
    decision.gap = line.gap;
    decision.limited = line.limited;
    decision.seconds = line.seconds;
    decisions.push_back(std::move(decision));
  }
  return decisions;
}

sched::SlotProblem DecisionDump::problem() const {
  sched::SlotProblem problem;
  problem.cluster = &instance.cluster;
  problem.slot = slot;
  problem.slot_s = instance.slot_s;
  problem.unchanged_slots = unchanged_slots;
  problem.history = &history;
  for (std::size_t i = 0; i < records.size(); ++i) {
    problem.jobs.push_back(sched::view_of(records[i], ids[i], problem.start_s(), remaining_slots));
    problem.jobs.back().waiting_s = waiting_s[i];  // as it was, to the last bit
  }
  return problem;
}

std::string question_json(const sched::SlotProblem& problem, const PolicySpec& policy, const model::Instance& instance) {
  model::Instance asked{*problem.cluster, {}, problem.slot_s, instance.slots, instance.seed};
  Json states = Json::array();
  for (const sched::ActiveJob& job : problem.jobs) {
    asked.jobs.push_back(*job.job);
    states.push_back(state_json(job, *problem.cluster));
  }
  const double remaining = problem.jobs.empty() ? 0 : problem.jobs.front().remaining_slots;
  Json json;
  json["version"] = kDumpVersion;
  json["policy"] = policy.text;
  json["policy_name"] = policy.name;
  json["options"] = options_json(policy.options);
  json["slot"] = problem.slot;
  json["unchanged_slots"] = problem.unchanged_slots;
  json["history"] = history_json(problem.history != nullptr ? *problem.history : sched::ServiceHistory());
  json["remaining_slots"] = remaining == std::numeric_limits<double>::infinity() ? Json(nullptr) : Json(remaining);
  json["instance"] = Json::parse(formats::instance_json(asked));
  json["states"] = std::move(states);
  return json.dump();
}

std::string dump_json(const std::string& question, const sched::Decision& answer, const model::Instance& instance) {
  Json json = Json::parse(question);
  json["decision"] = Json::parse(formats::decision_json(to_line(answer, instance.jobs, instance.cluster)));
  json["note"] = answer.note;
  json["work"] = {{"pivots", answer.work.pivots}, {"columns", answer.work.columns}, {"roundings", answer.work.roundings}};
  return json.dump(1) + "\n";
}

absl::StatusOr<DecisionDump> read_dump(const std::string& path) {
  MAYPOLE_ASSIGN_OR_RETURN(const std::string text, formats::read_text_file(path));
  absl::StatusOr<DecisionDump> dump = parse_dump(text, formats::file_name(path));
  if (!dump.ok()) {
    return error(dump.status().code(), "{}; a dump is made by `maypole simulate --dump-decision SLOT FILE`", base::message(dump.status()));
  }
  return dump;
}

}  // namespace maypole::cli
