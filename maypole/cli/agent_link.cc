// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/agent_link.h"

#include "maypole/base/status.h"
#include "maypole/cli/launcher_template.h"
#include "maypole/net/address.h"
#include "maypole/net/machine.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

namespace maypole::cli {

namespace {

constexpr std::chrono::seconds kAfterHangUp{5};  // an agent that has closed its stream ends within this
constexpr const char* kDefaultLauncher = "ssh {host} {command}";

bool is_number(const std::string& address) { return net::SocketAddress::parse(address, 0).ok(); }

std::string address_of(const HostEntry& host, bool alone) {
  if (!host.address.empty()) {
    return host.address;
  }
  if (alone) {
    return "127.0.0.1";
  }
  return host.name.substr(host.name.find('@') + 1);  // user@host, as ssh takes it
}

}  // namespace

absl::StatusOr<std::vector<AgentLink>> plan_agents(const std::vector<HostWorkers>& places, const std::string& launcher,
                                                   const std::string& program) {
  const bool all_here =
      launcher.empty() && std::ranges::all_of(places, [](const HostWorkers& place) { return is_this_machine(place.host); });
  std::vector<AgentLink> agents;
  for (const HostWorkers& place : places) {
    AgentLink& agent = agents.emplace_back();
    agent.place = place;
    agent.address = address_of(place.host, all_here || places.size() == 1);
    agent.direct = launcher.empty() && is_this_machine(place.host);
    agent.command = {program, "agent"};
    if (agent.direct) {
      continue;
    }
    if (!is_shell_safe(program)) {
      return base::error(absl::StatusCode::kInvalidArgument,
                         "the path of this program, '{}', holds characters that a remote shell would change: install it elsewhere",
                         program);
    }
    MAYPOLE_ASSIGN_OR_RETURN(agent.command,
                             expand_launcher(launcher.empty() ? kDefaultLauncher : launcher, place.host.name, agent.command));
  }
  if (!all_here && launcher.empty() && agents.size() > 1 && is_loopback(agents[0].address)) {
    return base::error(
        absl::StatusCode::kInvalidArgument,
        "rank 0 runs on '{}', whose address {} the other hosts cannot reach: write {}=ADDRESS:{} with the address that they see",
        agents[0].place.host.name, agents[0].address, agents[0].place.host.name, agents[0].place.host.slots);
  }
  return agents;
}

std::string bind_address(const AgentLink& agent) { return is_number(agent.address) ? agent.address : ""; }

std::vector<StartOrder> start_orders(const std::vector<AgentLink>& agents) {
  std::map<std::string, int> workers_on;
  for (const AgentLink& agent : agents) {
    workers_on[agent.ready.machine] += agent.place.num_workers;
  }
  const AgentLink& first = agents.front();
  std::vector<StartOrder> orders;
  for (const AgentLink& agent : agents) {
    orders.push_back({net::format_host_port(first.address, static_cast<std::uint16_t>(first.ready.rendezvous_port)), first.address,
                      first.ready.master_port, workers_on[agent.ready.machine]});
  }
  return orders;
}

std::map<int, std::string> hosts_by_rank(const std::vector<AgentLink>& agents) {
  std::map<int, std::string> hosts;
  for (const AgentLink& agent : agents) {
    for (int i = 0; i < agent.place.num_workers; ++i) {
      hosts[agent.place.first_rank + i] = agent.place.host.name;
    }
  }
  return hosts;
}

std::string why_lost(const AgentLink& agent) {
  const std::string ended = fmt::format("`{}` {}", quote_words(agent.command), net::describe(agent.ended.value_or(net::ExitStatus{})));
  if (agent.state == AgentLink::State::kStarting) {
    return ended + " before the agent answered: check the host's name and the launcher";
  }
  return "the connection to its agent is lost: " + ended;
}

void remove_folders_left(const std::vector<AgentLink>& agents) {
  const absl::StatusOr<std::string> here = net::machine_identity();
  for (const AgentLink& agent : agents) {
    const AgentReady& ready = agent.ready;
    if (here.ok() && !ready.directory.empty() && ready.machine == boot_of(*here)) {
      std::error_code ignored;
      std::filesystem::remove_all(ready.directory, ignored);
    }
  }
}

std::optional<std::string> read_messages(AgentLink& agent, absl::FunctionRef<void(const Message&)> on_message) {
  const std::optional<std::string> bytes = read_some(agent.child.output.get(), 256U << 10U);
  if (!bytes) {
    agent.hang_up();
    agent.ends_by = std::chrono::steady_clock::now() + kAfterHangUp;
    return std::nullopt;
  }
  agent.reader.append(*bytes);
  while (!agent.over()) {
    auto message = agent.reader.next();
    if (!message.ok()) {
      return fmt::format("`{}` printed {} before the agent's messages: nothing but the agent may write to its standard output",
                         quote_words(agent.command), base::message(message.status()));
    }
    if (!message->has_value()) {
      break;
    }
    on_message(**message);
  }
  return std::nullopt;
}

std::optional<std::string> find_lost(const AgentLink& agent) {
  if (agent.over() || agent.child.output.valid()) {
    return std::nullopt;
  }
  if (agent.ended) {
    return why_lost(agent);
  }
  if (agent.ends_by && std::chrono::steady_clock::now() >= *agent.ends_by) {
    ::kill(agent.child.pid, SIGKILL);
  }
  return std::nullopt;
}

std::string boot_of(const std::string& identity) { return identity.substr(0, identity.find('/')); }

absl::Status start_agent(AgentLink& agent) {
  net::ChildOptions options;
  options.command = agent.command;
  options.environment = net::current_environment();
  options.standard_input = net::Stdio::kPipe;
  options.standard_output = net::Stdio::kPipe;
  // A launcher program stays with the terminal, where ssh asks for passwords; the terminal's signals go to the workers through us.
  options.new_session = agent.direct;
  options.ignored_signals = {SIGINT, SIGQUIT, SIGHUP, SIGTERM};
  MAYPOLE_ASSIGN_OR_RETURN(agent.child, net::start_child(options));
  set_non_blocking(agent.child.input.get());
  set_non_blocking(agent.child.output.get());
  return absl::OkStatus();
}

}  // namespace maypole::cli
