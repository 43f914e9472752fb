// SPDX-License-Identifier: Apache-2.0
#pragma once

// `maypole up`: one thread that owns store, core and executor, and the order in which it does things:
//
//   what happened and what was asked  ->  core  ->  commit  ->  actions and answers
//
// Nothing is started, ended or acknowledged before what led to it is durable. All that happened since the last turn goes into one commit.

#include "maypole/base/clock.h"
#include "maypole/daemon/executor.h"
#include "maypole/daemon/local_executor.h"
#include "maypole/daemon/mailbox.h"
#include "maypole/daemon/retention.h"
#include "maypole/daemon/store.h"
#include "maypole/daemon/supervisor.h"

#include <absl/status/status.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace maypole::daemon {

struct DaemonOptions {
  std::string data_dir;
  std::string host = "127.0.0.1";
  int port = 7077;
  double slot_s = 60;
  double age_s = 600;
  KeepEnded keep_ended;
  std::string program;  // `maypole`
  Launchers launchers;
  bool hold_cores = false;  // of servers of a cluster file
};

/// Runs until a signal (SIGTERM, SIGINT, SIGHUP) or a request ends it; workers go on. `ready` is called once with the address when it
/// answers. Call it from the only thread of the process. Errors: kFailedPrecondition: another daemon has the data directory, or what is
/// there does not fit the cluster; kAlreadyExists: the port is taken; what the store says.
[[nodiscard]] absl::Status run_daemon(
    const DaemonOptions& options, model::Cluster cluster, std::unique_ptr<sched::Policy> policy,
    const std::function<void(const std::string& address, std::size_t num_jobs, const std::string& login_path)>& ready);

/// One turn of that order, apart from sockets and signals, so that each step can be made to fail.
class Turn {
 public:
  Turn(Store& store, Supervisor& supervisor, Executor& executor, Api& api)
      : store_(&store), supervisor_(&supervisor), executor_(&executor), api_(&api) {}
  void run(std::vector<Letter> letters, double now_s);
  /// A commit failed; actions wait until one succeeds.
  [[nodiscard]] bool blocked() const { return !waiting_.empty() || !status_.ok(); }

 private:
  void carry_out(const Action& action);

  Store* store_;
  Supervisor* supervisor_;
  Executor* executor_;
  Api* api_;
  std::vector<Action> waiting_;  // for the commit of what led to them
  absl::Status status_;
};

}  // namespace maypole::daemon
