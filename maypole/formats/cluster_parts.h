// SPDX-License-Identifier: Apache-2.0
#pragma once

// Puts a cluster together from names, as files give it: resources, racks and switches get their positions when they are first named.

#include "maypole/formats/job_fields.h"
#include "maypole/model/cluster.h"

#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace maypole::formats {

class ClusterNames {
 public:
  /// False where a server or switch bears that id already. An empty `rack` is none.
  [[nodiscard]] bool add_server(const std::string& id, const std::string& rack, const NamedAmounts& capacity);
  [[nodiscard]] bool add_switch(const std::string& id);
  [[nodiscard]] bool knows(const std::string& node) const { return nodes_.contains(node); }
  /// Unknown ends become switches. False where a link bears that id already.
  [[nodiscard]] bool add_link(const std::string& id, const std::string& from, const std::string& to, base::Bandwidth bandwidth);

  /// Errors are those of Cluster::make, with `file: ` before them.
  [[nodiscard]] absl::StatusOr<model::Cluster> make(std::string_view file);

 private:
  struct NodeName {
    bool server = false;
    std::size_t index = 0;  // among servers, or among switches
  };
  struct NamedLink {
    std::string id;
    std::string from;
    std::string to;
    base::Bandwidth bandwidth;
  };

  std::unordered_map<std::string, NodeName> nodes_;
  std::unordered_map<std::string, std::size_t> resources_;
  std::unordered_map<std::string, std::size_t> racks_;
  std::unordered_map<std::string, std::size_t> link_ids_;
  std::vector<NamedAmounts> capacities_;  // [server]
  std::vector<NamedLink> links_;
  model::ClusterParts parts_;
};

}  // namespace maypole::formats
