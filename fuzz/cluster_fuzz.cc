// SPDX-License-Identifier: Apache-2.0
#include "fuzzing.h"
#include "maypole/formats/cluster_file.h"
#include "maypole/formats/instance_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {  // NOLINT(readability-identifier-naming)
  using namespace maypole;
  const auto text = formats::text_of(data, size);
  if (!text.ok()) {
    return 0;
  }
  const auto cluster = formats::parse_cluster(*text, "fuzz", {.gpus_per_server = 8, .server_bandwidth = {1e8}, .uplink = {1e9}});
  formats::check_error(cluster);
  formats::check_error(formats::parse_launchers(*text, "fuzz"));
  if (cluster.ok()) {
    const std::string written = formats::instance_json({.cluster = *cluster, .jobs = {}});
    const auto again = formats::parse_instance(written, "fuzz");
    MAYPOLE_CHECK(again.ok());
    MAYPOLE_CHECK(formats::instance_json(*again) == written);
  }
  return 0;
}
