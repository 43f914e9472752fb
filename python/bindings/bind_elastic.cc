// SPDX-License-Identifier: Apache-2.0
#include "bindings.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/comm/environment.h"
#include "maypole/elastic/control_link.h"
#include "maypole/elastic/data_division.h"
#include "maypole/elastic/state_fetch.h"
#include "maypole/elastic/state_source.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace maypole::bindings {
namespace {

using elastic::ControlLink;
using elastic::DataDivision;
using elastic::Order;
using elastic::SampleRange;
using elastic::WorkerReport;

/// Waits without the interpreter, but looks for signals ten times a second. limit_s < 0: no limit.
std::optional<Order> wait(ControlLink& link, double limit_s) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    const double waited = base::to_seconds(std::chrono::steady_clock::now() - start);
    std::optional<Order> order;
    {
      const nb::gil_scoped_release release;
      const double slice = limit_s < 0 ? 0.1 : std::clamp(limit_s - waited, 0.0, 0.1);
      order = check(link.wait(base::from_seconds(slice)));
    }
    if (order || (limit_s >= 0 && waited >= limit_s)) {
      return order;
    }
    if (PyErr_CheckSignals() != 0) {
      throw nb::python_error();
    }
  }
}

std::pair<std::size_t, std::size_t> to_pair(SampleRange range) { return {range.begin, range.end}; }

// --- state ---

using Part = std::pair<std::uintptr_t, std::size_t>;   // address and bytes
using Source = std::pair<std::uint32_t, std::string>;  // rank and "address:port"
struct StateSource {
  std::optional<elastic::StateSource> source;
};

elastic::StatePieces to_pieces(const std::vector<Part>& parts, std::uint64_t layout) {
  std::vector<std::span<std::byte>> spans;
  spans.reserve(parts.size());
  for (const auto& [address, bytes] : parts) {
    spans.emplace_back(to_pointer(address), bytes);
  }
  return {spans, layout};
}

net::Credentials state_credentials(const comm::ConnectOptions& ring) { return {.secret = ring.secret, .context = ring.job_id + " state"}; }

std::unique_ptr<StateSource> give_state(const comm::Environment& environment, int listener, const std::vector<Part>& parts,
                                        std::uint64_t layout) {
  const comm::ConnectOptions& ring = environment.connect;
  auto holder = std::make_unique<StateSource>();
  holder->source.emplace(elastic::StateSource::Options{.listener = listener, .credentials = state_credentials(ring), .epoch = ring.epoch},
                         to_pieces(parts, layout));
  return holder;
}

/// (bytes from each source, bytes that were here already, why sources were lost)
std::tuple<std::vector<std::uint64_t>, std::uint64_t, std::vector<std::string>> fetch_state(const comm::Environment& environment,
                                                                                            const std::vector<Source>& sources,
                                                                                            const std::vector<Part>& parts,
                                                                                            std::uint64_t layout) {
  const comm::ConnectOptions& ring = environment.connect;
  std::vector<elastic::FetchSource> from;
  for (const auto& [rank, address] : sources) {
    from.push_back({rank, address});
  }
  const elastic::FetchReport report = check(elastic::fetch_state({.credentials = state_credentials(ring),
                                                                  .epoch = ring.epoch,
                                                                  .rank = static_cast<std::uint32_t>(ring.rank),
                                                                  .interface = ring.interface,
                                                                  .silence = environment.heartbeat},
                                                                 from, to_pieces(parts, layout)));
  return {report.bytes_from, report.bytes_kept, report.lost};
}

}  // namespace

void bind_elastic(nb::module_& module) {
  nb::enum_<WorkerReport::Kind>(module, "ReportKind")
      .value("READY", WorkerReport::Kind::kReady)
      .value("LOOPING", WorkerReport::Kind::kLooping)
      .value("STOPPED", WorkerReport::Kind::kStopped)
      .value("ENTERED", WorkerReport::Kind::kEntered)
      .value("FINISHED", WorkerReport::Kind::kFinished);
  nb::enum_<Order::Kind>(module, "OrderKind")
      .value("ANNOUNCE", Order::Kind::kAnnounce)
      .value("STOP", Order::Kind::kStop)
      .value("END", Order::Kind::kEnd)
      .value("REFUSE", Order::Kind::kRefuse);
  nb::class_<Order>(module, "Order")
      .def_ro("kind", &Order::kind)
      .def_ro("text", &Order::text)
      .def_prop_ro("epoch", [](const Order& order) { return order.membership.epoch; })
      .def_prop_ro("size", [](const Order& order) { return order.membership.members.size(); })
      .def("rank_of", [](const Order& order, int worker) { return order.membership.rank_of(elastic::WorkerId(worker)); })
      .def_prop_ro("hosts",
                   [](const Order& order) {
                     std::vector<std::string> hosts;
                     for (const elastic::Member& member : order.membership.members) {
                       hosts.push_back(member.host);
                     }
                     return hosts;
                   })
      .def_prop_ro("addresses",
                   [](const Order& order) {
                     std::vector<std::string> addresses;
                     for (const elastic::Member& member : order.membership.members) {
                       addresses.push_back(member.rendezvous);
                     }
                     return addresses;
                   })
      .def("local_rank", [](const Order& order, int rank) { return order.membership.local_rank(rank); });
  nb::class_<ControlLink>(module, "ControlLink")
      .def(
          "report",
          [](ControlLink& link, WorkerReport::Kind kind, std::uint32_t epoch, std::uint64_t step, double seconds, std::string text) {
            check(link.send({kind, epoch, step, seconds, std::move(text)}));
          },
          nb::arg("kind"), nb::arg("epoch"), nb::arg("step"), nb::arg("seconds") = 0.0, nb::arg("text") = "")
      .def("take", &ControlLink::take)
      .def("wait", &wait, nb::arg("limit_s") = -1.0, "The next order, or None when limit_s passed first.");
  // Never closed: the engine waits for the other ranks when the interpreter is gone, and its process has to give signs of life until then.
  module.def(
      "open_control_link", [](int fd, double silence_s) { return new ControlLink(base::Fd(fd), base::from_seconds(silence_s)); },
      nb::arg("fd"), nb::arg("silence_s"), nb::rv_policy::reference);
  module.def(
      "ring_of",
      [](const comm::Environment& environment, const Order& order, int rank, int listener, double deadline_s) {
        comm::Environment result = environment;
        result.connect.rank = rank;
        result.connect.num_ranks = static_cast<int>(order.membership.members.size());
        result.connect.epoch = order.membership.epoch;
        result.connect.rendezvous = order.membership.members.front().rendezvous;
        result.connect.rendezvous_listener = rank == 0 ? listener : -1;
        result.connect.deadline = base::from_seconds(deadline_s);
        if (const base::Bandwidth edge = order.membership.members[static_cast<std::size_t>(rank)].edge; edge.limited()) {
          result.connect.edge_bandwidth = edge;
        }
        result.local_rank = order.membership.local_rank(rank);
        return result;
      },
      nb::arg("environment"), nb::arg("order"), nb::arg("rank"), nb::arg("listener"), nb::arg("deadline_s"),
      "The environment of an announced epoch's member, for join_ring().");
  nb::class_<StateSource>(module, "StateSource")
      .def("close", [](StateSource& holder) { holder.source.reset(); }, nb::call_guard<nb::gil_scoped_release>());
  module.def("give_state", &give_state, nb::arg("environment"), nb::arg("listener"), nb::arg("parts"), nb::arg("layout"),
             "Gives memory to members of the ring that fetch it, until close().");
  module.def("fetch_state", &fetch_state, nb::call_guard<nb::gil_scoped_release>(), nb::arg("environment"), nb::arg("sources"),
             nb::arg("parts"), nb::arg("layout"));
  nb::class_<DataDivision>(module, "DataDivision")
      .def_static("make", [](std::size_t num_samples, std::size_t batch_size,
                             std::size_t max_workers) { return check(DataDivision::make(num_samples, batch_size, max_workers)); })
      .def_prop_ro("num_batches", &DataDivision::num_batches)
      .def("batch", [](const DataDivision& division, std::size_t index) { return to_pair(division.batch(index)); });
  module.def("share_of",
             [](std::size_t num_samples, int num_ranks, int rank) { return to_pair(elastic::share_of(num_samples, num_ranks, rank)); });
}

}  // namespace maypole::bindings
