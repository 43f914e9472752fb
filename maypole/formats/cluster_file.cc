// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/cluster_file.h"

#include "maypole/base/status.h"
#include "maypole/formats/csv.h"
#include "maypole/formats/instance_json.h"
#include "maypole/formats/text_file.h"

#include <algorithm>

namespace maypole::formats {

absl::StatusOr<model::Cluster> parse_cluster(std::string_view text, std::string_view file, const ClusterDefaults& defaults) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') {
    return parse_instance_cluster(text, file);
  }
  const std::vector<std::string> header = csv_header(text);
  const auto has = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::all_of(names, [&](std::string_view name) { return std::ranges::find(header, name) != header.end(); });
  };
  if (has({"ip", "DSW", "PSW", "ASW"})) {
    return parse_alibaba_topology(text, file, defaults);
  }
  if (has({"num_switch", "num_node_p_switch", "num_gpu_p_node"})) {
    return parse_tiresias_cluster(text, file, defaults);
  }
  if (header.size() > 1 && file.ends_with(".csv")) {
    return base::error(absl::StatusCode::kInvalidArgument,
                       "{}:1: no cluster format has the columns {}: give a cluster.yaml, an instance, topo.csv or n*g*.csv", file,
                       fmt::join(header, ", "));
  }
  return parse_cluster_yaml(text, file);
}

absl::StatusOr<model::Cluster> read_cluster(const std::string& path, const ClusterDefaults& defaults) {
  MAYPOLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  return parse_cluster(text, file_name(path), defaults);
}

}  // namespace maypole::formats
