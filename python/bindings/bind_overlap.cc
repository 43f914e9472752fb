// SPDX-License-Identifier: Apache-2.0
#include "bindings.h"

#include "maypole/overlap/fusion_plan.h"
#include "maypole/overlap/schedule.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace nb = nanobind;

namespace maypole::bindings {
namespace {

using TensorSize = std::pair<std::size_t, int>;             // count, dtype
using Progress = std::tuple<bool, bool, bool, bool, bool>;  // ready, reduce started, reduce done, gather started, gather done

std::vector<std::pair<std::string, std::size_t>> next_actions(const overlap::Schedule& schedule, const std::vector<Progress>& groups,
                                                              bool backward_done, bool step_called, bool sharded) {
  std::vector<overlap::GroupProgress> progress;
  progress.reserve(groups.size());
  for (const auto& [ready, reduce_started, reduce_done, gather_started, gather_done] : groups) {
    progress.push_back({ready, reduce_started, reduce_done, gather_started, gather_done});
  }
  const auto actions =
      schedule.next({progress, backward_done, step_called, sharded ? overlap::UpdateMode::kSharded : overlap::UpdateMode::kReplicated});
  std::vector<std::pair<std::string, std::size_t>> result;
  result.reserve(actions.size());
  for (const overlap::Action& action : actions) {
    result.emplace_back(action.phase == overlap::Phase::kReduceScatter ? "reduce_scatter" : "all_gather", action.group);
  }
  return result;
}

}  // namespace

void bind_overlap(nb::module_& module) {
  nb::class_<overlap::Group>(module, "Group")
      .def_ro("arena", &overlap::Group::arena)
      .def_ro("tensors", &overlap::Group::tensors)
      .def_prop_ro("begin", [](const overlap::Group& group) { return group.range.begin; })
      .def_prop_ro("end", [](const overlap::Group& group) { return group.range.end; })
      .def_prop_ro("block", [](const overlap::Group& group) { return group.range.block; });
  nb::class_<overlap::TensorPlace>(module, "TensorPlace")
      .def_ro("arena", &overlap::TensorPlace::arena)
      .def_ro("groups", &overlap::TensorPlace::groups)
      .def_prop_ro("begin", [](const overlap::TensorPlace& place) { return place.elements.begin; })
      .def_prop_ro("end", [](const overlap::TensorPlace& place) { return place.elements.end; });
  nb::class_<overlap::Arena>(module, "Arena")
      .def_prop_ro("dtype", [](const overlap::Arena& arena) { return static_cast<int>(arena.dtype); })
      .def_ro("count", &overlap::Arena::count)
      .def_ro("block", &overlap::Arena::block);
  nb::class_<overlap::FusionPlan>(module, "FusionPlan")
      .def_ro("arenas", &overlap::FusionPlan::arenas)
      .def_ro("tensors", &overlap::FusionPlan::tensors)
      .def_ro("groups", &overlap::FusionPlan::groups);
  module.def(
      "plan_fusion",
      [](const std::vector<TensorSize>& tensors, std::size_t group_bytes, std::size_t first_group_bytes, std::size_t block_bytes) {
        std::vector<overlap::PlannedTensor> planned;
        planned.reserve(tensors.size());
        for (const auto& [count, dtype] : tensors) {
          planned.push_back({count, to_dtype(dtype)});
        }
        return check(overlap::plan_fusion(planned, {block_bytes, group_bytes, first_group_bytes}));
      },
      nb::arg("tensors"), nb::arg("group_bytes") = overlap::FusionOptions{}.group_bytes,
      nb::arg("first_group_bytes") = overlap::FusionOptions{}.first_group_bytes,
      nb::arg("block_bytes") = overlap::FusionOptions{}.block_bytes,
      "Plans groups for tensors, (count, dtype) each, given in forward order.");

  nb::class_<overlap::Schedule>(module, "Schedule")
      .def_prop_ro("name", [](const overlap::Schedule& schedule) { return std::string(schedule.name()); })
      .def_prop_ro("gradients_after_backward", [](const overlap::Schedule& schedule) { return schedule.traits().gradients_after_backward; })
      .def_prop_ro("barrier_in_step", [](const overlap::Schedule& schedule) { return schedule.traits().barrier_in_step; })
      .def_prop_ro("allows_sharded", [](const overlap::Schedule& schedule) { return schedule.traits().allows_sharded; })
      .def("next", &next_actions, nb::arg("groups"), nb::arg("backward_done"), nb::arg("step_called"), nb::arg("sharded"),
           "Operations that may start now: (\"reduce_scatter\" or \"all_gather\", group) each.");
  module.def("make_schedule", [](const std::string& name) { return check(overlap::make_schedule(name)); }, nb::arg("name"));
}

}  // namespace maypole::bindings
