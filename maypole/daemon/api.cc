// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/api.h"

#include "maypole/base/status.h"
#include "maypole/daemon/cluster_json.h"
#include "maypole/daemon/job_json.h"
#include "maypole/daemon/metrics.h"
#include "maypole/daemon/pages.h"
#include "maypole/daemon/suggestion.h"
#include "maypole/formats/document.h"
#include "maypole/formats/json_text.h"
#include "maypole/formats/number.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bitset>
#include <iterator>
#include <limits>

namespace maypole::daemon {

using formats::json_string;

struct Api::Call {
  const Request& request;
  const TokenRow& who;
  double now_s;
  std::string id;  // what stood for {id}
};

struct Api::Handler {
  Route route;
  Reply (Api::*call)(const Call&);
};

namespace {

constexpr std::size_t kMostLogBytes = 256U << 10U;

/// What stands for {id}, where the path fits the pattern.
std::optional<std::string> match(std::string_view pattern, std::string_view path) {
  const std::size_t open = pattern.find("{id}");
  if (open == std::string_view::npos) {
    return pattern == path ? std::optional<std::string>("") : std::nullopt;
  }
  const std::string_view before = pattern.substr(0, open);
  const std::string_view after = pattern.substr(open + 4);
  if (path.size() <= before.size() + after.size() || !path.starts_with(before) || !path.ends_with(after)) {
    return std::nullopt;
  }
  std::string id(path.substr(before.size(), path.size() - before.size() - after.size()));
  return id.find('/') == std::string::npos ? std::optional(id) : std::nullopt;
}

int status_of(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 507;
    default:
      return 500;
  }
}

Response refusal_of(const absl::Status& status) { return error_response(status_of(status), base::message(status)); }

std::string query_or(const Request& request, const std::string& name, const std::string& otherwise) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? otherwise : found->second;
}

using StateSet = std::bitset<kNumJobStates>;
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

/// `running,queued`, or `active`: all but those of jobs that have ended; nothing: all.
absl::StatusOr<StateSet> parse_states(std::string_view text) {
  StateSet states;
  for (std::size_t begin = 0; !text.empty() && begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view name = text.substr(begin, comma - begin);
    const std::optional<JobState> state = job_state(name);
    if (!state && name != "active") {
      return base::error(absl::StatusCode::kInvalidArgument, "state: '{}' is no state: give active, or some that a job can have", name);
    }
    for (std::size_t i = 0; i < states.size(); ++i) {
      const auto each = static_cast<JobState>(i);
      states[i] = states[i] || (state ? each == *state : !has_ended(each));
    }
    begin = comma + 1;
  }
  return text.empty() ? StateSet().set() : states;
}

}  // namespace

Response error_response(int status, std::string_view sentence) {
  return {.status = status, .body = fmt::format("{{\"error\": {}}}", json_string(sentence))};
}

const std::vector<Api::Handler>& Api::handlers() {
  static const std::vector<Handler> all = {
      {{"POST", "/v1/jobs", Role::kUser}, &Api::submit},
      {{"GET", "/v1/jobs", Role::kUser}, &Api::jobs},
      {{"GET", "/v1/jobs/{id}", Role::kUser}, &Api::job},
      {{"POST", "/v1/jobs/{id}/cancel", Role::kUser}, &Api::cancel},
      {{"GET", "/v1/jobs/{id}/logs", Role::kUser}, &Api::logs},
      {{"GET", "/v1/jobs/{id}/history", Role::kUser}, &Api::history},
      {{"GET", "/v1/decisions", Role::kUser}, &Api::decisions},
      {{"GET", "/v1/events", Role::kUser}, &Api::events},
      {{"GET", "/v1/cluster", Role::kUser}, &Api::cluster},
      {{"POST", "/v1/servers/{id}/drain", Role::kAdmin}, &Api::drain},
      {{"POST", "/v1/servers/{id}/undrain", Role::kAdmin}, &Api::undrain},
      {{"POST", "/v1/logins", Role::kUser}, &Api::create_login},
      {{"GET", "/v1/tokens", Role::kAdmin}, &Api::tokens},
      {{"POST", "/v1/tokens", Role::kAdmin}, &Api::create_token},
      {{"DELETE", "/v1/tokens/{id}", Role::kAdmin}, &Api::revoke_token},
      {{"POST", "/v1/shutdown", Role::kAdmin}, &Api::end},
      {{"GET", "/metrics", Role::kUser}, &Api::metrics},
  };
  return all;
}

std::vector<Route> Api::routes() {
  std::vector<Route> routes;
  for (const Handler& handler : handlers()) {
    routes.push_back(handler.route);
  }
  return routes;
}

Reply Api::handle(const Request& request, double now_s) {
  if (request.path == "/login") {
    const std::string session = request.method == "GET" ? sessions_.open(query_or(request, "key", ""), now_s) : "";
    return {login_page(session)};
  }
  const TokenRow* who = context_.access->find(request.token);
  if (who == nullptr && request.token.empty()) {
    who = sessions_.find(request.session, now_s);
    if (who != nullptr && request.method != "GET" && !request.own_origin) {
      return {error_response(403, "a browser's session changes things only from the daemon's own pages")};
    }
  }
  if (const std::optional<Response> page = dashboard_page(request.path, who != nullptr); page && request.method == "GET") {
    return {*page};
  }
  if (who == nullptr) {
    return {error_response(401, "this needs a token: set MAYPOLE_TOKEN, or use the one in the daemon's data directory")};
  }
  bool other_method = false;
  for (const Handler& handler : handlers()) {
    const std::optional<std::string> id = match(handler.route.path, request.path);
    if (!id) {
      continue;
    }
    if (handler.route.method != request.method) {
      other_method = true;
      continue;
    }
    if (handler.route.role == Role::kAdmin && who->role != Role::kAdmin) {
      return {error_response(403, fmt::format("'{}' is a user's token, and this is for admins", who->name))};
    }
    return (this->*handler.call)({request, *who, now_s, *id});
  }
  if (other_method) {
    return {error_response(405, fmt::format("{} takes no {}", request.path, request.method))};
  }
  return {error_response(404, fmt::format("there is no {}: docs/openapi.json lists what there is", request.path))};
}

const Job* Api::find_job(const std::string& id) const {
  const Supervisor& supervisor = *context_.supervisor;
  if (const std::optional<std::int64_t> number = formats::parse_integer(id)) {
    if (const Job* job = supervisor.find(*number)) {
      return job;
    }
  }
  const Job* last = nullptr;  // of several with a name, one that has not ended goes before, then the youngest
  for (const auto& [number, job] : supervisor.jobs()) {
    if (job.file.name == id && !id.empty() && (last == nullptr || has_ended(last->row.state) || !has_ended(job.row.state))) {
      last = &job;
    }
  }
  return last;
}

Response Api::no_job(const std::string& id) const {
  std::vector<std::string> names;
  for (const auto& [number, job] : context_.supervisor->jobs()) {
    names.push_back(job.file.name);
  }
  std::ranges::sort(names);
  const auto doubled = std::ranges::unique(names);
  names.erase(doubled.begin(), doubled.end());
  return error_response(404, fmt::format("there is no job '{}'{}", id, did_you_mean(id, names)));
}

Reply Api::submit(const Call& call) {
  absl::StatusOr<JobRow> row = context_.supervisor->admit(call.who.name, call.request.body, call.now_s);
  if (!row.ok()) {
    return {refusal_of(row.status())};
  }
  Reply reply{{.status = 201, .body = fmt::format("{{\"id\": \"{}\"}}", row->number)}};
  reply.added = *std::move(row);
  return reply;
}

Reply Api::jobs(const Call& call) {
  const absl::StatusOr<StateSet> wanted = parse_states(query_or(call.request, "state", ""));
  const std::optional<std::int64_t> limit = formats::parse_integer(query_or(call.request, "limit", std::to_string(kNoLimit)));
  if (!wanted.ok()) {
    return {refusal_of(wanted.status())};
  }
  if (!limit || *limit < 0) {
    return {error_response(400, "limit: give a number of jobs of at least 0")};
  }
  constexpr std::string_view kBegin = "{\"jobs\": [";
  std::string text(kBegin);
  std::int64_t shown = 0;
  std::int64_t found = 0;
  for (const auto& [number, job] : context_.supervisor->jobs()) {
    if (!wanted->test(static_cast<std::size_t>(job.row.state))) {
      continue;
    }
    if (++found <= *limit) {
      text += ++shown == 1 ? "" : ",\n ";
      append_job_json(job, text);
    }
  }
  fmt::format_to(std::back_inserter(text), "], \"left_out\": {}}}", found - shown);
  return {{.body = std::move(text)}};
}

Reply Api::job(const Call& call) {
  const Job* job = find_job(call.id);
  return {job == nullptr ? no_job(call.id) : Response{.body = job_json(*job)}};
}

Reply Api::cancel(const Call& call) {
  const Job* job = find_job(call.id);
  if (job == nullptr) {
    return {no_job(call.id)};
  }
  if (call.who.role != Role::kAdmin && job->row.owner != call.who.name) {
    return {error_response(403, fmt::format("job {} belongs to '{}', not to '{}'", job->row.number, job->row.owner, call.who.name))};
  }
  if (has_ended(job->row.state)) {
    return {error_response(409, fmt::format("job {} has ended already: it is {}", job->row.number, name_of(job->row.state)))};
  }
  context_.supervisor->cancel(job->row.number, fmt::format("cancelled by {}", call.who.name), call.now_s);
  return {{.body = job_json(*job)}, {}, true};
}

Reply Api::logs(const Call& call) {
  const Job* job = find_job(call.id);
  if (job == nullptr) {
    return {no_job(call.id)};
  }
  const auto number = [&](const char* name, std::int64_t otherwise) {
    return formats::parse_integer(query_or(call.request, name, std::to_string(otherwise))).value_or(-1);
  };
  const std::int64_t epoch = number("epoch", job->row.epoch);
  const std::int64_t rank = number("rank", 0);
  const std::int64_t offset = number("offset", 0);
  if (epoch < 0 || epoch > job->row.epoch || rank < 0 || rank >= job->file.job.max_workers || offset < 0) {
    return {error_response(
        400, fmt::format("job {} has epochs up to {} and ranks up to {}", job->row.number, job->row.epoch, job->file.job.max_workers - 1))};
  }
  const std::string folder = context_.executor->output_folder({job->row.number, static_cast<int>(epoch)}, static_cast<int>(rank));
  OutputPart part = read_output(folder, static_cast<std::uint64_t>(offset), kMostLogBytes);
  Response response{.body = {}, .type = "application/octet-stream"};
  response.headers = {{"X-Maypole-Epoch", std::to_string(epoch)},
                      {"X-Maypole-Start", std::to_string(part.start)},
                      {"X-Maypole-State", std::string(name_of(job->row.state))},
                      {"X-Maypole-Merged", job->elastic() ? "1" : "0"}};
  response.body = std::move(part.bytes);
  return {std::move(response)};
}

Reply Api::history(const Call& call) {
  const Job* job = find_job(call.id);
  return {job == nullptr ? no_job(call.id) : Response{.body = context_.feed->history_json(job->row.number)}};
}

Reply Api::decisions(const Call& call) {
  const std::string name = query_or(call.request, "job", "");
  const Job* job = name.empty() ? nullptr : find_job(name);
  if (!name.empty() && job == nullptr) {
    return {no_job(name)};
  }
  return {{.body = context_.feed->decisions_json(job == nullptr ? std::nullopt : std::optional(job->row.number))}};
}

Reply Api::events(const Call& call) {
  Response response{.body = {}, .type = "text/event-stream"};
  response.events = EventReader{call.who.name, call.request.last_event_id};
  return {std::move(response)};
}

Reply Api::cluster(const Call& /*call*/) { return {{.body = cluster_json(*context_.supervisor, context_.slot_s)}}; }

Response Api::no_server(const std::string& id) const {
  std::vector<std::string> names;
  for (const model::Server& server : context_.supervisor->controller().cluster().parts().servers) {
    names.push_back(server.id);
  }
  return error_response(404, fmt::format("there is no server '{}'{}", id, did_you_mean(id, names)));
}

Reply Api::drain(const Call& call) {
  Supervisor& supervisor = *context_.supervisor;
  const std::optional<model::ServerId> server = supervisor.controller().cluster().find_server(call.id);
  if (!server) {
    return {no_server(call.id)};
  }
  const std::string reason = fmt::format("drained by {}", call.who.name);
  if (const absl::Status status = context_.store->close_server({call.id, reason, call.now_s}); !status.ok()) {
    return {refusal_of(status)};
  }
  supervisor.close(*server, reason);
  return {{.body = cluster_load(supervisor).servers[server->index()]}};
}

Reply Api::undrain(const Call& call) {
  Supervisor& supervisor = *context_.supervisor;
  const std::optional<model::ServerId> server = supervisor.controller().cluster().find_server(call.id);
  if (!server) {
    return {no_server(call.id)};
  }
  if (const absl::Status status = context_.store->open_server(call.id); !status.ok()) {
    return {refusal_of(status)};
  }
  supervisor.open(*server);
  return {{.body = cluster_load(supervisor).servers[server->index()]}};
}

Reply Api::tokens(const Call& /*call*/) {
  std::vector<std::string> rows;
  for (const TokenRow& row : context_.access->list()) {
    rows.push_back(fmt::format(R"({{"name": {}, "role": "{}", "created_s": {}}})", json_string(row.name), name_of(row.role),
                               formats::json_number(row.created_s)));
  }
  return {{.body = fmt::format("{{\"tokens\": [{}]}}", fmt::join(rows, ", "))}};
}

Reply Api::create_login(const Call& call) {
  return {{.status = 201,
           .body = fmt::format(R"({{"path": "{}", "valid_s": {}}})", login_path(sessions_.create_key(call.who.name, call.now_s)),
                               Sessions::kKeySeconds)}};
}

Reply Api::create_token(const Call& call) {
  const absl::StatusOr<formats::Node> node = formats::parse_json(call.request.body, "body");
  if (!node.ok()) {
    return {refusal_of(node.status())};
  }
  formats::Problems problems("body");
  formats::Map map(formats::Value(&*node, 0, "", &problems));
  const std::string name = map["name"].text();
  const formats::Value role_value = map["role"];
  const std::string role = role_value.present() ? role_value.text() : "user";
  if (role != "user" && role != "admin") {
    role_value.problem(fmt::format("'{}' is no role: give user or admin", role));
  }
  map.refuse_others();
  if (!problems.ok()) {
    return {refusal_of(problems.status())};
  }
  const absl::StatusOr<std::string> token = context_.access->create(name, role == "admin" ? Role::kAdmin : Role::kUser, call.now_s);
  if (!token.ok()) {
    return {refusal_of(token.status())};
  }
  return {{.status = 201, .body = fmt::format(R"({{"name": {}, "role": "{}", "token": "{}"}})", json_string(name), role, *token)}};
}

Reply Api::revoke_token(const Call& call) {
  const absl::Status status = context_.access->revoke(call.id);
  if (status.ok()) {
    context_.feed->log().cut_off(call.id);
  }
  return {status.ok() ? Response{.body = "{}"} : refusal_of(status)};
}

Reply Api::end(const Call& call) {
  const std::string what = query_or(call.request, "jobs", "");
  Supervisor& supervisor = *context_.supervisor;
  const std::vector<std::int64_t> holding = supervisor.holding();
  if (what.empty() && !holding.empty()) {
    return {error_response(
        409, fmt::format("{}: end what runs by --stop-jobs, or let it go on without the daemon by --leave-jobs",
                         holding.size() == 1 ? fmt::format("job {} runs", holding.front()) : fmt::format("{} jobs run", holding.size())))};
  }
  if (!what.empty() && what != "stop" && what != "leave") {
    return {error_response(400, fmt::format("jobs: '{}' is neither stop nor leave", what))};
  }
  if (what == "stop") {
    supervisor.start_no_more();
    for (const std::int64_t number : holding) {
      supervisor.cancel(number, fmt::format("stopped by {} with the daemon", call.who.name), call.now_s);
    }
  }
  shutdown_ = what == "stop" ? Shutdown::kStopJobs : Shutdown::kLeaveJobs;
  return {{.body = "{}"}, {}, true};
}

Reply Api::metrics(const Call& /*call*/) { return {{.body = metrics_text(*context_.supervisor), .type = "text/plain; version=0.0.4"}}; }

}  // namespace maypole::daemon
