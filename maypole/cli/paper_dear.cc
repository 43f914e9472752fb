// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/paper_dear.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/cli/bars.h"
#include "maypole/cli/page.h"
#include "maypole/cli/progress_bar.h"
#include "maypole/cli/simulated_picture.h"
#include "maypole/formats/json_text.h"
#include "maypole/formats/number.h"
#include "maypole/formats/text_file.h"
#include "maypole/overlap/best_fusion.h"
#include "maypole/overlap/paper_models.h"
#include "maypole/overlap/search_race.h"
#include "maypole/sim/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

namespace maypole::cli {
namespace {

constexpr std::size_t kWorkers = 64;
struct PaperNetwork {
  const char* name;    // as the paper calls it
  const char* preset;  // with the constants fitted to its 64 workers
};
constexpr std::array kNetworks = {PaperNetwork{"10GbE", "paper-10GbE"}, PaperNetwork{"100GbIB", "paper-100GbIB"}};
constexpr std::array kSchedules = {"wfbp", "mg-wfbp", "horovod", "priority", "dear", "weave"};
constexpr std::array kSearches = {"bayes", "random", "grid"};

constexpr const char* kModelled =
    "Modelled, not measured: layer times from operations at one GPU's rate, collectives by alpha and beta, no contention; every schedule "
    "with its best fusion. priority may fuse here, which ByteScheduler does not.";

struct Row {
  std::string model;
  std::string network;
  overlap::FusionChoice choice;
};

struct SearchRow {
  std::string model;
  std::string network;
  std::string search;
  std::size_t sizes = 1;  // how many are searched at once
  overlap::RaceResult samples;
};

struct Evaluation {
  std::vector<Row> rows;  // by model, network, schedule
  std::vector<SearchRow> searches;

  [[nodiscard]] const overlap::SimulatedIteration& at(const std::string& model, const std::string& network,
                                                      std::string_view schedule) const {
    return std::ranges::find_if(
               rows, [&](const Row& row) { return row.model == model && row.network == network && row.choice.schedule == schedule; })
        ->choice.iteration;
  }
};

absl::StatusOr<Evaluation> evaluate(const PaperDearOptions& options) {
  Evaluation result;
  const std::vector<std::string> models = overlap::paper_model_names();
  const auto cells = static_cast<double>(models.size() * kNetworks.size());
  ProgressBar bar("paper dear");
  double done = 0;
  for (const std::string& name : models) {
    MAYPOLE_ASSIGN_OR_RETURN(const model::Profile profile, overlap::paper_profile(name));
    for (const PaperNetwork& paper : kNetworks) {
      MAYPOLE_ASSIGN_OR_RETURN(const overlap::Network network, overlap::named_network(paper.preset));
      for (const char* schedule : kSchedules) {
        MAYPOLE_ASSIGN_OR_RETURN(overlap::FusionChoice choice,
                                 overlap::choose_fusion(profile, network, kWorkers, schedule, {.record = true}));
        result.rows.push_back({name, paper.name, std::move(choice)});
      }
      for (const bool joint : {false, true}) {
        MAYPOLE_ASSIGN_OR_RETURN(
            const overlap::SearchRace race,
            overlap::SearchRace::make(profile, network, "dear", {.workers = kWorkers, .joint = joint, .seeds = options.seeds}));
        for (const char* search : kSearches) {
          MAYPOLE_ASSIGN_OR_RETURN(overlap::RaceResult samples, race.run(search));
          result.searches.push_back({name, paper.name, search, joint ? 3U : 1U, std::move(samples)});
        }
      }
      bar.show(++done / cells, fmt::format("{} on {}", name, paper.name));
    }
  }
  return result;
}

Table iteration_table(const Evaluation& evaluation) {
  Table table{{"model", "network"}, {}};
  table.header.insert(table.header.end(), kSchedules.begin(), kSchedules.end());
  table.header.insert(table.header.end(), {"bound", "weave of bound"});
  for (const Row& row : evaluation.rows) {
    if (row.choice.schedule != kSchedules.front()) {
      continue;
    }
    std::vector<std::string> cells = {row.model, row.network};
    for (const char* schedule : kSchedules) {
      cells.push_back(fmt::format("{:.1f} ms", 1e3 * evaluation.at(row.model, row.network, schedule).iteration_s));
    }
    const overlap::SimulatedIteration& weave = evaluation.at(row.model, row.network, "weave");
    cells.push_back(fmt::format("{:.1f} ms", 1e3 * weave.bound_s));
    cells.push_back(fmt::format("{:.1f} %", 100 * weave.bound_s / weave.iteration_s));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Table speedup_table(const Evaluation& evaluation) {
  Table table{
      {"model", "network", "dear over wfbp", "over mg-wfbp", "over horovod", "over priority", "over the best peer", "weave over dear"}, {}};
  for (const Row& row : evaluation.rows) {
    if (row.choice.schedule != kSchedules.front()) {
      continue;
    }
    const double dear_s = evaluation.at(row.model, row.network, "dear").iteration_s;
    std::vector<std::string> cells = {row.model, row.network};
    double best_s = 1e300;
    for (const char* peer : {"wfbp", "mg-wfbp", "horovod", "priority"}) {
      const double peer_s = evaluation.at(row.model, row.network, peer).iteration_s;
      best_s = std::min(best_s, peer_s);
      cells.push_back(fmt::format("{:.3f}", peer_s / dear_s));
    }
    cells.push_back(fmt::format("{:.3f}", best_s / dear_s));
    cells.push_back(fmt::format("{:.3f}", dear_s / evaluation.at(row.model, row.network, "weave").iteration_s));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string median_text(const overlap::RaceResult& samples) {
  const auto median = overlap::median_samples(samples);
  const auto arrived = std::ranges::count_if(samples, [](const auto& each) { return each.has_value(); });
  return fmt::format("{} ({}/{})", median ? fmt::to_string(*median) : "-", arrived, samples.size());
}

Table search_table(const Evaluation& evaluation) {
  Table table{{"model", "network", "sizes", "bayes", "random", "grid"}, {}};
  for (std::size_t i = 0; i + kSearches.size() <= evaluation.searches.size(); i += kSearches.size()) {
    const SearchRow& first = evaluation.searches[i];
    std::vector<std::string> cells = {first.model, first.network, fmt::format("{}", first.sizes)};
    for (std::size_t k = 0; k < kSearches.size(); ++k) {
      cells.push_back(median_text(evaluation.searches[i + k].samples));
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

/// In how many cells each search needed the fewest samples in the median.
std::string search_sentence(const Evaluation& evaluation) {
  std::map<std::string, int> wins;
  std::size_t cells = 0;
  for (std::size_t i = 0; i + kSearches.size() <= evaluation.searches.size(); i += kSearches.size()) {
    ++cells;
    std::size_t fewest = 1U << 30U;
    for (std::size_t k = 0; k < kSearches.size(); ++k) {
      fewest = std::min(fewest, overlap::median_samples(evaluation.searches[i + k].samples).value_or(1U << 30U));
    }
    for (std::size_t k = 0; k < kSearches.size() && fewest < 1U << 30U; ++k) {
      wins[kSearches[k]] += overlap::median_samples(evaluation.searches[i + k].samples) == fewest ? 1 : 0;
    }
  }
  return fmt::format("Fewest samples in the median, ties counted for each: bayes in {} of {} cells, random in {}, grid in {}.",
                     wins["bayes"], cells, wins["random"], wins["grid"]);
}

constexpr const char* kSearchNote =
    "Samples until one is within 2 % of the best of a lattice, schedule dear, 1 % of noise: the median over the seeds, and how many of "
    "them arrived within 40 samples. Sizes: 1 as in the paper, 3 with first group and split size.";

std::string to_json(const Evaluation& evaluation) {
  using formats::format_number;
  using formats::json_string;
  std::string text = fmt::format("{{\"modelled\": true, \"note\": {},\n\"rows\": [", json_string(kModelled));
  std::string_view before = "\n";
  for (const Row& row : evaluation.rows) {
    const overlap::SimulatedIteration& iteration = row.choice.iteration;
    text += fmt::format(
        "{}{{\"model\": {}, \"workers\": {}, \"network\": {}, \"schedule\": {}, \"iteration_s\": {}, \"bound_s\": {}, \"exposed_s\": {}, "
        "\"fusion\": {}}}",
        before, json_string(row.model), kWorkers, json_string(row.network), json_string(row.choice.schedule),
        format_number(iteration.iteration_s), format_number(iteration.bound_s), format_number(iteration.exposed_s),
        json_string(row.choice.fusion));
    before = ",\n";
  }
  text += "],\n\"search\": [";
  before = "\n";
  for (const SearchRow& row : evaluation.searches) {
    std::string samples;
    for (const auto& each : row.samples) {
      samples += (samples.empty() ? "" : ", ") + (each ? fmt::to_string(*each) : std::string("null"));
    }
    const auto median = overlap::median_samples(row.samples);
    text += fmt::format(
        "{}{{\"model\": {}, \"workers\": {}, \"network\": {}, \"schedule\": \"dear\", \"search\": {}, \"sizes\": {}, \"median_samples\": "
        "{}, "
        "\"samples\": [{}]}}",
        before, json_string(row.model), kWorkers, json_string(row.network), json_string(row.search), row.sizes,
        median ? fmt::to_string(*median) : "null", samples);
    before = ",\n";
  }
  return text + "]}\n";
}

std::string to_html(const Evaluation& evaluation) {
  std::string body = fmt::format("<p>{}</p>\n<h2>Time of an iteration, {} workers</h2>\n", sim::escaped(kModelled), kWorkers) +
                     html_table(iteration_table(evaluation), 2);
  for (const PaperNetwork& network : kNetworks) {
    GroupedBars bars{fmt::format("{}: share reached of the bound that no schedule can beat", network.name), "% of bound", {}, {}};
    bars.series.assign(kSchedules.begin(), kSchedules.end());
    for (const std::string& model : overlap::paper_model_names()) {
      std::vector<double> values;
      for (const char* schedule : kSchedules) {
        const overlap::SimulatedIteration& iteration = evaluation.at(model, network.name, schedule);
        values.push_back(100 * iteration.bound_s / iteration.iteration_s);
      }
      bars.groups.emplace_back(model, std::move(values));
    }
    body += html_figure(grouped_bars_svg(bars));
  }
  body += "<h2>Speed-up</h2>\n" + html_table(speedup_table(evaluation), 2);
  body += fmt::format("<h2>Search for fusion sizes</h2>\n<p>{}</p>\n<p>{}</p>\n", sim::escaped(kSearchNote),
                      sim::escaped(search_sentence(evaluation))) +
          html_table(search_table(evaluation), 2) + "<h2>One iteration of BERT-Base on 100GbIB</h2>\n";
  const double axis_s = evaluation.at("bert-base", "100GbIB", "wfbp").iteration_s;
  for (const char* schedule : {"wfbp", "dear", "weave"}) {
    const overlap::SimulatedIteration& iteration = evaluation.at("bert-base", "100GbIB", schedule);
    body += html_figure(timeline_svg(picture_of(iteration, fmt::format("{}: {}", schedule, base::format_seconds(iteration.iteration_s)),
                                                std::max(axis_s, iteration.iteration_s))));
  }
  return html_page("DeAR's evaluation, modelled", body);
}

}  // namespace

absl::Status paper_dear(const PaperDearOptions& options) {
  MAYPOLE_ASSIGN_OR_RETURN(const Evaluation evaluation, evaluate(options));
  if (!options.html.empty()) {
    MAYPOLE_RETURN_IF_ERROR(formats::write_text_file(options.html, to_html(evaluation)));
  }
  if (options.json) {
    fmt::print("{}", to_json(evaluation));
    return absl::OkStatus();
  }
  fmt::print("{}\n\nTime of an iteration, {} workers:\n{}\nSpeed-up:\n{}\n{}\n{}{}\n", kModelled, kWorkers,
             text_table(iteration_table(evaluation), 2), text_table(speedup_table(evaluation), 2), kSearchNote,
             text_table(search_table(evaluation), 2), search_sentence(evaluation));
  return absl::OkStatus();
}

}  // namespace maypole::cli
