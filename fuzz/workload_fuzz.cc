// SPDX-License-Identifier: Apache-2.0
#include "fuzzing.h"
#include "maypole/formats/cluster_file.h"
#include "maypole/formats/workload.h"
#include "maypole/formats/workload_csv.h"

namespace {

const maypole::model::Cluster& cluster() {
  static const maypole::model::Cluster made =
      maypole::formats::parse_cluster("version: 1\ngenerate: {kind: racks, racks: 1, servers_per_rack: 8, capacity: {gpu: 8, cpu: 64}}\n",
                                      "c")
          .value();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {  // NOLINT(readability-identifier-naming)
  using namespace maypole;
  const auto text = formats::text_of(data, size);
  if (!text.ok()) {
    return 0;
  }
  for (const bool elastic : {false, true}) {
    const formats::WorkloadOptions options{.elastic = elastic, .measured = "nowhere"};
    const auto workload = formats::parse_workload(*text, "fuzz", options, cluster());
    formats::check_error(workload);
    if (workload.ok()) {
      const auto written = formats::workload_csv(workload->jobs, cluster(), options.slot_s);
      MAYPOLE_CHECK(written.ok());
      const auto again = formats::parse_workload(written->text, "fuzz", options, cluster());
      MAYPOLE_CHECK(again.ok());
      MAYPOLE_CHECK_EQ(again->jobs.size(), workload->jobs.size());
      for (std::size_t i = 0; i < again->jobs.size(); ++i) {
        MAYPOLE_CHECK(again->jobs[i].id == workload->jobs[i].id);
        MAYPOLE_CHECK(again->jobs[i].work == workload->jobs[i].work);
        MAYPOLE_CHECK(again->jobs[i].arrival_s == workload->jobs[i].arrival_s);
      }
    }
  }
  return 0;
}
