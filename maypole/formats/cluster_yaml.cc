// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/status.h"
#include "maypole/formats/cluster_file.h"
#include "maypole/formats/cluster_tree.h"
#include "maypole/formats/document.h"

#include <algorithm>
#include <map>
#include <set>

namespace maypole::formats {

namespace {

constexpr int kMostServers = 100'000;

// The racks by id, and where each was declared.
struct DeclaredSwitch {
  Value place;
  std::string parent;
};
using Declared = std::map<std::string, DeclaredSwitch>;

class ClusterYaml {
 public:
  ClusterYaml(const Value& root, Problems& problems) : root_(root), problems_(problems) {}

  absl::StatusOr<model::Cluster> read() {
    const Value version = root_["version"];
    if (const std::int64_t number = version.integer(1, 1'000'000); number != 1 && problems_.ok()) {
      version.problem(fmt::format("this program reads version 1, the file has {}", number));
    }
    const Value payload = root_["payload"];
    payload_ = payload.present() && payload.boolean();
    const Value generate = root_["generate"];
    const Value servers = root_["servers"];
    const Value racks = root_["racks"];
    const Value links = root_["links"];
    root_.refuse_others();
    if (generate.present()) {
      for (const Value& other : {servers, racks}) {
        if (other.present()) {
          other.problem("stands beside generate: give either the generator, or racks and servers");
        }
      }
      read_generator(generate);
    } else {
      if (racks.present()) {
        read_racks(racks);
      }
      read_servers(servers);
    }
    MAYPOLE_RETURN_IF_ERROR(problems_.status());
    const bool with_links = tree_.limited() || links.present();
    ClusterNames names;
    tree_.sort();
    tree_.add_to(names, with_links);
    if (links.present()) {
      read_links(links, names);
    }
    MAYPOLE_RETURN_IF_ERROR(problems_.status());
    return names.make(problems_.file());
  }

  [[nodiscard]] const Launchers& launchers() const { return launchers_; }

 private:
  base::Bandwidth bandwidth(const Value& value) const { return value.present() ? read_bandwidth(value, payload_) : base::Bandwidth{}; }

  // An id that no server and no switch has yet.
  std::string new_id(const Value& value) {
    std::string id = value.text();
    if (id.empty()) {
      value.problem("is empty: give a name");
    } else if (id == kCore) {
      value.problem(fmt::format("'{}' is the switch above all racks: give another name", kCore));
    } else if (const auto [found, is_new] = ids_.try_emplace(id, value.line()); !is_new) {
      value.problem(fmt::format("'{}' is there twice (first in line {}): give each its own id", id, found->second));
    }
    return id;
  }

  void read_racks(const Value& racks) {
    for (const Value& item : racks.list()) {
      Map map(item);
      TreeSwitch node;
      node.id = new_id(map["id"]);
      const Value parent = map["parent"];
      node.parent = parent.present() ? parent.text() : "";
      node.parent = node.parent == kCore ? "" : node.parent;
      node.uplink = bandwidth(map["uplink"]);
      map.refuse_others();
      declared_.insert({node.id, {parent, node.parent}});
      tree_.switches.push_back(std::move(node));
    }
    for (const TreeSwitch& node : tree_.switches) {
      check_way_up(node.id);
    }
  }

  // Every rack must lead to the core.
  void check_way_up(const std::string& id) {
    std::set<std::string> seen;
    std::string way = id;
    for (std::string here = id; !here.empty();) {
      const DeclaredSwitch& node = declared_.at(here);
      if (!seen.insert(here).second) {
        node.place.problem(fmt::format("leads round in a circle ({}): a rack's parents must end at the core", way));
        return;
      }
      if (!node.parent.empty() && !declared_.contains(node.parent)) {
        node.place.problem(fmt::format("there is no rack '{}': declare it, or name one of {}", node.parent, rack_names()));
        return;
      }
      here = node.parent;
      way += here.empty() ? "" : " > " + here;
    }
  }

  std::string rack_names() const {
    std::string names;
    for (const TreeSwitch& node : tree_.switches) {
      names += names.empty() ? "" : ", ";
      names += names.size() > 200 ? "" : node.id;
      if (names.size() > 200) {
        return names + "...";
      }
    }
    return names.empty() ? "(none is declared)" : names;
  }

  void read_servers(const Value& servers) {
    for (const Value& item : servers.list()) {
      Map map(item);
      TreeServer server;
      server.id = new_id(map["id"]);
      const Value rack = map["rack"];
      server.rack = rack.present() ? rack.text() : "";
      if (!server.rack.empty() && !declared_.contains(server.rack)) {
        rack.problem(fmt::format("there is no rack '{}': declare it under racks, or name one of {}", server.rack, rack_names()));
      }
      server.capacity = read_amounts(map["capacity"]);
      server.bandwidth = bandwidth(map["bandwidth"]);
      const Value launcher = map["launcher"];
      map.refuse_others();
      if (launcher.present()) {
        launchers_.emplace(server.id, launcher.text());
      }
      tree_.servers.push_back(std::move(server));
    }
  }

  void read_links(const Value& links, ClusterNames& names) {
    std::vector<Value> items = links.list();
    std::ranges::stable_sort(items, [](const Value& a, const Value& b) { return id_before(Map(a)["id"].text(), Map(b)["id"].text()); });
    for (const Value& item : items) {
      Map map(item);
      const Value id = map["id"];
      for (const std::string_view end : {"from", "to"}) {
        const Value node = map[end];
        if (const std::string name = node.text(); problems_.ok() && name != kCore && !names.knows(name)) {
          node.problem(fmt::format("there is no server or rack '{}': declare it first", name));
        }
      }
      const std::string from = map["from"].text();
      if (const std::string to = map["to"].text(); from == to && problems_.ok()) {
        map["to"].problem(fmt::format("the link joins '{}' with itself: give two different ends", from));
      } else if (!names.add_link(id.text(), from, to, bandwidth(map["bandwidth"]))) {
        id.problem(fmt::format("link '{}' is there twice: give each its own id (those of the tree are called like s0>r0)", id.text()));
      }
      map.refuse_others();
    }
  }

  void read_generator(const Value& generate) {
    Map map(generate);
    const Value kind = map["kind"];
    const std::string name = kind.text();
    GeneratedTree wanted;
    wanted.racks = static_cast<int>(map["racks"].integer(1, kMostServers));
    wanted.servers_per_rack = static_cast<int>(map["servers_per_rack"].integer(1, kMostServers));
    wanted.capacity = read_amounts(map["capacity"]);
    wanted.bandwidth = bandwidth(map["bandwidth"]);
    const Value oversubscription = map["oversubscription"];
    wanted.oversubscription = oversubscription.optional_number().value_or(1);
    if (!(wanted.oversubscription > 0)) {
      oversubscription.problem("must be above 0: 8 means that a rack's uplink is an eighth of what its servers can send");
    }
    if (name == "fat-tree") {
      const Value pod = map["racks_per_pod"];
      wanted.racks_per_pod =
          pod.present() ? static_cast<int>(pod.integer(1, kMostServers)) : std::min(wanted.servers_per_rack, wanted.racks);
    } else if (name != "leaf-spine" && name != "racks") {
      kind.problem(fmt::format("there is no generator '{}': give fat-tree, leaf-spine or racks", name));
    }
    map.refuse_others();
    if (std::int64_t{wanted.racks} * wanted.servers_per_rack > kMostServers) {
      map.problem(fmt::format("makes {} servers, more than {}", std::int64_t{wanted.racks} * wanted.servers_per_rack, kMostServers));
    }
    if (problems_.ok()) {
      tree_ = generate_tree(wanted);
    }
  }

  Map root_;
  Problems& problems_;
  bool payload_ = false;
  std::map<std::string, int> ids_;  // line of each server and rack
  Declared declared_;
  ClusterTree tree_;
  Launchers launchers_;
};

}  // namespace

absl::StatusOr<model::Cluster> parse_cluster_yaml(std::string_view text, std::string_view file) {
  MAYPOLE_ASSIGN_OR_RETURN(const Node node, parse_yaml(text, file));
  Problems problems{std::string(file)};
  return ClusterYaml(Value(&node, 1, "", &problems), problems).read();
}

absl::StatusOr<Launchers> parse_launchers(std::string_view text, std::string_view file) {
  MAYPOLE_ASSIGN_OR_RETURN(const Node node, parse_yaml(text, file));
  Problems problems{std::string(file)};
  ClusterYaml yaml(Value(&node, 1, "", &problems), problems);
  MAYPOLE_RETURN_IF_ERROR(yaml.read().status());
  return yaml.launchers();
}

}  // namespace maypole::formats
