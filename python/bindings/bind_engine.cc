// SPDX-License-Identifier: Apache-2.0
#include "bindings.h"

#include "maypole/base/units.h"
#include "maypole/comm/environment.h"
#include "maypole/comm/ring_communicator.h"
#include "maypole/pipeline/engine.h"
#include "maypole/pipeline/process_end.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace maypole::bindings {
namespace {

using pipeline::Engine;
using pipeline::ModelId;
using ReleaseGil = nb::call_guard<nb::gil_scoped_release>;

using Parameter = std::tuple<std::string, std::size_t, int, std::size_t>;  // name, count, dtype, param group
// The fields of pipeline::Hyperparameters, in their order.
using Hyper = std::tuple<double, double, double, double, bool, double, double, double, bool, bool, bool, double>;

/// Forms the ring that the environment describes, and starts an engine on it.
std::shared_ptr<Engine> join_ring(const comm::Environment& environment, double timeout_s) {
  comm::ProgressOptions progress;
  progress.silence = environment.heartbeat;
  progress.timeout = base::from_seconds(timeout_s);
  auto communicator = check(comm::create_ring_communicator(environment.connect, progress));
  return check(Engine::create(std::move(communicator), {.timeout = progress.timeout, .timeline = !environment.timeline_directory.empty()}));
}

std::pair<std::uintptr_t, std::size_t> address_and_size(std::span<std::byte> memory) {
  return {bindings::to_address(memory.data()), memory.size()};
}

pipeline::OptimizerKind to_optimizer(const std::string& name) {
  using Kind = pipeline::OptimizerKind;
  static const std::unordered_map<std::string, Kind> kinds = {
      {"none", Kind::kNone},         {"sgd", Kind::kSgd},         {"adam", Kind::kAdam},
      {"adamw", Kind::kAdamW},       {"radam", Kind::kRAdam},     {"adamax", Kind::kAdamax},
      {"adadelta", Kind::kAdadelta}, {"adagrad", Kind::kAdagrad}, {"rmsprop", Kind::kRmsProp}};
  return kinds.at(name);
}

ModelId add_model(Engine& engine, const std::vector<Parameter>& parameters, const std::string& schedule, bool sharded,
                  const std::string& optimizer, int num_state_slots, std::size_t group_bytes, const std::string& fusion_search,
                  bool compress_bfloat16, const pipeline::Cuts& cuts, const std::pair<double, double>& tuned_for, bool keep_previous) {
  std::vector<pipeline::ParameterSpec> specs;
  specs.reserve(parameters.size());
  for (const auto& [name, count, dtype, group] : parameters) {
    specs.push_back({name, count, to_dtype(dtype), group});
  }
  pipeline::ModelOptions options;
  options.schedule = schedule;
  options.update = sharded ? overlap::UpdateMode::kSharded : overlap::UpdateMode::kReplicated;
  options.optimizer = to_optimizer(optimizer);
  options.num_state_slots = num_state_slots;
  if (group_bytes > 0) {
    options.fusion.group_bytes = group_bytes;
  }
  options.fusion_search = fusion_search;
  options.compress_bfloat16 = compress_bfloat16;
  options.cuts = cuts;
  options.tuned_for = {tuned_for.first, tuned_for.second};
  options.keep_previous = keep_previous;
  const nb::gil_scoped_release release;
  return check(engine.add_model(std::move(specs), options));
}

void step(Engine& engine, ModelId model, const std::vector<Hyper>& hyper, bool skip) {
  pipeline::StepOptions options;
  options.skip = skip;
  options.hyper.reserve(hyper.size());
  for (const Hyper& group : hyper) {
    options.hyper.push_back(std::make_from_tuple<pipeline::Hyperparameters>(group));
  }
  const nb::gil_scoped_release release;
  check(engine.step(model, options));
}

/// Of parameters, gradients and state: an object that keeps their memory where it is for as long as Python holds it.
std::tuple<nb::capsule, nb::capsule, nb::capsule> handles(Engine& engine, ModelId model) {
  using List = pipeline::MemoryHandles::List;
  const auto hold = [](List handles) {
    return nb::capsule(new List(std::move(handles)), [](void* list) noexcept { delete static_cast<List*>(list); });
  };
  pipeline::MemoryHandles of = engine.handles(model);
  return {hold(std::move(of.parameters)), hold(std::move(of.gradients)), hold(std::move(of.state))};
}

nb::dict report(Engine& engine, ModelId model) {
  const pipeline::Report report = engine.report(model);
  nb::dict result;
  result["iterations"] = report.iterations;
  result["iteration_s"] = report.iteration_s;
  result["forward_s"] = report.forward_s;
  result["backward_s"] = report.backward_s;
  result["reduce_scatter_s"] = report.reduce_scatter_s;
  result["all_gather_s"] = report.all_gather_s;
  result["exposed_s"] = report.exposed_s;
  result["update_s"] = report.update_s;
  result["communication_s"] = report.communication_s;
  result["bound_s"] = report.bound_s;
  result["schedule"] = report.schedule;
  result["update"] = report.update;
  result["world_size"] = report.world_size;
  result["fusion"] = report.fusion;
  nb::list groups;
  for (const pipeline::GroupReport& group : report.groups) {
    nb::dict row;
    row["bytes"] = group.bytes;
    row["reduce_scatter_s"] = group.reduce_scatter_s;
    row["all_gather_s"] = group.all_gather_s;
    row["exposed_s"] = group.exposed_s;
    groups.append(row);
  }
  result["groups"] = groups;
  return result;
}

nb::dict tuning(Engine& engine, ModelId model) {
  const pipeline::TuningReport report = engine.tuning(model);
  nb::dict result;
  result["settled"] = report.settled;
  result["text"] = report.text;
  nb::list tried;
  for (const pipeline::TriedGroups& groups : report.tried) {
    nb::dict row;
    row["what"] = groups.what;
    row["groups"] = groups.groups;
    row["iteration_s"] = groups.iteration_s;
    tried.append(row);
  }
  result["tried"] = tried;
  result["cuts"] = report.cuts;
  result["tuned_for"] = std::pair(report.tuned_for.link_s_per_byte, report.tuned_for.compute_s);
  return result;
}

/// A shard that was read: Python looks at its memory, and peers may fetch it.
struct Shard {
  std::shared_ptr<const std::vector<std::byte>> bytes;
};

std::shared_ptr<Shard> read_shard(Engine& engine, ModelId model, std::uint64_t steps) {
  return std::make_shared<Shard>(Shard{std::make_shared<const std::vector<std::byte>>(check(engine.read_shard(model, steps)))});
}

nb::bytes fetch(Engine& engine, int peer, std::uint32_t number, std::uint32_t piece) {
  std::vector<std::byte> values;
  {
    const nb::gil_scoped_release release;
    values = check(engine.fetch(peer, number, piece));
  }
  return nb::bytes(reinterpret_cast<const char*>(values.data()), values.size());
}

std::vector<std::pair<std::size_t, std::size_t>> shard_elements(Engine& engine, ModelId model, std::size_t i, int rank) {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (const model::Interval& part : engine.shard_elements(model, i, rank)) {
    pairs.emplace_back(part.begin, part.end);
  }
  return pairs;
}

nb::bytes read_state(Engine& engine, ModelId model, std::size_t i, int slot) {
  std::vector<std::byte> values;
  {
    const nb::gil_scoped_release release;
    values = check(engine.read_state(model, i, slot));
  }
  return nb::bytes(reinterpret_cast<const char*>(values.data()), values.size());
}

}  // namespace

void bind_engine(nb::module_& module) {
  module.attr("OFFER_PIECE") = Engine::kOfferPiece;
  nb::class_<Shard>(module, "Shard")
      .def_prop_ro("address", [](const Shard& shard) { return to_address(shard.bytes->data()); })
      .def_prop_ro("size", [](const Shard& shard) { return shard.bytes->size(); });
  module.def("join_ring", &join_ring, ReleaseGil(), nb::arg("environment"), nb::arg("timeout_s"));
  nb::class_<Engine>(module, "Engine")
      .def_prop_ro(
          "communicator", [](Engine& engine) { return &engine.communicator(); }, nb::rv_policy::reference_internal)
      .def("add_model", &add_model, nb::arg("parameters"), nb::arg("schedule"), nb::arg("sharded"), nb::arg("optimizer"),
           nb::arg("num_state_slots"), nb::arg("group_bytes"), nb::arg("fusion_search"), nb::arg("compress_bfloat16"),
           nb::arg("cuts") = pipeline::Cuts(), nb::arg("tuned_for") = std::pair(0.0, 0.0), nb::arg("keep_previous") = false)
      .def("parameter", [](Engine& engine, ModelId model, std::size_t i) { return address_and_size(engine.parameter(model, i)); })
      .def("gradient", [](Engine& engine, ModelId model, std::size_t i) { return address_and_size(engine.gradient(model, i)); })
      .def("state", [](Engine& engine, ModelId model, std::size_t i, int slot) { return address_and_size(engine.state(model, i, slot)); })
      .def("handles", &handles)
      .def("shard_elements", &shard_elements)
      .def("read_shard", &read_shard, ReleaseGil())
      .def(
          "take_back", [](Engine& engine, ModelId model) { return check(engine.take_back(model)); }, ReleaseGil())
      .def(
          "offer",
          [](Engine& engine, std::uint32_t number, const Shard* shard) { engine.offer(number, shard == nullptr ? nullptr : shard->bytes); },
          nb::arg("number"), nb::arg("shard").none())
      .def("fetch", &fetch)
      .def("remove_model", [](Engine& engine, ModelId model, bool agreed) { check(engine.remove_model(model, agreed)); })
      .def("plan", &Engine::plan, nb::rv_policy::reference_internal)
      .def("mark_forward", &Engine::mark_forward)
      .def("mark_backward", &Engine::mark_backward)
      .def(
          "gradient_ready",
          [](Engine& engine, ModelId model, std::size_t i, std::uintptr_t source) {
            check(engine.gradient_ready(model, i, to_pointer(source)));
          },
          ReleaseGil())
      .def(
          "end_backward", [](Engine& engine, ModelId model) { check(engine.end_backward(model)); }, ReleaseGil())
      .def("step", &step, nb::arg("model"), nb::arg("hyper"), nb::arg("skip") = false)
      .def(
          "before_use", [](Engine& engine, ModelId model, std::size_t i) { check(engine.before_use(model, i)); }, ReleaseGil())
      .def("in_motion", &Engine::in_motion)
      .def("notes_first_use", &Engine::notes_first_use)
      .def(
          "synchronize", [](Engine& engine, ModelId model) { check(engine.synchronize(model)); }, ReleaseGil())
      .def("used", &Engine::used)
      .def("set_used", &Engine::set_used)
      .def(
          "gradient_norm", [](Engine& engine, ModelId model, double norm_type) { return check(engine.gradient_norm(model, norm_type)); },
          ReleaseGil())
      .def("scale_gradients", &Engine::scale_gradients)
      .def(
          "discard_gradients", [](Engine& engine, ModelId model) { check(engine.discard_gradients(model)); }, ReleaseGil())
      .def(
          "flush", [](Engine& engine, ModelId model) { check(engine.flush(model)); }, ReleaseGil())
      .def("update_count", &Engine::update_count)
      .def("set_update_count", &Engine::set_update_count)
      .def("read_state", &read_state)
      .def(
          "write_state",
          [](Engine& engine, ModelId model, std::size_t i, int slot, std::uintptr_t values, std::size_t bytes) {
            check(engine.write_state(model, i, slot, std::span<const std::byte>(to_pointer(values), bytes)));
          },
          ReleaseGil())
      .def("report", &report)
      .def("tuning", &tuning)
      .def("times_tuned", &Engine::times_tuned)
      .def("end_with_process",
           [](Engine& engine, std::string timeline_file) {
             pipeline::end_with_process(engine.shared_from_this(), std::move(timeline_file));
           })
      .def("finalize", [](Engine& engine) { check(engine.finalize()); }, ReleaseGil());
}

}  // namespace maypole::bindings
