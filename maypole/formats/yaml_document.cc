// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/status.h"
#include "maypole/formats/document.h"

#include <yaml-cpp/yaml.h>

namespace maypole::formats {

namespace {

using base::error;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
// An alias repeats its anchor: a few lines of them can stand for more nodes than memory holds.
constexpr int kMostNodes = 4'000'000;

class TreeCopier {
 public:
  explicit TreeCopier(std::string_view file) : file_(file) {}

  // NOLINTNEXTLINE(misc-no-recursion): no deeper than kDeepest
  absl::Status copy(const YAML::Node& from, Node& to, int depth) {
    to.line = from.Mark().line + 1;  // 0: not known
    if (depth > kDeepest) {
      return error(kInvalid, "{}:{}: lists and maps nest deeper than {}: flatten them", file_, to.line, kDeepest);
    }
    if (++nodes_ > kMostNodes) {
      return error(kInvalid, "{}:{}: more than {} values: write a generator, or instance JSON", file_, to.line, kMostNodes);
    }
    switch (from.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        to.kind = Node::Kind::kNull;
        return absl::OkStatus();
      case YAML::NodeType::Scalar:
        to.kind = from.Tag() == "!" ? Node::Kind::kText : Node::Kind::kPlain;  // "!": it was quoted
        to.text = from.Scalar();
        return absl::OkStatus();
      case YAML::NodeType::Sequence:
        to.kind = Node::Kind::kList;
        for (const YAML::Node& item : from) {
          MAYPOLE_RETURN_IF_ERROR(copy(item, to.items.emplace_back(), depth + 1));
        }
        return absl::OkStatus();
      case YAML::NodeType::Map:
        to.kind = Node::Kind::kMap;
        for (const auto& entry : from) {
          if (!entry.first.IsScalar()) {
            return error(kInvalid, "{}:{}: a field's name is no word: write name: value", file_, to.line);
          }
          Field& field = to.fields.emplace_back(Field{entry.first.Scalar(), Node()});
          MAYPOLE_RETURN_IF_ERROR(copy(entry.second, field.value, depth + 1));
          field.value.line = entry.first.Mark().line + 1;  // where the field begins, also where its list or map begins a line below
        }
        if (const std::optional<std::string> name = duplicate_name(to.fields)) {
          return error(kInvalid, "{}:{}: the field '{}' is there twice in one map: keep one", file_, to.line, *name);
        }
        return absl::OkStatus();
    }
    return absl::OkStatus();
  }

 private:
  std::string_view file_;
  int nodes_ = 0;
};

}  // namespace

absl::StatusOr<Node> parse_yaml(std::string_view text, std::string_view file) {
  try {  // yaml-cpp reports by exceptions; they end here
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.size() != 1) {
      return error(kInvalid, "{}: holds {} documents: give one", file, documents.size());
    }
    Node root;
    MAYPOLE_RETURN_IF_ERROR(TreeCopier(file).copy(documents.front(), root, 1));
    return root;
  } catch (const YAML::Exception& exception) {
    return error(kInvalid, "{}:{}: {}", file, exception.mark.line + 1, exception.msg);
  }
}

}  // namespace maypole::formats
