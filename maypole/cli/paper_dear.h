// SPDX-License-Identifier: Apache-2.0
#pragma once

// `maypole paper dear`: the evaluation of DeAR's paper again, five models on 64 workers and two networks, from modelled profiles.

#include <absl/status/status.h>

#include <cstddef>
#include <string>

namespace maypole::cli {

struct PaperDearOptions {
  std::size_t seeds = 20;  // of the searches
  std::string html;        // "": none
  bool json = false;
};

/// Prints a table, or JSON {rows, search}; writes the page where one is asked for.
[[nodiscard]] absl::Status paper_dear(const PaperDearOptions& options);

}  // namespace maypole::cli
