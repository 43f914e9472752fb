// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace CLI {
class Validator;
}

namespace maypole::cli {

/// What is wrong with a text that has to be a whole number of [low, high]; none where it is one.
[[nodiscard]] std::optional<std::string> whole_number_problem(const std::string& text, std::int64_t low, std::int64_t high);

/// The same as the check of an option.
[[nodiscard]] CLI::Validator whole_number(std::int64_t low, std::int64_t high);

}  // namespace maypole::cli
