// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/program.h"

#include "maypole/cli/agent.h"
#include "maypole/cli/check.h"
#include "maypole/cli/cluster.h"
#include "maypole/cli/commit.h"
#include "maypole/cli/compare.h"
#include "maypole/cli/completion.h"
#include "maypole/cli/convert.h"
#include "maypole/cli/head.h"
#include "maypole/cli/jobs.h"
#include "maypole/cli/paper.h"
#include "maypole/cli/plan.h"
#include "maypole/cli/replay.h"
#include "maypole/cli/resize.h"
#include "maypole/cli/run.h"
#include "maypole/cli/simulate.h"
#include "maypole/cli/submit.h"
#include "maypole/cli/top.h"
#include "maypole/cli/trace.h"
#include "maypole/cli/up.h"
#include "maypole/cli/version.h"
#include "maypole/daemon/suggestion.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace maypole::cli {

namespace {

/// The exit code of a command, or that of a failure where its output got lost: on a full disk every write seems to work until the last.
int with_output(int code) {
  const bool written = std::ferror(stdout) == 0 && std::fflush(stdout) == 0;
  if (!written && code == 0) {
    fmt::print(stderr, "maypole: standard output cannot be written: {}\n", std::generic_category().message(errno));
    return 1;
  }
  return code;
}

/// ": did you mean '--workers'?" where a word is like an option of the command, or like one of the commands beneath it.
std::string better_word(const CLI::App& command, const std::vector<std::string>& words) {
  std::vector<std::string> known;
  std::vector<const CLI::App*> apps = {&command};
  for (const CLI::App* part : command.get_subcommands([](const CLI::App* /*each*/) { return true; })) {
    known.push_back(part->get_name());
    apps.push_back(part);
  }
  const bool has_parts = !known.empty();
  for (const CLI::App* app : apps) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        known.push_back("--" + name);
      }
    }
  }
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if ((name.starts_with("--") || has_parts) && std::ranges::find(known, name) == known.end()) {
      if (std::string better = daemon::did_you_mean(name, known); !better.empty()) {
        return better;
      }
    }
  }
  return "";
}

}  // namespace

int run_program(int argc, char** argv) {
  constexpr int kWrongUse = 2;
  // What follows `--` belongs to the job and is not for the parser to look at.
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto dashes = std::ranges::find(arguments, "--");
  std::vector<std::string> command(dashes, arguments.end());
  const bool has_command = !command.empty();
  arguments.erase(dashes, arguments.end());

  CLI::App app("Maypole trains data-parallel jobs as fast as the links between their workers allow.", "maypole");
  app.set_version_flag("--version", fmt::format("maypole {} ({})", kVersion, kCommit));
  app.require_subcommand(1);
  std::map<std::string, std::function<int()>> commands;
  commands["run"] = add_run(app, command);
  commands["profile"] = add_profile(app, command);
  commands["up"] = add_up(app);
  commands["down"] = add_down(app);
  commands["submit"] = add_submit(app, std::move(command));
  commands["queue"] = add_queue(app);
  commands["show"] = add_show(app);
  commands["logs"] = add_logs(app);
  commands["wait"] = add_wait(app);
  commands["cancel"] = add_cancel(app);
  commands["cluster"] = add_cluster(app);
  commands["dashboard"] = add_dashboard(app);
  commands["top"] = add_top(app);
  commands["drain"] = add_drain(app, "drain");
  commands["undrain"] = add_drain(app, "undrain");
  commands["completion"] = add_completion(app);
  commands["token"] = add_token(app);
  commands["shim"] = add_shim(app);
  commands["head"] = add_head(app);
  commands["resize"] = add_resize(app);
  commands["simulate"] = add_simulate(app);
  commands["compare"] = add_compare(app);
  commands["paper"] = add_paper(app);
  commands["plan"] = add_plan(app);
  commands["trace"] = add_trace(app);
  commands["check"] = add_check(app);
  commands["replay"] = add_replay(app);
  commands["convert"] = add_convert(app);
  app.add_subcommand("agent", "Start the workers of one host for `maypole run`")->group("");
  commands["agent"] = run_agent;
  if (!arguments.empty() && !arguments[0].starts_with("-") && !commands.contains(arguments[0])) {
    std::vector<std::string> names;
    for (const auto& [name, run] : commands) {
      names.push_back(name);
    }
    const std::string better = daemon::did_you_mean(arguments[0], names);
    fmt::print(stderr, "maypole: '{}' is not a subcommand{}\n", arguments[0], better.empty() ? ": see `maypole --help`" : better);
    return kWrongUse;
  }
  const std::vector<std::string> words = arguments;
  std::ranges::reverse(arguments);  // as the parser wants them
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      return with_output(app.exit(error));  // --help and --version
    }
    const std::vector<CLI::App*> chosen = app.get_subcommands();
    const bool unknown = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) ||
                         error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError);
    fmt::print(stderr, "maypole{}{}: {}{}\n", chosen.empty() ? "" : " ", chosen.empty() ? "" : chosen.front()->get_name(), error.what(),
               unknown && !chosen.empty() ? better_word(*chosen.front(), {words.begin() + 1, words.end()}) : "");
    return kWrongUse;
  }
  const std::string chosen = app.get_subcommands().front()->get_name();
  if (has_command && chosen != "run" && chosen != "profile" && chosen != "submit") {
    fmt::print(stderr, "maypole {}: takes no command after `--`: leave it out\n", chosen);
    return kWrongUse;
  }
  try {
    return with_output(commands.at(chosen)());
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) != 0) {  // fmt::print: a buffer that went over met the same full disk before the end
      return with_output(0);
    }
    fmt::print(stderr, "maypole {}: {}\n", chosen, error.what());
    return 1;
  }
}

}  // namespace maypole::cli
