// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/simulate.h"

#include "maypole/base/status.h"
#include "maypole/cli/decision_text.h"
#include "maypole/cli/policy_spec.h"
#include "maypole/cli/scenario.h"
#include "maypole/cli/simulation_run.h"
#include "maypole/formats/instance_json.h"
#include "maypole/formats/number.h"
#include "maypole/formats/output_file.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

namespace maypole::cli {

namespace {

struct Written {
  ScenarioFlags scenario;
  std::string policy = "gadget";
  bool json = false;
  bool every_slot = false;
  std::string instance_file;
  std::string decisions_file;
  std::vector<std::string> dump;  // slot, file
};

/// The decisions of a run on their way to files.
class Outputs {
 public:
  Outputs(const Written& written, const Scenario& scenario, PolicySpec policy) : instance_(scenario.instance), policy_(std::move(policy)) {
    if (!written.dump.empty()) {
      dump_slot_ = formats::parse_integer(written.dump[0]).value_or(-1);
    }
  }

  /// Before the run: a file that cannot be written must not be found out after it.
  absl::Status open(const Written& written) {
    if (!written.instance_file.empty()) {
      MAYPOLE_ASSIGN_OR_RETURN(instance_file_, open_for("--instance", written.instance_file));
    }
    if (!written.decisions_file.empty()) {
      MAYPOLE_ASSIGN_OR_RETURN(decisions_, open_for("--decisions", written.decisions_file));
    }
    if (!written.dump.empty()) {
      MAYPOLE_ASSIGN_OR_RETURN(dump_, open_for("--dump-decision", written.dump[1]));
    }
    if (instance_file_) {
      instance_file_->write(formats::instance_json(instance_));
      MAYPOLE_RETURN_IF_ERROR(for_option("--instance", instance_file_->close()));
    }
    return absl::OkStatus();
  }

  [[nodiscard]] bool wanted() const { return decisions_ || dump_; }

  void before(const sched::SlotProblem& problem) {
    if (problem.slot == dump_slot_) {
      question_ = question_json(problem, policy_, instance_);
    }
  }

  void slot(const sched::SlotOutcome& outcome) {
    if (decisions_) {
      decisions_->write(formats::decision_json(to_line(outcome.decision, instance_.jobs, instance_.cluster)) + '\n');
    }
    if (outcome.decision.slot == dump_slot_) {
      answer_ = outcome.decision;
    }
  }

  absl::Status close() {
    if (decisions_) {
      MAYPOLE_RETURN_IF_ERROR(for_option("--decisions", decisions_->close()));
    }
    if (dump_) {
      if (question_.empty() || !answer_) {
        return base::error(absl::StatusCode::kInvalidArgument,
                           "--dump-decision: nothing was decided in slot {}: choose a slot in which jobs are there", dump_slot_);
      }
      dump_->write(dump_json(question_, *answer_, instance_));
      MAYPOLE_RETURN_IF_ERROR(for_option("--dump-decision", dump_->close()));
    }
    return absl::OkStatus();
  }

 private:
  const model::Instance& instance_;
  PolicySpec policy_;
  std::optional<formats::OutputFile> instance_file_;
  std::optional<formats::OutputFile> decisions_;
  std::optional<formats::OutputFile> dump_;
  std::int64_t dump_slot_ = -1;
  std::string question_;
  std::optional<sched::Decision> answer_;
};

absl::Status simulate(const Written& written) {
  auto policy = parse_policy(written.policy);
  if (!policy.ok()) {
    return base::error(absl::StatusCode::kInvalidArgument, "--policy: {}", base::message(policy.status()));
  }
  MAYPOLE_ASSIGN_OR_RETURN(const Scenario scenario, make_scenario(written.scenario));
  const model::Instance& instance = scenario.instance;
  Outputs outputs(written, scenario, *policy);
  MAYPOLE_RETURN_IF_ERROR(outputs.open(written));
  sim::SimulationOptions options;
  options.skip_unchanged = !written.every_slot && written.dump.empty();  // a slot that is to be dumped has to be asked
  options.before_decision = [&](const sched::SlotProblem& problem) { outputs.before(problem); };
  if (outputs.wanted()) {
    options.on_slot = [&](const sched::SlotOutcome& outcome) { outputs.slot(outcome); };
  }
  MAYPOLE_ASSIGN_OR_RETURN(const SimulationRun run, run_policy(instance, *policy, std::move(options)));
  MAYPOLE_RETURN_IF_ERROR(outputs.close());
  const UtilityBound bound = utility_bound(instance);
  if (written.json) {
    fmt::print("{}\n", simulation_json(run, scenario, bound));
  } else {
    for (const std::string& note : scenario.notes) {
      fmt::print("{}\n", note);
    }
    fmt::print("{}", simulation_text(run, bound));
  }
  if (const std::string overload = overload_text(instance); !overload.empty()) {
    fmt::print(stderr, "maypole simulate: {}\n", overload);
  }
  return absl::OkStatus();
}

}  // namespace

std::function<int()> add_simulate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("simulate", "Run a scheduling policy over a workload in virtual time");
  auto written = std::make_shared<Written>();  // shared with the function that outlives this one
  add_scenario_options(*command, written->scenario);
  command->add_option("--policy", written->policy, "Who decides")->capture_default_str();
  command->add_flag("--json", written->json, "Print one JSON object");
  command->add_option("--instance", written->instance_file, "Write the whole problem, as JSON");
  command->add_option("--decisions", written->decisions_file, "Write every slot's decision, a JSON object a line");
  command->add_option("--dump-decision", written->dump, "SLOT FILE: write all that the policy was asked in that slot, for `maypole replay`")
      ->expected(2);
  command->add_flag("--every-slot", written->every_slot, "Ask the policy in every slot, also where its answer cannot change");
  command->footer(policy_help());
  return [written] {
    if (!written->dump.empty() && formats::parse_integer(written->dump[0]).value_or(-1) < 0) {
      return fail("simulate", base::error(absl::StatusCode::kInvalidArgument, "--dump-decision: '{}' is not a slot: write SLOT FILE",
                                          written->dump[0]));
    }
    const absl::Status status = simulate(*written);
    return status.ok() ? 0 : fail("simulate", status);
  };
}

}  // namespace maypole::cli
