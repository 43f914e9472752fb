// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/status.h"
#include "maypole/formats/document.h"
#include "maypole/formats/number.h"

#include <nlohmann/json.hpp>

#include <cmath>

namespace maypole::formats {

namespace {

// Builds the tree from the parser's events. The stack holds the open lists and maps: each is the last child of the one below it, so
// none of them moves while it is open.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  [[nodiscard]] Node take() { return std::move(root_); }
  [[nodiscard]] const std::string& failure() const { return failure_; }

  bool null() override { return add(Node::Kind::kNull, ""); }
  bool boolean(bool value) override { return add(Node::Kind::kBool, value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return add(Node::Kind::kNumber, fmt::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(Node::Kind::kNumber, fmt::to_string(value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override { return add(Node::Kind::kNumber, text); }
  bool string(string_t& value) override { return add(Node::Kind::kText, std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*size*/) override { return open(Node::Kind::kMap); }
  bool start_array(std::size_t /*size*/) override { return open(Node::Kind::kList); }
  bool key(string_t& name) override {
    open_.back()->fields.push_back({std::move(name), Node()});
    return true;
  }
  bool end_object() override {
    if (const std::optional<std::string> name = duplicate_name(open_.back()->fields)) {
      failure_ = fmt::format("the field '{}' is there twice in one map: keep one", *name);
      return false;
    }
    return end_array();
  }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/, const nlohmann::detail::exception& exception) override {
    // [json.exception.parse_error.101] parse error at line 1, column 5: ...
    const std::string_view what = exception.what();
    failure_ = what.substr(what.find("] ") + 2);
    return false;
  }

 private:
  Node& place() {
    if (open_.empty()) {
      return root_;
    }
    Node& parent = *open_.back();
    return parent.kind == Node::Kind::kMap ? parent.fields.back().value : parent.items.emplace_back();
  }
  bool add(Node::Kind kind, std::string text) {
    Node& node = place();
    node.kind = kind;
    node.text = std::move(text);
    return true;
  }
  bool open(Node::Kind kind) {
    if (open_.size() >= kDeepest) {
      failure_ = fmt::format("lists and maps nest deeper than {}: flatten them", kDeepest);
      return false;
    }
    Node& node = place();
    node.kind = kind;
    open_.push_back(&node);
    return true;
  }

  Node root_;
  std::vector<Node*> open_;
  std::string failure_;
};

}  // namespace

absl::StatusOr<Node> parse_json(std::string_view text, std::string_view file) {
  TreeBuilder builder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    return base::error(absl::StatusCode::kInvalidArgument, "{}: {}", file, builder.failure());
  }
  return builder.take();
}

}  // namespace maypole::formats
