// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/compare.h"

#include "maypole/base/status.h"
#include "maypole/cli/policy_spec.h"
#include "maypole/cli/scenario.h"
#include "maypole/cli/simulation_run.h"
#include "maypole/formats/text_file.h"
#include "maypole/sim/report.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <ranges>
#include <utility>
#include <vector>

namespace maypole::cli {

namespace {

struct Written {
  ScenarioFlags scenario;
  std::string policies = "gadget,fifo,drf,las";
  std::string html;
  bool json = false;
};

std::string json_array(const std::vector<SimulationRun>& runs, const Scenario& scenario, const UtilityBound& bound) {
  std::string text = "[";
  for (const SimulationRun& run : runs) {
    text += (text.size() > 1 ? ",\n" : "\n") + simulation_json(run, scenario, bound);
  }
  return text + "\n]\n";
}

std::string cluster_text(const ScenarioFlags& flags) {
  if (!flags.cluster.empty() && flags.cluster != "paper") {
    return formats::file_name(flags.cluster);
  }
  if (is_instance(flags.workload)) {
    return "its own cluster";
  }
  return flags.cluster == "paper" || is_paper(flags.workload) ? "the paper's cluster" : "the suggested cluster";
}

absl::Status compare(const Written& written) {
  auto policies = parse_policies(written.policies);
  if (!policies.ok()) {
    return base::error(absl::StatusCode::kInvalidArgument, "--policies: {}", base::message(policies.status()));
  }
  MAYPOLE_ASSIGN_OR_RETURN(const Scenario scenario, make_scenario(written.scenario));
  const model::Instance& instance = scenario.instance;
  std::optional<formats::OutputFile> page;
  if (!written.html.empty()) {
    MAYPOLE_ASSIGN_OR_RETURN(page, open_for("--html", written.html));
  }
  std::vector<SimulationRun> runs;
  for (const PolicySpec& policy : *policies) {
    MAYPOLE_ASSIGN_OR_RETURN(SimulationRun run, run_policy(instance, policy, {}));
    runs.push_back(std::move(run));
  }
  const UtilityBound bound = utility_bound(instance);
  std::vector<sim::ReportRun> shown;
  for (const SimulationRun& run : runs) {
    shown.push_back({run.policy.text, &run.simulation, &run.metrics});
  }
  std::vector<std::string> notes = scenario.notes;
  if (const std::string overload = overload_text(instance); !overload.empty()) {
    fmt::print(stderr, "maypole compare: {}\n", overload);
    notes.push_back(overload);
  }
  if (page) {
    const std::string title = fmt::format("{} on {}: {}", formats::file_name(written.scenario.workload), cluster_text(written.scenario),
                                          fmt::join(*policies | std::views::transform(&PolicySpec::text), ", "));
    page->write(sim::report_html(shown, instance, {title, bound.value, bound.kind, notes}));
    MAYPOLE_RETURN_IF_ERROR(for_option("--html", page->close()));
  }
  if (written.json) {
    fmt::print("{}", json_array(runs, scenario, bound));
    return absl::OkStatus();
  }
  for (const std::string& note : scenario.notes) {
    fmt::print("{}\n", note);
  }
  fmt::print("{}bound: {}, {:.6g}\n", sim::report_table(shown, bound.value), bound.kind, bound.value);
  for (const SimulationRun& run : runs) {
    if (!run.simulation.stopped.empty()) {
      fmt::print("{} stopped early: {}\n", run.policy.text, run.simulation.stopped);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::function<int()> add_compare(CLI::App& app) {
  CLI::App* command = app.add_subcommand("compare", "Run several policies over the same workload: a table, and a report with plots");
  auto written = std::make_shared<Written>();  // shared with the function that outlives this one
  add_scenario_options(*command, written->scenario);
  command->add_option("--policies", written->policies, "Comma-separated policies")->capture_default_str();
  command->add_option("--html", written->html, "Write one self-contained HTML page");
  command->add_flag("--json", written->json, "Print one JSON array, an object a policy, with the fields of `simulate --json`");
  command->footer(policy_help());
  return [written] {
    const absl::Status status = compare(*written);
    return status.ok() ? 0 : fail("compare", status);
  };
}

}  // namespace maypole::cli
