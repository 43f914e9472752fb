// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/convert.h"

#include "maypole/base/status.h"
#include "maypole/cli/scenario.h"
#include "maypole/formats/instance_json.h"
#include "maypole/formats/workload_csv.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

namespace maypole::cli {

namespace {

struct Written {
  ScenarioFlags scenario;
  std::string output;
  std::string instance;
};

absl::Status convert(const Written& written) {
  MAYPOLE_ASSIGN_OR_RETURN(const Scenario scenario, make_scenario(written.scenario));
  const model::Instance& instance = scenario.instance;
  std::optional<formats::OutputFile> instance_file;
  std::optional<formats::OutputFile> output;
  if (!written.instance.empty()) {
    MAYPOLE_ASSIGN_OR_RETURN(instance_file, open_for("--instance", written.instance));
  }
  if (!written.output.empty()) {
    MAYPOLE_ASSIGN_OR_RETURN(output, open_for("--output", written.output));
  }
  MAYPOLE_ASSIGN_OR_RETURN(const formats::WorkloadCsv csv, formats::workload_csv(instance.jobs, instance.cluster, instance.slot_s));
  for (const std::string& note : scenario.notes) {
    fmt::print(stderr, "{}\n", note);
  }
  for (const std::string& lost : csv.lost) {
    fmt::print(stderr, "maypole convert: {}\n", lost);
  }
  if (instance_file) {
    instance_file->write(formats::instance_json(instance));
    MAYPOLE_RETURN_IF_ERROR(for_option("--instance", instance_file->close()));
  }
  if (!output) {
    fmt::print("{}", csv.text);
    return absl::OkStatus();
  }
  output->write(csv.text);
  return for_option("--output", output->close());
}

}  // namespace

std::function<int()> add_convert(CLI::App& app) {
  CLI::App* command = app.add_subcommand("convert", "Write a workload of any known format as our CSV");
  auto written = std::make_shared<Written>();  // shared with the function that outlives this one
  add_scenario_options(*command, written->scenario);
  command->add_option("-o,--output", written->output, "The CSV file; default: standard output");
  command->add_option("--instance", written->instance, "Write cluster and jobs as one JSON file too; it loses nothing");
  return [written] {
    const absl::Status status = convert(*written);
    return status.ok() ? 0 : fail("convert", status);
  };
}

}  // namespace maypole::cli
