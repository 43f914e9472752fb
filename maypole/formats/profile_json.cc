// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/profile_json.h"

#include "maypole/base/status.h"
#include "maypole/formats/document.h"
#include "maypole/formats/json_text.h"
#include "maypole/formats/number.h"
#include "maypole/formats/text_file.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <unordered_map>

namespace maypole::formats {
namespace {

constexpr int kVersion = 1;
constexpr std::int64_t kMostInt = std::numeric_limits<int>::max();
constexpr std::int64_t kMostElements = std::int64_t{1} << 50;
constexpr std::array kTypes = {base::DType::kFloat32, base::DType::kFloat64, base::DType::kBFloat16, base::DType::kFloat16};

/// Reads the times of one pass; a spread that is absent is zero.
model::Timing read_timing(Map& map, const std::string& pass) {
  model::Timing timing{map[pass + "_s"].number(), 0};
  if (const Value spread = map[pass + "_spread_s"]; spread.present()) {
    timing.spread_s = spread.number();
  }
  return timing;
}

base::DType read_dtype(const Value& value) {
  const std::string name = value.text();
  for (const base::DType dtype : kTypes) {
    if (name == base::name_of(dtype)) {
      return dtype;
    }
  }
  value.problem(fmt::format("'{}' is not one of float32, float64, bfloat16, float16", name));
  return base::DType::kFloat32;
}

void read_layers(const Value& list, model::Profile& profile, std::unordered_map<std::string, std::size_t>& layer_of) {
  for (const Value& item : list.list()) {
    Map map(item);
    const Value name = map["name"];
    if (!layer_of.emplace(name.text(), profile.layers.size()).second) {
      name.problem(fmt::format("layer '{}' is there twice: give each its own name", name.text()));
    }
    profile.layers.push_back({name.text(), read_timing(map, "forward"), read_timing(map, "backward")});
    map.refuse_others();
  }
}

void read_tensors(const Value& list, model::Profile& profile, const std::unordered_map<std::string, std::size_t>& layer_of) {
  for (const Value& item : list.list()) {
    Map map(item);
    model::ProfiledTensor tensor;
    tensor.name = map["name"].text();
    const Value layer = map["layer"];
    const std::string owner = layer.text();
    if (const auto found = layer_of.find(owner); found != layer_of.end()) {
      tensor.layer = found->second;
    } else {
      layer.problem(fmt::format("no layer owns the tensor '{}': there is no layer '{}'", tensor.name, owner));
    }
    tensor.elements = static_cast<std::size_t>(map["elements"].integer(0, kMostElements));
    tensor.dtype = read_dtype(map["dtype"]);
    map.refuse_others();
    profile.tensors.push_back(std::move(tensor));
  }
}

}  // namespace

std::string profile_json(const model::Profile& profile) {
  std::string text = fmt::format(
      "{{\"version\": {}, \"model\": {}, \"batch\": {}, \"modelled\": {},\n\"source\": {}, \"update_s\": {},\n\"ring\": ", kVersion,
      json_string(profile.model), profile.batch, profile.modelled, json_string(profile.source), format_number(profile.update_s));
  text += profile.ring ? fmt::format("{{\"workers\": {}, \"alpha_s\": {}, \"beta_s_per_byte\": {}}}", profile.ring->workers,
                                     format_number(profile.ring->alpha_s), format_number(profile.ring->beta_s_per_byte))
                       : "null";
  text += ",\n\"layers\": [";
  std::string_view before = "\n";
  for (const model::ProfiledLayer& layer : profile.layers) {
    text += fmt::format("{}{{\"name\": {}, \"forward_s\": {}, \"forward_spread_s\": {}, \"backward_s\": {}, \"backward_spread_s\": {}}}",
                        before, json_string(layer.name), format_number(layer.forward.median_s), format_number(layer.forward.spread_s),
                        format_number(layer.backward.median_s), format_number(layer.backward.spread_s));
    before = ",\n";
  }
  text += "],\n\"tensors\": [";
  before = "\n";
  for (const model::ProfiledTensor& tensor : profile.tensors) {
    text += fmt::format("{}{{\"name\": {}, \"layer\": {}, \"elements\": {}, \"dtype\": \"{}\"}}", before, json_string(tensor.name),
                        json_string(profile.layers[tensor.layer].name), tensor.elements, base::name_of(tensor.dtype));
    before = ",\n";
  }
  return text + "]}\n";
}

absl::StatusOr<model::Profile> parse_profile(std::string_view text, std::string_view file) {
  MAYPOLE_ASSIGN_OR_RETURN(const Node root, parse_json(text, file));
  Problems problems{std::string(file)};
  Map map(Value(&root, 0, "", &problems));
  const Value version = map["version"];
  if (const std::int64_t number = version.integer(1, kMostInt); problems.ok() && number != kVersion) {
    version.problem(fmt::format("this program reads version {}, the file has {}", kVersion, number));
  }
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  model::Profile profile;
  profile.model = map["model"].text();
  profile.batch = static_cast<std::size_t>(map["batch"].integer(0, kMostInt));
  profile.modelled = map["modelled"].boolean();
  if (const Value source = map["source"]; source.present()) {
    profile.source = source.text();
  }
  if (const Value update = map["update_s"]; update.present()) {
    profile.update_s = update.number();
  }
  if (const Value ring = map["ring"]; ring.present()) {
    Map fields(ring);
    profile.ring = model::MeasuredRing{static_cast<int>(fields["workers"].integer(1, kMostInt)), fields["alpha_s"].number(),
                                       fields["beta_s_per_byte"].number()};
    fields.refuse_others();
  }
  std::unordered_map<std::string, std::size_t> layer_of;
  read_layers(map["layers"], profile, layer_of);
  read_tensors(map["tensors"], profile, layer_of);
  map.refuse_others();
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  if (const absl::Status status = model::check_profile(profile); !status.ok()) {
    return base::error(absl::StatusCode::kInvalidArgument, "{}: {}", file, base::message(status));
  }
  return profile;
}

absl::StatusOr<model::Profile> read_profile(const std::string& path) {
  MAYPOLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  return parse_profile(text, file_name(path));
}

}  // namespace maypole::formats
