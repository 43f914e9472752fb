// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/check.h"

#include "maypole/base/status.h"
#include "maypole/cli/decision_text.h"
#include "maypole/cli/scenario.h"
#include "maypole/formats/decision_line.h"
#include "maypole/formats/instance_json.h"
#include "maypole/formats/json_text.h"
#include "maypole/sched/schedule_checker.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

namespace maypole::cli {

namespace {

constexpr int kFailed = 1;

struct Written {
  std::string instance;
  std::string decisions;
  bool json = false;
};

struct Checked {
  std::size_t slots = 0;
  std::vector<std::string> violations;
};

absl::StatusOr<Checked> check(const Written& written) {
  MAYPOLE_ASSIGN_OR_RETURN(const model::Instance instance, formats::read_instance(written.instance));
  MAYPOLE_ASSIGN_OR_RETURN(const std::vector<formats::DecisionLine> lines, formats::read_decisions(written.decisions));
  MAYPOLE_ASSIGN_OR_RETURN(const std::vector<sched::Decision> decisions, to_decisions(lines, instance));
  return Checked{decisions.size(), sched::check_run(instance, decisions)};
}

}  // namespace

std::function<int()> add_check(CLI::App& app) {
  CLI::App* command = app.add_subcommand("check", "Verify decisions against every constraint of their instance");
  auto written = std::make_shared<Written>();  // shared with the function that outlives this one
  command->add_option("--instance", written->instance, "The problem, as `simulate --instance` writes it")->required();
  command->add_option("--decisions", written->decisions, "The decisions, as `simulate --decisions` writes them")->required();
  command->add_flag("--json", written->json, "Print one JSON object");
  return [written] {
    const absl::StatusOr<Checked> checked = check(*written);
    if (!checked.ok()) {
      return fail("check", checked.status());
    }
    if (written->json) {
      std::string violations;
      for (const std::string& violation : checked->violations) {
        violations += (violations.empty() ? "" : ", ") + formats::json_string(violation);
      }
      fmt::print("{{\"slots\": {}, \"violations\": [{}]}}\n", checked->slots, violations);
    } else {
      for (const std::string& violation : checked->violations) {
        fmt::print("{}\n", violation);
      }
      fmt::print("{} slots, {} violations\n", checked->slots, checked->violations.size());
    }
    return checked->violations.empty() ? 0 : kFailed;
  };
}

}  // namespace maypole::cli
