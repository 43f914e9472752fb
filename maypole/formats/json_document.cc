// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/status.h"
#include "maypole/formats/document.h"
#include "maypole/formats/number.h"

#include <nlohmann/json.hpp>

#include <iterator>

namespace maypole::formats {

namespace {

/// How far the parser has read. It copies its iterators, so they share this.
struct Reader {
  std::string_view text;
  std::size_t read = 0;
  bool ended = false;  // it asked for more than there is

  std::size_t counted = 0;
  int lines = 0;  // that end before `counted`

  /// The line of the character at `at`, which never goes back.
  int line_of(std::size_t at) {
    for (; counted < at && counted < text.size(); ++counted) {
      lines += text[counted] == '\n' ? 1 : 0;
    }
    return lines + 1;
  }
};

/// An iterator over the text that tells the reader where it is.
class Reading {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;    // NOLINT(readability-identifier-naming): the standard's names
  using reference = const char&;  // NOLINT(readability-identifier-naming)

  Reading(Reader& reader, std::size_t at) : reader_(&reader), at_(at) {}
  reference operator*() const { return reader_->text[at_]; }
  Reading& operator++() {
    reader_->read = ++at_;
    return *this;
  }
  bool operator==(const Reading& other) const {
    reader_->ended = reader_->ended || at_ == other.at_;
    return at_ == other.at_;
  }

 private:
  Reader* reader_;
  std::size_t at_;
};

// Builds the tree from the parser's events. The stack holds the open lists and maps: each is the last child of the one below it, so
// none of them moves while it is open.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeBuilder(Reader& reader, int first_line) : reader_(reader), before_(first_line - 1) {}

  [[nodiscard]] Node take() { return std::move(root_); }
  [[nodiscard]] const std::string& failure() const { return failure_; }
  /// Where the parser stands: just behind what it has told, but one character further behind a number.
  [[nodiscard]] int line(bool number = false) { return before_ + reader_.line_of(reader_.read - (number && reader_.read > 0 ? 1 : 0)); }

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
  bool parse_error(std::size_t /*position*/, const std::string& token, const nlohmann::detail::exception& exception) override {
    constexpr int kNumberOverflow = 406;
    if (exception.id == kNumberOverflow) {
      failure_ = fmt::format("'{}' is more than a number can hold", token);
      return false;
    }
    if (reader_.text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
      failure_ = "is empty: give one JSON value";
    } else if (reader_.ended) {
      failure_ = "the JSON text ends too early: the file is cut off, so make or copy it again";
    } else {
      failure_ = fmt::format("no JSON from '{}' on: mend it, or make the file again", token.substr(0, 60));
    }
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
    node.line = line(kind == Node::Kind::kNumber);
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
    node.line = line();
    open_.push_back(&node);
    return true;
  }

  Reader& reader_;
  int before_;  // lines before the text's first
  Node root_;
  std::vector<Node*> open_;
  std::string failure_;
};

}  // namespace

absl::StatusOr<Node> parse_json(std::string_view text, std::string_view file, int first_line) {
  Reader reader{.text = text};
  TreeBuilder builder(reader, first_line);
  if (!nlohmann::json::sax_parse(Reading(reader, 0), Reading(reader, text.size()), &builder)) {
    return base::error(absl::StatusCode::kInvalidArgument, "{}:{}: {}", file, builder.line(), builder.failure());
  }
  return builder.take();
}

}  // namespace maypole::formats
