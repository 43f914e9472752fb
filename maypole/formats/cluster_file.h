// SPDX-License-Identifier: Apache-2.0
#pragma once

// A cluster from a file, whose kind is seen from its content: our cluster.yaml, the servers and links of an instance (JSON), Alibaba's
// topo.csv, Tiresias's n*g*.csv. See docs/formats.md for what each holds and which links are made.
//
// Links of a tree are named by their ends: `s0>r0` up, `r0>s0` down, `r0>core`, `core>r0`. Where a file gives no bandwidth at all, the
// cluster models no links: a link that never binds needs none.

#include "maypole/base/units.h"
#include "maypole/model/cluster.h"

#include <absl/status/statusor.h>

#include <map>
#include <string>
#include <string_view>

namespace maypole::formats {

/// What topologies of other origin lack; ignored by files that say it themselves.
struct ClusterDefaults {
  double gpus_per_server = 0;             // 0: not given, which is an error where the file needs it
  base::Bandwidth server_bandwidth = {};  // server to its rack, each direction, payload; not limited(): never binds
  base::Bandwidth uplink = {};            // rack to what is above, each direction; higher switches carry the sum of those below them
};

[[nodiscard]] absl::StatusOr<model::Cluster> read_cluster(const std::string& path, const ClusterDefaults& defaults = {});
[[nodiscard]] absl::StatusOr<model::Cluster> parse_cluster(std::string_view text, std::string_view file,
                                                           const ClusterDefaults& defaults = {});

/// By server id: the command template that starts a worker there, of those servers of a cluster.yaml that have one.
using Launchers = std::map<std::string, std::string>;
[[nodiscard]] absl::StatusOr<Launchers> parse_launchers(std::string_view text, std::string_view file);

// One parser a kind.
[[nodiscard]] absl::StatusOr<model::Cluster> parse_cluster_yaml(std::string_view text, std::string_view file);
[[nodiscard]] absl::StatusOr<model::Cluster> parse_alibaba_topology(std::string_view text, std::string_view file,
                                                                    const ClusterDefaults& defaults);
[[nodiscard]] absl::StatusOr<model::Cluster> parse_tiresias_cluster(std::string_view text, std::string_view file,
                                                                    const ClusterDefaults& defaults);

}  // namespace maypole::formats
