// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/status.h"
#include "maypole/formats/document.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <sstream>
#include <unordered_map>
#include <utility>

namespace maypole::formats {

namespace {

using base::error;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
// An alias repeats its anchor: a few lines of them can stand for more nodes than memory holds.
constexpr std::int64_t kMostNodes = 2'000'000;

std::string too_deep() { return fmt::format("lists and maps nest deeper than {}: flatten them", kDeepest); }

// Builds the tree from the parser's events; after a failure it lets the rest pass by.
class YamlTree : public YAML::EventHandler {
 public:
  explicit YamlTree(std::string_view file) : file_(file) {}

  [[nodiscard]] const absl::Status& status() const { return status_; }
  [[nodiscard]] Node take() { return std::move(root_.node); }

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}           // NOLINT(readability-identifier-naming): yaml-cpp's names
  void OnDocumentEnd() override {}                                       // NOLINT(readability-identifier-naming)
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {  // NOLINT(readability-identifier-naming)
    add_leaf(Node::Kind::kNull, mark, anchor, "");
  }
  // NOLINTNEXTLINE(readability-identifier-naming)
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    add_leaf(tag == "!" ? Node::Kind::kText : Node::Kind::kPlain, mark, anchor, value);  // "!": it was quoted
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {  // NOLINT(readability-identifier-naming)
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) {
      fail(mark.line + 1, "an alias stands inside what it repeats: write the value out");
    } else if (count(found->second.nodes, mark)) {
      add(found->second);
    }
  }
  // NOLINTNEXTLINE(readability-identifier-naming)
  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(Node::Kind::kList, mark, anchor);
  }
  // NOLINTNEXTLINE(readability-identifier-naming)
  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(Node::Kind::kMap, mark, anchor);
  }
  void OnSequenceEnd() override { close(); }  // NOLINT(readability-identifier-naming)
  void OnMapEnd() override { close(); }       // NOLINT(readability-identifier-naming)

 private:
  struct Part {
    Node node;
    YAML::anchor_t anchor = YAML::NullAnchor;
    std::int64_t nodes = 1;     // of its whole subtree
    bool awaits_value = false;  // a map whose last field has only its name
  };

  void fail(int line, std::string_view sentence) {
    if (status_.ok()) {
      status_ = error(kInvalid, "{}:{}: {}", file_, line, sentence);
    }
  }

  bool count(std::int64_t more, const YAML::Mark& mark) {
    nodes_ += more;
    if (nodes_ > kMostNodes) {
      fail(mark.line + 1, fmt::format("more than {} values: use a generator, or instance JSON", kMostNodes));
    }
    return status_.ok();
  }

  void add_leaf(Node::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor, const std::string& text) {
    Part part;
    constexpr std::size_t kNodeBytes = 64;  // an alias repeats its anchor's text as well
    part.nodes += static_cast<std::int64_t>(text.size() / kNodeBytes);
    if (status_.ok() && count(part.nodes, mark)) {
      part.node = {.kind = kind, .line = mark.line + 1, .text = text, .items = {}, .fields = {}};
      part.anchor = anchor;
      finish(std::move(part));
    }
  }

  void open(Node::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (!status_.ok() || !count(1, mark)) {
      return;
    }
    if (open_.size() >= kDeepest) {
      fail(mark.line + 1, too_deep());
      return;
    }
    if (!open_.empty() && open_.back().node.kind == Node::Kind::kMap && !open_.back().awaits_value) {
      fail(mark.line + 1, "a field's name is no word: write name: value");
      return;
    }
    Part& part = open_.emplace_back();
    part.node.kind = kind;
    part.node.line = mark.line + 1;
    part.anchor = anchor;
  }

  void close() {
    if (!status_.ok()) {
      return;
    }
    Part part = std::move(open_.back());
    open_.pop_back();
    if (const std::optional<std::string> name = duplicate_name(part.node.fields)) {
      fail(part.node.line, fmt::format("the field '{}' is there twice in one map: keep one", *name));
      return;
    }
    finish(std::move(part));
  }

  void finish(Part part) {
    if (part.anchor != YAML::NullAnchor) {
      anchors_[part.anchor] = part;
    }
    add(std::move(part));
  }

  // Puts a finished value where it belongs: the root, the next item, a field's name, or its value.
  void add(Part part) {
    if (open_.empty()) {
      root_ = std::move(part);
      return;
    }
    Part& parent = open_.back();
    parent.nodes += part.nodes;
    if (parent.node.kind == Node::Kind::kList) {
      parent.node.items.push_back(std::move(part.node));
    } else if (parent.awaits_value) {
      Node& value = parent.node.fields.back().value;
      const int line = value.line;  // where the field begins, also where its list or map begins a line below
      value = std::move(part.node);
      value.line = line;
      parent.awaits_value = false;
    } else if (part.node.scalar()) {
      Field& field = parent.node.fields.emplace_back();
      field.name = std::move(part.node.text);
      field.value.line = part.node.line;
      parent.awaits_value = true;
    } else {
      fail(part.node.line, "a field's name is no word: write name: value");
    }
  }

  std::string_view file_;
  absl::Status status_;
  Part root_;
  std::vector<Part> open_;
  std::unordered_map<YAML::anchor_t, Part> anchors_;  // finished ones only
  std::int64_t nodes_ = 0;
};

}  // namespace

absl::StatusOr<Node> parse_yaml(std::string_view text, std::string_view file) {
  try {  // yaml-cpp reports by exceptions; they end here
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    YamlTree tree(file);
    if (!parser.HandleNextDocument(tree)) {
      return error(kInvalid, "{}: is empty: give one document", file);
    }
    MAYPOLE_RETURN_IF_ERROR(tree.status());
    // Asked once only: with some broken texts yaml-cpp 0.7 finds a next document for ever.
    YamlTree more(file);
    if (parser.HandleNextDocument(more)) {
      return error(kInvalid, "{}: holds more than one document, or text behind its end: give one", file);
    }
    return tree.take();
  } catch (const YAML::DeepRecursion& exception) {  // it gives up before the tree refuses
    return error(kInvalid, "{}:{}: {}", file, exception.mark.line + 1, too_deep());
  } catch (const YAML::Exception& exception) {
    return error(kInvalid, "{}:{}: {}", file, exception.mark.line + 1, exception.msg);
  }
}

}  // namespace maypole::formats
