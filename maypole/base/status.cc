// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/status.h"

#include <cerrno>
#include <system_error>

namespace maypole::base {

absl::Status errno_error_text(int error_number, std::string_view what) {
  const std::string reason = std::generic_category().message(error_number);
  absl::StatusCode code = absl::StatusCode::kInternal;
  switch (error_number) {
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EHOSTUNREACH:
    case ENETUNREACH:
      code = absl::StatusCode::kUnavailable;
      break;
    case ETIMEDOUT:
      code = absl::StatusCode::kDeadlineExceeded;
      break;
    case ENOENT:
      code = absl::StatusCode::kNotFound;
      break;
    case EISDIR:
    case ENOTDIR:
      code = absl::StatusCode::kInvalidArgument;
      break;
    case EACCES:
    case EPERM:
      code = absl::StatusCode::kPermissionDenied;
      break;
    case EADDRINUSE:
      code = absl::StatusCode::kAlreadyExists;
      break;
    case ENOSPC:
    case ENOMEM:
    case EMFILE:
      code = absl::StatusCode::kResourceExhausted;
      break;
    default:
      break;
  }
  return error(code, "{}: {}{}", what, reason, error_number == EMFILE ? "; raise the limit, as `ulimit -n 1024` does" : "");
}

}  // namespace maypole::base
