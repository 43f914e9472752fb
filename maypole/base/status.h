// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace maypole::base {

/// Makes a status from a format string: `error(absl::StatusCode::kUnavailable, "rank {} is lost", r)`.
/// Codes used across the project: kUnavailable = peer lost, kDeadlineExceeded = late, kInvalidArgument = wrong use or input,
/// kFailedPrecondition = ranks disagree, kCancelled = shut down on purpose, kUnauthenticated = wrong secret.
template <typename... Args>
[[nodiscard]] absl::Status error(absl::StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  return absl::Status(code, absl::string_view(text.data(), text.size()));
}

/// Returns the message as a std type (Abseil's string_view does not convert).
[[nodiscard]] inline std::string message(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

/// Makes a status out of errno: `errno_error("connect to {}", address)` gives "connect to ...: Connection refused".
[[nodiscard]] absl::Status errno_error_text(int error_number, std::string_view what);

template <typename... Args>
[[nodiscard]] absl::Status errno_error(int error_number, fmt::format_string<Args...> format, Args&&... args) {
  return errno_error_text(error_number, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace maypole::base

/// Returns from the function when the expression is an error status.
#define MAYPOLE_RETURN_IF_ERROR(expression)     \
  do {                                          \
    absl::Status maypole_status = (expression); \
    if (!maypole_status.ok()) [[unlikely]] {    \
      return maypole_status;                    \
    }                                           \
  } while (false)

#define MAYPOLE_CONCAT_INNER_(a, b) a##b
#define MAYPOLE_CONCAT_(a, b) MAYPOLE_CONCAT_INNER_(a, b)

/// `MAYPOLE_ASSIGN_OR_RETURN(auto value, make());` returns the error, or assigns the value.
#define MAYPOLE_ASSIGN_OR_RETURN(left, expression) MAYPOLE_ASSIGN_OR_RETURN_(MAYPOLE_CONCAT_(maypole_result_, __LINE__), left, expression)
#define MAYPOLE_ASSIGN_OR_RETURN_(result, left, expression) \
  auto result = (expression);                               \
  if (!result.ok()) [[unlikely]] {                          \
    return result.status();                                 \
  }                                                         \
  left = std::move(result).value()
