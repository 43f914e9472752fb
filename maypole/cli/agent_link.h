// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/base/units.h"
#include "maypole/cli/hosts.h"
#include "maypole/cli/messages.h"
#include "maypole/net/child_process.h"

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::cli {

/// The launcher's end of one agent.
struct AgentLink {
  enum class State {
    kStarting,  // has not answered yet
    kReady,     // waits for the others
    kRunning,
    kDone,  // all its workers have ended, nothing is left
    kLost,
  };

  HostWorkers place;
  std::string address;  // under which the job's other hosts reach this one
  bool direct = true;   // a child of ours on this machine, without a launcher template
  std::vector<std::string> command;
  net::Child child;
  std::optional<net::ExitStatus> ended;
  std::optional<base::TimePoint> ends_by;  // set when it has closed its stream: its process is killed if it lives on
  MessageReader reader;
  WriteQueue queue;
  AgentReady ready;
  State state = State::kStarting;

  /// Whether there is anything to poll for: poll() takes no more entries than a process may open files, empty ones included.
  [[nodiscard]] bool connected() const { return child.output.valid() || child.input.valid(); }
  [[nodiscard]] bool over() const { return state == State::kDone || state == State::kLost; }
  void send(MessageKind kind, std::string_view body) {
    if (child.input.valid()) {
      queue.push(encode_message(kind, body));
    }
  }
  /// Closes both pipes; an agent that still lives then ends everything it started.
  void hang_up() {
    child.input.reset();
    child.output.reset();
  }
};

/// Decides for each host how its agent is started and how the others reach it. The error names host and remedy.
[[nodiscard]] absl::StatusOr<std::vector<AgentLink>> plan_agents(const std::vector<HostWorkers>& places, const std::string& launcher,
                                                                 const std::string& program);

/// Where the agent of rank 0 listens: a numeric address of its own, or every address ("") where others know it by name.
[[nodiscard]] std::string bind_address(const AgentLink& agent);

/// What each agent is told when all are ready, by their answers.
[[nodiscard]] std::vector<StartOrder> start_orders(const std::vector<AgentLink>& agents);

/// The name of the host entry of each rank.
[[nodiscard]] std::map<int, std::string> hosts_by_rank(const std::vector<AgentLink>& agents);

/// Why an agent whose process has ended is lost: what it was started by, and how that ended.
[[nodiscard]] std::string why_lost(const AgentLink& agent);

/// The part of net::machine_identity() that is the machine's, without its network namespace: who shares cores, clock and files.
[[nodiscard]] std::string boot_of(const std::string& identity);

/// Removes the temporary folders of agents on this machine that could not do it themselves, because they were killed.
void remove_folders_left(const std::vector<AgentLink>& agents);

/// Reads what the agent has sent and hands each message on, until the agent is over. Returns why it is lost where its bytes are not
/// ours. At the end of its stream it gets a moment to end.
[[nodiscard]] std::optional<std::string> read_messages(AgentLink& agent, absl::FunctionRef<void(const Message&)> on_message);

/// Looks at an agent whose stream has ended without kDone; returns why it is lost once its process has ended too, and kills one that
/// does not end.
[[nodiscard]] std::optional<std::string> find_lost(const AgentLink& agent);

/// Starts the agent's process; it reads its spec next.
[[nodiscard]] absl::Status start_agent(AgentLink& agent);

}  // namespace maypole::cli
