// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/replay.h"

#include "maypole/base/clock.h"
#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/cli/decision_text.h"
#include "maypole/cli/scenario.h"
#include "maypole/sched/controller.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace maypole::cli {

namespace {

constexpr int kFailed = 1;

/// What of the answer does not repeat; empty where all does. Seconds never do.
std::vector<std::string> differences(const DecisionDump& dump, const sched::Decision& answer) {
  std::vector<std::string> names;
  const auto compare = [&names](const char* name, bool same) {
    if (!same) {
      names.emplace_back(name);
    }
  };
  std::vector<model::Job> by_id;  // to_line() looks jobs up by their id
  for (std::size_t i = 0; i < dump.ids.size(); ++i) {
    by_id.resize(std::max(by_id.size(), dump.ids[i].index() + 1));
    by_id[dump.ids[i].index()] = dump.instance.jobs[i];
  }
  const formats::DecisionLine line = to_line(answer, by_id, dump.instance.cluster);
  compare("jobs", line.jobs == dump.decision.jobs);
  compare("objective", line.objective == dump.decision.objective);
  compare("bound", line.bound == dump.decision.bound);
  compare("bound_lp", line.bound_lp == dump.decision.bound_lp);
  compare("gap", line.gap == dump.decision.gap);
  compare("limited", line.limited == dump.decision.limited);
  compare("note", answer.note == dump.note);
  compare("work", answer.work == dump.work);
  return names;
}

int replay(const std::string& path, const base::Clock& clock) {
  auto dump = read_dump(path);
  if (!dump.ok()) {
    return fail("replay", dump.status());
  }
  auto policy = sched::make_policy(dump->policy.name, dump->policy.options);
  if (!policy.ok()) {
    return fail("replay", policy.status());
  }
  const sched::SlotProblem problem = dump->problem();
  base::Rng rng = sched::slot_rng(dump->instance.seed, dump->slot);
  const base::TimePoint before = clock.now();
  const sched::Decision answer = (*policy)->decide(problem, rng);
  const double seconds = base::to_seconds(clock.now() - before);
  const std::vector<std::string> differing = differences(*dump, answer);
  if (!differing.empty()) {
    std::string names;
    for (const std::string& name : differing) {
      names += names.empty() ? name : ", " + name;
    }
    fmt::print(stderr, "maypole replay: slot {} under {} does not repeat: {} differ\n", dump->slot, dump->policy.text, names);
    return kFailed;
  }
  fmt::print("slot {} under {} repeats bit for bit: {} of {} jobs with workers, {} (then {})\n", dump->slot, dump->policy.text,
             answer.placements.size(), problem.jobs.size(), base::format_seconds(seconds), base::format_seconds(dump->decision.seconds));
  return 0;
}

}  // namespace

std::function<int()> add_replay(CLI::App& app) {
  CLI::App* command = app.add_subcommand("replay", "Repeat a decision that `simulate --dump-decision` wrote, and compare");
  auto path = std::make_shared<std::string>();  // shared with the function that outlives this one
  command->add_option("FILE", *path, "The dumped decision")->required();
  return [path] { return replay(*path, base::SteadyClock()); };
}

}  // namespace maypole::cli
