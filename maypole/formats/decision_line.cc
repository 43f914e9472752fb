// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/decision_line.h"

#include "maypole/base/status.h"
#include "maypole/formats/document.h"
#include "maypole/formats/job_fields.h"
#include "maypole/formats/json_text.h"
#include "maypole/formats/number.h"
#include "maypole/formats/text_file.h"

#include <limits>

namespace maypole::formats {

namespace {

using base::error;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

void append_names(std::string& text, const std::vector<std::string>& names) {
  text += '[';
  for (const std::string& name : names) {
    text += text.back() == '[' ? "" : ", ";
    text += json_string(name);
  }
  text += ']';
}

std::vector<std::string> read_names(const Value& value) {
  std::vector<std::string> names;
  for (const Value& item : value.list()) {
    names.push_back(item.text());
  }
  return names;
}

JobLine read_job_line(const std::string& id, const Value& value) {
  JobLine job;
  job.id = id;
  Map map(value);
  const Value workers = map["workers"];
  const Value edges = map["edges"];
  job.ring = read_names(map["ring"]);
  for (const Value& edge : edges.list()) {
    job.edges.push_back(read_names(edge));
  }
  job.bandwidth = read_limit(map["bandwidth"]);
  const auto count = static_cast<std::size_t>(workers.integer(1, std::numeric_limits<int>::max()));
  if (count != job.ring.size()) {
    workers.problem(fmt::format("says {}, the ring has {}: the ring names one server per worker", count, job.ring.size()));
  }
  const std::size_t expected = job.ring.size() > 1 ? job.ring.size() : 0;
  if (job.edges.size() != expected) {
    edges.problem(fmt::format("has {} edges, a ring of {} has {}", job.edges.size(), job.ring.size(), expected));
  }
  map.refuse_others();
  return job;
}

}  // namespace

std::string decision_json(const DecisionLine& decision) {
  std::string text = fmt::format("{{\"slot\": {}, \"jobs\": {{", decision.slot);
  for (const JobLine& job : decision.jobs) {
    text += text.back() == '{' ? "" : ", ";
    text += fmt::format("{}: {{\"workers\": {}, \"ring\": ", json_string(job.id), job.ring.size());
    append_names(text, job.ring);
    text += ", \"edges\": [";
    for (const std::vector<std::string>& edge : job.edges) {
      text += text.back() == '[' ? "" : ", ";
      append_names(text, edge);
    }
    text += fmt::format("], \"bandwidth\": {}}}", limit_json(job.bandwidth));
  }
  text += fmt::format("}}, \"utility\": {}, ", format_number(decision.utility));
  if (decision.objective) {
    text += fmt::format("\"objective\": {}, ", format_number(*decision.objective));
  }
  text += fmt::format("\"bound\": {}, \"bound_lp\": {}, \"gap\": {}, \"limited\": {}, \"seconds\": {}}}", json_number(decision.bound),
                      json_number(decision.bound_lp), json_number(decision.gap), decision.limited, format_number(decision.seconds));
  return text;
}

DecisionLine read_decision(const Value& value) {
  Map map(value);
  DecisionLine decision;
  decision.slot = map["slot"].integer(0, std::numeric_limits<std::int64_t>::max());
  for (const Value::Entry& job : map["jobs"].entries()) {
    decision.jobs.push_back(read_job_line(job.name, job.value));
  }
  decision.utility = map["utility"].number();
  decision.objective = map["objective"].optional_number();
  decision.bound = map["bound"].optional_number();
  decision.bound_lp = map["bound_lp"].optional_number();
  decision.gap = map["gap"].optional_number();
  decision.limited = map["limited"].boolean();
  decision.seconds = map["seconds"].number();
  map.refuse_others();
  return decision;
}

absl::StatusOr<DecisionLine> parse_decision_line(std::string_view text, std::string_view file, int line) {
  MAYPOLE_ASSIGN_OR_RETURN(const Node node, parse_json(text, file, line));
  Problems problems{std::string(file)};
  DecisionLine decision = read_decision(Value(&node, line, "", &problems));
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  return decision;
}

absl::StatusOr<std::vector<DecisionLine>> read_decisions(const std::string& path) {
  MAYPOLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  const std::string file = file_name(path);
  std::vector<DecisionLine> decisions;
  int line = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    const std::string_view one = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    ++line;
    MAYPOLE_ASSIGN_OR_RETURN(DecisionLine decision, parse_decision_line(one, file, line));
    if (decision.slot != static_cast<std::int64_t>(decisions.size())) {
      return error(kInvalid, "{}:{}: slot: is {} where {} is next: every slot has one line, in order, from 0", file, line, decision.slot,
                   decisions.size());
    }
    decisions.push_back(std::move(decision));
  }
  return decisions;
}

NamedCluster::NamedCluster(const model::Cluster& cluster) {
  for (std::size_t i = 0; i < cluster.num_servers(); ++i) {
    servers_.emplace(cluster.parts().servers[i].id, model::ServerId::from_index(i));
  }
  for (std::size_t i = 0; i < cluster.num_links(); ++i) {
    links_.emplace(cluster.parts().links[i].id, model::LinkId::from_index(i));
  }
}

absl::StatusOr<model::Embedding> NamedCluster::embedding(const JobLine& job) const {
  model::Embedding embedding;
  embedding.bandwidth = job.bandwidth;
  for (const std::string& server : job.ring) {
    const auto found = servers_.find(server);
    if (found == servers_.end()) {
      return error(kInvalid, "job '{}' has a worker on '{}', which is no server of the cluster", job.id, server);
    }
    embedding.ring.push_back(found->second);
  }
  for (const std::vector<std::string>& edge : job.edges) {
    std::vector<model::LinkId>& path = embedding.edges.emplace_back();
    for (const std::string& link : edge) {
      const auto found = links_.find(link);
      if (found == links_.end()) {
        return error(kInvalid, "job '{}' uses '{}', which is no link of the cluster", job.id, link);
      }
      path.push_back(found->second);
    }
  }
  return embedding;
}

JobLine job_line(std::string_view id, const model::Embedding& embedding, const model::Cluster& cluster) {
  JobLine job;
  job.id = id;
  job.bandwidth = embedding.bandwidth;
  for (const model::ServerId server : embedding.ring) {
    job.ring.push_back(cluster.server(server).id);
  }
  for (const std::vector<model::LinkId>& edge : embedding.edges) {
    std::vector<std::string>& links = job.edges.emplace_back();
    for (const model::LinkId link : edge) {
      links.push_back(cluster.link(link).id);
    }
  }
  return job;
}

}  // namespace maypole::formats
