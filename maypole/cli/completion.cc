// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/completion.h"

#include "maypole/base/status.h"
#include "maypole/cli/cluster_command.h"
#include "maypole/cli/cluster_view.h"
#include "maypole/cli/job_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <memory>
#include <set>
#include <vector>

namespace maypole::cli {

namespace {

// @...@ stand for what is known of the program.
constexpr std::string_view kScript = R"script(# Completes maypole in bash:  source <(maypole completion bash)
_maypole() {
  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}" options="" kind="" i
  local where=() IFS=$'\n'
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "@commands@" -- "$word"))
    return
  fi
  for ((i = 2; i < COMP_CWORD; i++)); do
    case "${COMP_WORDS[i]}" in
      --) compopt -o default; return ;;  # the job's own command
      --data-dir) where=(--data-dir "${COMP_WORDS[i+1]}") ;;
    esac
  done
  case "$command" in
@options@
  esac
  case "$command" in
    @with_job@) kind=jobs ;;
    @with_server@) kind=servers ;;
  esac
  if [[ "$word" == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  elif [[ -n "$kind" && "$before" != -* || -n "$kind" && "$before" == -f ]]; then
    COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" completion "$kind" "${where[@]}" 2>/dev/null)" -- "$word"))
  else
    compopt -o default
  fi
}
complete -F _maypole maypole
)script";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t found = text.find(what);
  return found == std::string::npos ? text : text.replace(found, what.size(), by);
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return names;
}

bool takes(const CLI::App& app, const std::string& argument) {
  return std::ranges::any_of(app.get_options(),
                             [&](const CLI::Option* option) { return option->get_positional() && option->get_name() == argument; });
}

/// A word that a shell takes as it is.
bool plain(const std::string& word) {
  return !word.empty() &&
         std::ranges::all_of(word, [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/'; });
}

absl::StatusOr<std::set<std::string>> words(daemon::Client& client, const std::string& kind) {
  std::set<std::string> found;
  if (kind == "jobs") {
    MAYPOLE_ASSIGN_OR_RETURN(const daemon::Answer answer, client.call("GET", "/v1/jobs?state=active"));
    MAYPOLE_ASSIGN_OR_RETURN(const JobList list, parse_jobs(answer.body));
    for (const JobView& job : list.jobs) {
      found.insert({job.id, job.name});
    }
  } else {
    MAYPOLE_ASSIGN_OR_RETURN(const daemon::Answer answer, client.call("GET", "/v1/cluster"));
    MAYPOLE_ASSIGN_OR_RETURN(const ClusterView cluster, parse_cluster_view(answer.body));
    for (const ServerView& server : cluster.servers) {
      found.insert(server.id);
    }
  }
  std::erase_if(found, [](const std::string& word) { return !plain(word); });
  return found;
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::vector<std::string> commands;
  std::vector<std::string> options;
  std::vector<std::string> with_job = {"-"};  // no command is called so: a pattern must not be empty
  std::vector<std::string> with_server = {"-"};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* /*each*/) { return true; })) {
    if (command->get_group().empty()) {
      continue;
    }
    std::vector<std::string> own = options_of(*command);
    for (const CLI::App* part : command->get_subcommands([](const CLI::App* /*each*/) { return true; })) {
      std::ranges::copy(options_of(*part), std::back_inserter(own));
    }
    std::ranges::sort(own);
    own.erase(std::ranges::unique(own).begin(), own.end());
    commands.push_back(command->get_name());
    options.push_back(fmt::format("    {}) options=$'{}' ;;", command->get_name(), fmt::join(own, "\\n")));
    if (takes(*command, "job")) {
      with_job.push_back(command->get_name());
    }
    if (takes(*command, "server")) {
      with_server.push_back(command->get_name());
    }
  }
  std::string script = replaced(std::string(kScript), "\"@commands@\"", fmt::format("$'{}'", fmt::join(commands, "\\n")));
  script = replaced(std::move(script), "@options@", fmt::format("{}", fmt::join(options, "\n")));
  script = replaced(std::move(script), "@with_job@", fmt::format("{}", fmt::join(with_job, "|")));
  return replaced(std::move(script), "@with_server@", fmt::format("{}", fmt::join(with_server, "|")));
}

std::function<int()> add_completion(CLI::App& app) {
  struct Written {
    ClusterFlags flags;
    std::string what;
  };
  auto written = std::make_shared<Written>();  // shared with the function that outlives this one
  CLI::App* completion =
      app.add_subcommand("completion", "Print a script that completes commands, options and jobs: source <(maypole completion bash)");
  completion->add_option("what", written->what, "bash; jobs and servers: the words that the script asks a daemon for")
      ->required()
      ->check(CLI::IsMember({"bash", "jobs", "servers"}));
  completion->add_option("--data-dir", written->flags.client.data_dir, "The daemon's data directory");
  return [written, &app] {
    if (written->what == "bash") {
      fmt::print("{}", bash_completion(app));
      return 0;
    }
    written->flags.client.wait_s = 0;  // a shell waits for this
    return with_client("completion", written->flags, [&](daemon::Client& client) -> absl::StatusOr<int> {
      MAYPOLE_ASSIGN_OR_RETURN(const std::set<std::string> found, words(client, written->what));
      for (const std::string& word : found) {
        fmt::print("{}\n", word);
      }
      return 0;
    });
  };
}

}  // namespace maypole::cli
