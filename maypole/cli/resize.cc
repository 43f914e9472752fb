// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/resize.h"

#include "maypole/base/status.h"
#include "maypole/cli/control_socket.h"
#include "maypole/cli/size_range.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace maypole::cli {

namespace {

struct Written {
  std::string run;
  std::string size;
  bool json = false;
};

int resize(const Written& written) {
  constexpr int kFailed = 1;
  constexpr int kWrongUse = 2;
  const auto range = parse_size_range(written.size);
  if (!range.ok()) {
    fmt::print(stderr, "maypole resize: {}\n", base::message(range.status()));
    return kWrongUse;
  }
  const auto answer = ask_run(written.run, fmt::format("resize {} {}", range->min, range->max));
  const int code = answer.ok() ? answer->exit_code : (absl::IsNotFound(answer.status()) ? kWrongUse : kFailed);
  const std::string text = answer.ok() ? answer->text : base::message(answer.status());
  if (written.json) {
    const nlohmann::ordered_json object = {
        {"run", written.run}, {"min", range->min}, {"max", range->max}, {"exit_code", code}, {"text", text}};
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (code == 0) {
    fmt::print("{}: {}\n", written.run, text);
  } else {
    fmt::print(stderr, "maypole resize: {}: {}\n", written.run, text);
  }
  return code;
}

}  // namespace

std::function<int()> add_resize(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("resize", "Change the number of workers of a run that was started with --elastic");
  const auto written = std::make_shared<Written>();  // shared with the function that outlives this one
  sub->add_option("RUN", written->run, "The run's name: `maypole run --elastic` prints it, --name sets it")->required();
  sub->add_option("WORKERS", written->size, "How many workers, as 6; or a range, as 2:6, in which the number stays")->required();
  sub->add_flag("--json", written->json, "Print the answer as one JSON object");
  sub->footer("It ends when the change is in effect. Exit codes: 0; 1 the change failed; 2 wrong use; 75 not now, try again.");
  return [written] { return resize(*written); };
}

}  // namespace maypole::cli
