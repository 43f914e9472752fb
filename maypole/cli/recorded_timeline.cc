// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/recorded_timeline.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace maypole::cli {
namespace {

using nlohmann::json;

/// The colour of an event by its name, as pipeline/timeline.h and the engine give it.
std::optional<PictureColour> colour_of(std::string_view name) {
  constexpr std::pair<std::string_view, PictureColour> kNames[] = {
      {"forward", PictureColour::kForward}, {"backward", PictureColour::kBackward}, {"RS", PictureColour::kReduceScatter},
      {"AG", PictureColour::kAllGather},    {"update", PictureColour::kUpdate},     {"wait for", PictureColour::kWait}};
  for (const auto& [prefix, colour] : kNames) {
    if (name.starts_with(prefix)) {
      return colour;
    }
  }
  return std::nullopt;
}

/// The number after a word of an event's name.
int number_after(const std::string& name, std::string_view word, int otherwise) {
  const std::size_t at = name.find(word);
  return at == std::string::npos ? otherwise : std::atoi(name.c_str() + at + word.size());
}

void add_event(const json& event, RecordedTimeline& timeline) {
  const std::string phase = event.value("ph", "");
  const int rank = event.value("pid", 0);
  const std::string name = event.value("name", "");
  if (phase == "M" && name == "process_name") {
    timeline.ranks[rank].name = event.at("args").value("name", fmt::format("rank {}", rank));
  }
  const std::optional<PictureColour> colour = phase == "X" ? colour_of(name) : std::nullopt;
  if (colour) {
    const double begin_s = event.at("ts").get<double>() / 1e6;
    const double length_s = event.at("dur").get<double>() / 1e6;
    timeline.ranks[rank].spans.push_back({*colour, begin_s, begin_s + length_s, number_after(name, "group ", -1),
                                          fmt::format("{}, {}", name, base::format_seconds(length_s)), number_after(name, "of model ", 0)});
  }
}

/// When each backward began.
std::vector<double> marks_of(const RecordedRank& rank) {
  std::vector<double> marks;
  for (const PictureSpan& span : rank.spans) {
    if (span.colour == PictureColour::kBackward) {
      marks.push_back(span.begin_s);
    }
  }
  std::ranges::sort(marks);
  return marks;
}

/// How long `pass` computed: without the time in which it stood still, as the report counts it. `waits` are those of its rank, by begin.
double computed_s(const PictureSpan& pass, const std::vector<const PictureSpan*>& waits) {
  double length_s = pass.end_s - pass.begin_s;
  auto wait = std::ranges::lower_bound(waits, pass.begin_s, {}, [](const PictureSpan* span) { return span->begin_s; });
  for (; wait != waits.end() && (*wait)->begin_s < pass.end_s; ++wait) {
    if ((*wait)->model == pass.model) {
      length_s -= std::min((*wait)->end_s, pass.end_s) - (*wait)->begin_s;
    }
  }
  return length_s;
}

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

RecordedIterations RecordedTimeline::iterations(int rank) const {
  const RecordedRank& recorded = ranks.at(rank);
  const std::vector<double> marks = marks_of(recorded);
  RecordedIterations result;
  if (marks.size() < 2) {
    return result;
  }
  result.count = marks.size() - 1;
  std::vector<const PictureSpan*> waits;
  for (const PictureSpan& span : recorded.spans) {
    if (span.colour == PictureColour::kWait) {
      waits.push_back(&span);
    }
  }
  std::ranges::sort(waits, {}, [](const PictureSpan* span) { return span->begin_s; });
  std::map<PictureColour, std::vector<double>> sums;
  for (const PictureSpan& span : recorded.spans) {
    const auto next = std::ranges::upper_bound(marks, span.begin_s);
    if (next == marks.begin() || next == marks.end()) {
      continue;  // before the first, or in one that did not end
    }
    std::vector<double>& of_colour = sums[span.colour];
    of_colour.resize(result.count, 0);
    const bool is_pass = span.colour == PictureColour::kForward || span.colour == PictureColour::kBackward;
    of_colour[static_cast<std::size_t>(next - marks.begin()) - 1] += is_pass ? computed_s(span, waits) : span.end_s - span.begin_s;
  }
  std::vector<double> lengths;
  for (std::size_t i = 0; i + 1 < marks.size(); ++i) {
    lengths.push_back(marks[i + 1] - marks[i]);
  }
  result.iteration_s = median(std::move(lengths));
  result.forward_s = median(sums[PictureColour::kForward]);
  result.backward_s = median(sums[PictureColour::kBackward]);
  result.exposed_s = median(sums[PictureColour::kWait]);
  result.reduce_scatter_s = median(sums[PictureColour::kReduceScatter]);
  result.all_gather_s = median(sums[PictureColour::kAllGather]);
  return result;
}

TimelinePicture RecordedTimeline::picture(std::string title, std::size_t count) const {
  TimelinePicture picture;
  picture.title = std::move(title);
  const std::vector<double> marks = marks_of(ranks.begin()->second);
  if (marks.size() >= 2) {
    picture.end_s = marks.back();
    picture.begin_s = marks[marks.size() - 1 - std::min(count, marks.size() - 1)];
  } else {
    picture.begin_s = ranks.begin()->second.spans.empty() ? 0 : ranks.begin()->second.spans.front().begin_s;
    for (const auto& [number, rank] : ranks) {
      for (const PictureSpan& span : rank.spans) {
        picture.begin_s = std::min(picture.begin_s, span.begin_s);
        picture.end_s = std::max(picture.end_s, span.end_s);
      }
    }
  }
  for (const auto& [number, rank] : ranks) {
    std::vector<std::pair<std::string, std::vector<PictureSpan>>> rows = {{fmt::format("{} compute", number), {}},
                                                                          {fmt::format("{} RS", number), {}},
                                                                          {fmt::format("{} AG", number), {}},
                                                                          {fmt::format("{} update", number), {}}};
    for (const PictureSpan& span : rank.spans) {
      if (span.end_s <= picture.begin_s || span.begin_s >= picture.end_s) {
        continue;
      }
      const std::size_t row = span.colour == PictureColour::kReduceScatter ? 1
                              : span.colour == PictureColour::kAllGather   ? 2
                              : span.colour == PictureColour::kUpdate      ? 3
                                                                           : 0;
      rows[row].second.push_back(span);
    }
    // Waiting lies within the span of the pass that waits: drawn later, it is seen.
    std::ranges::stable_sort(rows[0].second, {}, [](const PictureSpan& span) { return span.colour == PictureColour::kWait; });
    picture.rows.insert(picture.rows.end(), rows.begin(), rows.end());
  }
  return picture;
}

absl::StatusOr<RecordedTimeline> parse_timeline(std::string_view text, std::string_view file) {
  const json parsed = json::parse(text, nullptr, false);
  if (parsed.is_discarded()) {
    return base::error(absl::StatusCode::kInvalidArgument, "{}: this is no JSON, or it is cut off", file);
  }
  RecordedTimeline timeline;
  bool any = false;
  try {
    const json& events = parsed.is_array() ? parsed : parsed.at("traceEvents");
    for (const json& event : events) {
      add_event(event, timeline);
    }
  } catch (const json::exception& exception) {
    return base::error(absl::StatusCode::kInvalidArgument, "{}: this is no timeline of `maypole run --timeline`: {}", file,
                       exception.what());
  }
  for (auto& [number, rank] : timeline.ranks) {
    any |= !rank.spans.empty();
  }
  if (!any) {
    return base::error(absl::StatusCode::kInvalidArgument,
                       "{}: there is no event of Maypole in it: give a file of `maypole run --timeline`", file);
  }
  return timeline;
}

}  // namespace maypole::cli
