// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/simulated_picture.h"

#include "maypole/base/units.h"

#include <fmt/format.h>

#include <utility>

namespace maypole::cli {
namespace {

std::pair<PictureColour, std::size_t> place_of(const overlap::Span& span) {
  switch (span.lane) {
    case overlap::Lane::kCompute:
      return {span.forward ? PictureColour::kForward : PictureColour::kBackward, 0};
    case overlap::Lane::kWait:
      return {PictureColour::kWait, 0};
    case overlap::Lane::kReduceScatter:
      return {PictureColour::kReduceScatter, 1};
    case overlap::Lane::kAllGather:
      return {PictureColour::kAllGather, 1};
    case overlap::Lane::kUpdate:
      return {PictureColour::kUpdate, 2};
  }
  return {PictureColour::kWait, 0};
}

const char* verb_of(PictureColour colour) {
  switch (colour) {
    case PictureColour::kForward:
      return "forward";
    case PictureColour::kBackward:
      return "backward";
    case PictureColour::kReduceScatter:
      return "reduce-scatter of group";
    case PictureColour::kAllGather:
      return "all-gather of group";
    case PictureColour::kUpdate:
      return "update of group";
    case PictureColour::kWait:
      return "wait for group";
  }
  return "";
}

}  // namespace

TimelinePicture picture_of(const overlap::SimulatedIteration& iteration, std::string title, double axis_s) {
  TimelinePicture picture{std::move(title), 0, axis_s, {{"compute", {}}, {"link", {}}, {"update", {}}}};
  for (const overlap::Span& span : iteration.timeline) {
    const auto [colour, row] = place_of(span);
    std::string text = verb_of(colour);
    if (span.group >= 0) {
      text += fmt::format(" {} of {}", span.group, base::format_bytes(iteration.groups[static_cast<std::size_t>(span.group)].bytes));
    }
    text += fmt::format(", {}", base::format_seconds(span.end_s - span.begin_s));
    picture.rows[row].second.push_back({colour, span.begin_s, span.end_s, span.group, std::move(text)});
  }
  if (picture.rows.back().second.empty()) {
    picture.rows.pop_back();
  }
  return picture;
}

}  // namespace maypole::cli
