// SPDX-License-Identifier: Apache-2.0
#include "bindings.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/comm/communicator.h"
#include "maypole/comm/environment.h"
#include "maypole/comm/work.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace nb = nanobind;

namespace maypole::bindings {
namespace {

using comm::Communicator;
using comm::Work;

comm::ReduceOp to_op(bool average) { return average ? comm::ReduceOp::kAverage : comm::ReduceOp::kSum; }

/// Waits without the interpreter, but looks for signals ten times a second, so that Ctrl-C ends a wait.
/// limit_s < 0: no limit of its own (the operation has one). Returns whether the operation has ended.
bool wait(const Work& work, double limit_s) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<Work::Waiting> waiting;
  if (limit_s < 0) {
    waiting.emplace(work);
  }
  while (true) {
    const double waited = base::to_seconds(std::chrono::steady_clock::now() - start);
    if (limit_s >= 0 && waited >= limit_s && !work.done()) {
      return false;
    }
    absl::Status status;
    {
      const nb::gil_scoped_release release;
      const double slice = limit_s < 0 ? 0.1 : std::min(0.1, limit_s - waited);
      status = work.wait_for(base::from_seconds(std::max(0.0, slice)));
    }
    if (work.done()) {
      check(work.wait());
      return true;
    }
    if (PyErr_CheckSignals() != 0) {
      throw nb::python_error();
    }
  }
}

}  // namespace

void bind_comm(nb::module_& module) {
  // An opaque handle: memory of an arena stays mapped for as long as Python holds it.
  nb::class_<comm::SharedMemory>(module, "SharedMemory")
      .def_prop_ro("address", [](const comm::SharedMemory& memory) { return to_address(memory.bytes().data()); })
      .def_prop_ro("size", [](const comm::SharedMemory& memory) { return memory.bytes().size(); });
  nb::class_<Work>(module, "Work")
      .def("done", &Work::done)
      .def("wait", &wait, nb::arg("limit_s") = -1.0,
           "Waits; returns False when limit_s passed first. Raises what the operation ended with.");
  nb::class_<comm::Environment>(module, "Environment")
      .def_prop_ro("rank", [](const comm::Environment& environment) { return environment.connect.rank; })
      .def_prop_ro("num_ranks", [](const comm::Environment& environment) { return environment.connect.num_ranks; })
      .def_ro("local_rank", &comm::Environment::local_rank)
      .def_ro("schedule", &comm::Environment::schedule)
      .def_ro("backend", &comm::Environment::backend)
      .def_prop_ro("timeout_s", [](const comm::Environment& environment) { return base::to_seconds(environment.timeout); })
      .def_prop_ro("heartbeat_s", [](const comm::Environment& environment) { return base::to_seconds(environment.heartbeat); })
      .def_ro("report_directory", &comm::Environment::report_directory)
      .def_ro("timeline_directory", &comm::Environment::timeline_directory);
  module.def("read_environment", [] { return check(comm::read_environment()); }, "What the launcher says: maypole run, torchrun or Slurm.");
  nb::class_<Communicator>(module, "Communicator")
      .def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("num_ranks", &Communicator::num_ranks)
      .def_prop_ro("edge_cost",
                   [](const Communicator& communicator) {
                     const comm::EdgeCost cost = communicator.edge_cost();
                     return std::pair(cost.alpha_s, cost.beta_s_per_byte);
                   })
      .def("all_reduce", [](Communicator& communicator, std::uintptr_t data, std::size_t count, int dtype,
                            bool average) { return communicator.all_reduce(to_pointer(data), count, to_dtype(dtype), to_op(average)); })
      .def("all_gather", [](Communicator& communicator, std::uintptr_t data, std::size_t count,
                            int dtype) { return communicator.all_gather(to_pointer(data), count, to_dtype(dtype)); })
      .def("broadcast", [](Communicator& communicator, std::uintptr_t data, std::size_t bytes,
                           int root) { return communicator.broadcast(to_pointer(data), bytes, root); })
      .def("barrier", &Communicator::barrier)
      .def("abort", [](Communicator& communicator,
                       const std::string& reason) { communicator.abort(base::error(absl::StatusCode::kAborted, "{}", reason)); })
      .def("close_after_fork", &Communicator::close_after_fork)
      .def("describe", &Communicator::describe);
}

}  // namespace maypole::bindings
