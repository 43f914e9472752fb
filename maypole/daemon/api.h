// SPDX-License-Identifier: Apache-2.0
#pragma once

// API v1: requests in, answers out, without any socket. docs/openapi.json describes it; a test holds the two together.

#include "maypole/daemon/access.h"
#include "maypole/daemon/event_feed.h"
#include "maypole/daemon/executor.h"
#include "maypole/daemon/sessions.h"
#include "maypole/daemon/supervisor.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace maypole::daemon {

struct Request {
  std::string method;
  std::string path;
  std::map<std::string, std::string> query;
  std::string body;
  std::string token;
  std::string last_event_id = {};
  std::string session = {};  // of a browser's cookie
  bool own_origin = false;   // it says that it comes from a page of ours
};

/// Who is to get the events, and the last one they have seen.
struct EventReader {
  std::string token_name;
  std::string last_event_id;
};

struct Response {
  int status = 200;
  std::string body;
  std::string type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::optional<EventReader> events = {};   // in place of a body
  std::optional<std::string> session = {};  // for the browser to keep; empty: to forget
};

/// {"error": "..."}; the sentence says what to do.
[[nodiscard]] Response error_response(int status, std::string_view sentence);

struct Reply {
  Response response;
  /// A job that is to be added once its row is durable; the response is given then.
  std::optional<JobRow> added = {};
  /// True: the response is given only when what the request changed is durable.
  bool after_commit = false;
};

/// What a request to end the daemon asked for.
enum class Shutdown { kNone, kLeaveJobs, kStopJobs };

struct ApiContext {
  Supervisor* supervisor;
  Executor* executor;
  Access* access;
  Store* store;
  EventFeed* feed;
  double slot_s = 60;
};

/// One way of calling: a method and a path, where {id} stands for one part.
struct Route {
  std::string method;
  std::string path;
  Role role = Role::kUser;  // the least that may
};

/// Not thread-safe: the daemon's core thread owns it.
class Api {
 public:
  explicit Api(const ApiContext& context) : context_(context), sessions_(*context.access) {}
  [[nodiscard]] static std::vector<Route> routes();
  [[nodiscard]] Reply handle(const Request& request, double now_s);
  [[nodiscard]] Shutdown shutdown() const { return shutdown_; }
  [[nodiscard]] Sessions& sessions() { return sessions_; }
  [[nodiscard]] EventFeed& feed() { return *context_.feed; }

 private:
  struct Call;
  struct Handler;
  static const std::vector<Handler>& handlers();

  [[nodiscard]] const Job* find_job(const std::string& id) const;
  [[nodiscard]] Response no_job(const std::string& id) const;
  [[nodiscard]] Response no_server(const std::string& id) const;

  Reply submit(const Call& call);
  Reply jobs(const Call& call);
  Reply job(const Call& call);
  Reply cancel(const Call& call);
  Reply logs(const Call& call);
  Reply history(const Call& call);
  Reply decisions(const Call& call);
  Reply events(const Call& call);
  Reply cluster(const Call& call);
  Reply drain(const Call& call);
  Reply undrain(const Call& call);
  Reply create_login(const Call& call);
  Reply create_token(const Call& call);
  Reply tokens(const Call& call);
  Reply revoke_token(const Call& call);
  Reply end(const Call& call);
  Reply metrics(const Call& call);

  ApiContext context_;
  Sessions sessions_;
  Shutdown shutdown_ = Shutdown::kNone;
};

}  // namespace maypole::daemon
