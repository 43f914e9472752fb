// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the files of the binding share: how an absl::Status becomes an exception, and who registers what.

#include "maypole/base/dtype.h"

#include <absl/status/statusor.h>
#include <nanobind/nanobind.h>

#include <cstdint>
#include <exception>
#include <utility>

namespace maypole::bindings {

/// Carries a status through code that runs without the interpreter; a translator turns it into an exception of maypole.errors.
class StatusError : public std::exception {
 public:
  explicit StatusError(absl::Status status) : status_(std::move(status)) {}
  [[nodiscard]] const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

inline void check(const absl::Status& status) {
  if (!status.ok()) {
    throw StatusError(status);
  }
}

template <typename T>
T check(absl::StatusOr<T> value) {
  if (!value.ok()) {
    throw StatusError(value.status());
  }
  return std::move(value).value();
}

/// Dtypes cross the border as the numbers of base::DType.
base::DType to_dtype(int number);

inline std::byte* to_pointer(std::uintptr_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr): Python passes addresses as numbers
}
inline std::uintptr_t to_address(const std::byte* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

void bind_comm(nanobind::module_& module);
void bind_elastic(nanobind::module_& module);
void bind_engine(nanobind::module_& module);
void bind_overlap(nanobind::module_& module);

}  // namespace maypole::bindings
