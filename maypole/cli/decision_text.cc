// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/decision_text.h"

#include "maypole/base/status.h"
#include "maypole/formats/instance_json.h"
#include "maypole/formats/text_file.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

namespace maypole::cli {

namespace {

using Json = nlohmann::ordered_json;
using base::error;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

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

sched::PolicyOptions options_of(const Json& json) {
  sched::PolicyOptions options;
  for_each_option(options, [&](const char* name, auto& value) { json.at(name).get_to(value); });
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

absl::StatusOr<sched::JobRecord> record_of(const Json& state, model::Job job, const formats::NamedCluster& names, const std::string& file) {
  sched::JobRecord record;
  state.at("progress").get_to(record.progress);
  state.at("late_progress").get_to(record.late_progress);
  state.at("worker_slots").get_to(record.worker_slots);
  state.at("attained_s").get_to(record.attained_s);
  state.at("max_racks").get_to(job.max_racks);
  state.at("max_racks_s").get_to(job.max_racks_s);
  if (!state.at("current").is_null()) {
    MAYPOLE_ASSIGN_OR_RETURN(const formats::DecisionLine line, formats::parse_decision_line(state.at("current").dump(), file, 0));
    if (line.jobs.size() != 1) {
      return error(kInvalid, "{}: current of job '{}' holds {} embeddings: dump the decision again", file, job.id, line.jobs.size());
    }
    MAYPOLE_ASSIGN_OR_RETURN(record.current, names.embedding(line.jobs.front()));
    record.phase = sched::JobPhase::kRunning;
  }
  record.job = std::move(job);
  return record;
}

absl::StatusOr<DecisionDump> parse_dump(const std::string& text, const std::string& file) {
  const Json json = Json::parse(text);
  MAYPOLE_ASSIGN_OR_RETURN(model::Instance instance, formats::parse_instance(json.at("instance").dump(), file));
  DecisionDump dump{{}, std::move(instance), {}, {}, {}, 0, 0, {}, {}, {}};
  dump.policy.text = json.at("policy").get<std::string>();
  dump.policy.name = json.at("policy_name").get<std::string>();
  dump.policy.options = options_of(json.at("options"));
  dump.slot = json.at("slot").get<std::int64_t>();
  const Json& remaining = json.at("remaining_slots");
  dump.remaining_slots = remaining.is_null() ? std::numeric_limits<double>::infinity() : remaining.get<double>();
  const Json& states = json.at("states");
  if (states.size() != dump.instance.jobs.size()) {
    return error(kInvalid, "{}: states has {} entries for {} jobs: dump the decision again", file, states.size(),
                 dump.instance.jobs.size());
  }
  const formats::NamedCluster names(dump.instance.cluster);
  for (std::size_t i = 0; i < states.size(); ++i) {
    MAYPOLE_ASSIGN_OR_RETURN(sched::JobRecord record, record_of(states[i], dump.instance.jobs[i], names, file));
    dump.records.push_back(std::move(record));
    dump.waiting_s.push_back(states[i].at("waiting_s").get<double>());
    dump.ids.emplace_back(states[i].at("id").get<std::int32_t>());
  }
  MAYPOLE_ASSIGN_OR_RETURN(dump.decision, formats::parse_decision_line(json.at("decision").dump(), file, 0));
  dump.note = json.at("note").get<std::string>();
  json.at("work").at("pivots").get_to(dump.work.pivots);
  json.at("work").at("columns").get_to(dump.work.columns);
  json.at("work").at("roundings").get_to(dump.work.roundings);
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
  json["version"] = 1;
  json["policy"] = policy.text;
  json["policy_name"] = policy.name;
  json["options"] = options_json(policy.options);
  json["slot"] = problem.slot;
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
  const std::string file = formats::file_name(path);
  try {
    return parse_dump(text, file);
  } catch (const Json::exception& wrong) {
    return error(kInvalid, "{}: not a dumped decision ({}): make one by `maypole simulate --dump-decision SLOT FILE`", file, wrong.what());
  }
}

}  // namespace maypole::cli
