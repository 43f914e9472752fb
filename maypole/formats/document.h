// SPDX-License-Identifier: Apache-2.0
#pragma once

// A parsed JSON or YAML text as one kind of tree, and the reading of its fields with errors that name file, line and field:
// `cluster.yaml:7: servers[2].bandwidth: ...`. Both parsers refuse duplicate keys, nesting deeper than kDeepest and texts that are not
// one document.

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::formats {

struct Field;

struct Node {
  // kPlain: an unquoted YAML scalar, which is what its reader takes it for.
  enum class Kind { kNull, kBool, kNumber, kText, kPlain, kList, kMap };
  Kind kind = Kind::kNull;
  int line = 0;               // from 1; of a list or map in JSON where it begins
  std::string text;           // of a scalar, as written; text without its quotes
  std::vector<Node> items;    // of a list
  std::vector<Field> fields;  // of a map, in the order written

  [[nodiscard]] bool scalar() const { return kind != Kind::kList && kind != Kind::kMap && kind != Kind::kNull; }
};

struct Field {
  std::string name;
  Node value;
};

inline constexpr int kDeepest = 64;

/// `file` is what errors call the text; `first_line` the number of its first line, where it is a part of that file.
[[nodiscard]] absl::StatusOr<Node> parse_json(std::string_view text, std::string_view file, int first_line = 1);
[[nodiscard]] absl::StatusOr<Node> parse_yaml(std::string_view text, std::string_view file);

/// The name that occurs twice among the fields, or none.
[[nodiscard]] std::optional<std::string> duplicate_name(const std::vector<Field>& fields);

/// Keeps the first error of a document.
class Problems {
 public:
  explicit Problems(std::string file) : file_(std::move(file)) {}
  /// `{file}:{line}: {path}: {sentence}`, without what is not known.
  void add(int line, std::string_view path, std::string_view sentence);
  void add(const absl::Status& status) {
    if (status_.ok()) {
      status_ = status;
    }
  }
  [[nodiscard]] bool ok() const { return status_.ok(); }
  [[nodiscard]] const absl::Status& status() const { return status_; }
  [[nodiscard]] const std::string& file() const { return file_; }

 private:
  std::string file_;
  absl::Status status_;
};

/// A value and where it stands. A wrong value is added to the problems and read as a default, so that reading code runs straight
/// down and asks Problems once, at its end. Node and Problems must outlive it.
class Value {
 public:
  Value(const Node* node, int line, std::string path, Problems* problems)
      : node_(node), line_(line), path_(std::move(path)), problems_(problems) {}

  /// False where the field is absent or null.
  [[nodiscard]] bool present() const { return node_ != nullptr && node_->kind != Node::Kind::kNull; }
  [[nodiscard]] bool is_map() const { return node_ != nullptr && node_->kind == Node::Kind::kMap; }
  [[nodiscard]] int line() const { return line_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  // Each says `is missing` where the value is not there.
  [[nodiscard]] std::string text() const;  // any scalar of YAML; in JSON a string
  [[nodiscard]] double number() const;
  [[nodiscard]] std::int64_t integer(std::int64_t least, std::int64_t most) const;
  [[nodiscard]] std::uint64_t unsigned_integer() const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::vector<Value> list() const;
  /// As written: for quantities that people write, such as 10Gbps.
  [[nodiscard]] std::string scalar() const;
  [[nodiscard]] std::optional<double> optional_number() const { return present() ? std::optional(number()) : std::nullopt; }

  /// The map's fields with their values, in order.
  struct Entry;
  [[nodiscard]] std::vector<Entry> entries() const;

  void problem(std::string_view sentence) const { problems_->add(line_, path_, sentence); }

 private:
  friend class Map;
  [[nodiscard]] bool demand(bool right_kind, std::string_view what) const;

  const Node* node_;  // null: absent
  int line_;
  std::string path_;
  Problems* problems_;
};

struct Value::Entry {
  std::string name;
  Value value;
};

/// A map whose fields are known by name: refuse_others() names those that nobody asked for.
class Map {
 public:
  explicit Map(const Value& value);
  /// The named field; absent where it is not there.
  [[nodiscard]] Value operator[](std::string_view name);
  /// Adds a problem for the first field not asked for; lists those that were.
  void refuse_others() const;
  void problem(std::string_view sentence) const { value_.problem(sentence); }

 private:
  Value value_;
  std::vector<std::string> asked_;
};

}  // namespace maypole::formats
