// SPDX-License-Identifier: Apache-2.0
#include "bindings.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"

#include <nanobind/stl/string.h>

#include <string>

namespace nb = nanobind;

namespace maypole::bindings {
namespace {

const char* exception_name(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
      return "PeerLostError";
    case absl::StatusCode::kDeadlineExceeded:
      return "TimeoutError";
    case absl::StatusCode::kFailedPrecondition:
      return "MismatchError";
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
      return "UsageError";
    case absl::StatusCode::kUnauthenticated:
      return "AuthenticationError";
    case absl::StatusCode::kCancelled:
      return "ClosedError";
    default:
      return "MaypoleError";
  }
}

void translate(const std::exception_ptr& pointer, void* /*payload*/) {
  try {
    std::rethrow_exception(pointer);
  } catch (const StatusError& error) {
    const nb::object type = nb::module_::import_("maypole.errors").attr(exception_name(error.status().code()));
    PyErr_SetString(type.ptr(), base::message(error.status()).c_str());
  }
}

}  // namespace

base::DType to_dtype(int number) {
  if (number < 0 || number > static_cast<int>(base::DType::kByte)) {
    throw StatusError(base::error(absl::StatusCode::kInvalidArgument, "there is no dtype number {}", number));
  }
  return static_cast<base::DType>(number);
}

}  // namespace maypole::bindings

NB_MODULE(_core, module) {
  using namespace maypole;
  module.doc() = "The C++ core of Maypole: communicator, engine, schedules. Addresses in, addresses out.";
  nb::register_exception_translator(bindings::translate);
  nb::set_leak_warnings(false);  // the engine lives until the process ends, on purpose
  bindings::bind_comm(module);
  bindings::bind_elastic(module);
  bindings::bind_engine(module);
  bindings::bind_overlap(module);
  module.def("parse_bytes", [](const std::string& text) { return bindings::check(base::parse_bytes(text)); }, nb::arg("text"));
  module.def(
      "parse_duration", [](const std::string& text) { return base::to_seconds(bindings::check(base::parse_duration(text))); },
      nb::arg("text"));
}
