// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace maypole::base {

/// Prints `file:line: check failed: expression (detail)` and aborts. For bugs only: expected failures return absl::Status.
[[noreturn]] void check_failed(const char* file, int line, std::string_view expression, std::string_view detail);

}  // namespace maypole::base

/// Aborts with the expression when `condition` is false; on in every build.
#define MAYPOLE_CHECK(condition)                                         \
  do {                                                                   \
    if (!(condition)) [[unlikely]] {                                     \
      ::maypole::base::check_failed(__FILE__, __LINE__, #condition, ""); \
    }                                                                    \
  } while (false)

#define MAYPOLE_CHECK_OP_(a, op, b)                                                                                             \
  do {                                                                                                                          \
    const auto& maypole_a = (a);                                                                                                \
    const auto& maypole_b = (b);                                                                                                \
    if (!(maypole_a op maypole_b)) [[unlikely]] {                                                                               \
      ::maypole::base::check_failed(__FILE__, __LINE__, #a " " #op " " #b, fmt::format("{} against {}", maypole_a, maypole_b)); \
    }                                                                                                                           \
  } while (false)

/// Each prints both operands; they must be formattable by fmt.
#define MAYPOLE_CHECK_EQ(a, b) MAYPOLE_CHECK_OP_(a, ==, b)
#define MAYPOLE_CHECK_NE(a, b) MAYPOLE_CHECK_OP_(a, !=, b)
#define MAYPOLE_CHECK_LT(a, b) MAYPOLE_CHECK_OP_(a, <, b)
#define MAYPOLE_CHECK_LE(a, b) MAYPOLE_CHECK_OP_(a, <=, b)
#define MAYPOLE_CHECK_GT(a, b) MAYPOLE_CHECK_OP_(a, >, b)
#define MAYPOLE_CHECK_GE(a, b) MAYPOLE_CHECK_OP_(a, >=, b)
