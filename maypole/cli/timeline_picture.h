// SPDX-License-Identifier: Apache-2.0
#pragma once

// What computes, travels and waits when: spans in rows over one time axis, as SVG. `maypole plan` and `maypole trace` draw the same.

#include <string>
#include <utility>
#include <vector>

namespace maypole::cli {

enum class PictureColour { kForward, kBackward, kReduceScatter, kAllGather, kUpdate, kWait };

struct PictureSpan {
  PictureColour colour = PictureColour::kForward;
  double begin_s = 0;
  double end_s = 0;
  int group = -1;     // written inside where there is room; none
  std::string title;  // shown under the pointer
  int model = 0;      // of several that one process trains
};

struct TimelinePicture {
  std::string title;
  double begin_s = 0;
  double end_s = 0;
  std::vector<std::pair<std::string, std::vector<PictureSpan>>> rows;  // name, spans; from the top
};
[[nodiscard]] std::string timeline_svg(const TimelinePicture& picture);

}  // namespace maypole::cli
