// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/document.h"

#include "maypole/base/status.h"
#include "maypole/formats/number.h"

#include <algorithm>

namespace maypole::formats {

namespace {

std::string_view name_of(Node::Kind kind) {
  switch (kind) {
    case Node::Kind::kNull:
      return "null";
    case Node::Kind::kBool:
      return "true or false";
    case Node::Kind::kNumber:
      return "a number";
    case Node::Kind::kText:
      return "text";
    case Node::Kind::kPlain:
      return "a word";
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kMap:
      return "a map";
  }
  return "?";
}

std::string shortened(std::string_view text) { return std::string(text.substr(0, 60)) + (text.size() > 60 ? "..." : ""); }

}  // namespace

std::optional<std::string> duplicate_name(const std::vector<Field>& fields) {
  std::vector<std::string_view> names;
  names.reserve(fields.size());
  for (const Field& field : fields) {
    names.push_back(field.name);
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  return twice == names.end() ? std::nullopt : std::optional<std::string>(*twice);
}

void Problems::add(int line, std::string_view path, std::string_view sentence) {
  if (!status_.ok()) {
    return;
  }
  const std::string place = line > 0 ? fmt::format("{}:{}", file_, line) : file_;
  status_ = base::error(absl::StatusCode::kInvalidArgument, "{}: {}{}{}", place, path, path.empty() ? "" : ": ", sentence);
}

bool Value::demand(bool right_kind, std::string_view what) const {
  if (!present()) {
    problem(fmt::format("is missing: give {}", what));
  } else if (!right_kind) {
    problem(node_->scalar() ? fmt::format("'{}' is {}: give {}", shortened(node_->text), name_of(node_->kind), what)
                            : fmt::format("is {}: give {}", name_of(node_->kind), what));
  }
  return present() && right_kind;
}

std::string Value::text() const {
  const bool json = node_ != nullptr && (node_->kind == Node::Kind::kNumber || node_->kind == Node::Kind::kBool);
  return demand(node_ != nullptr && node_->scalar() && !json, "text") ? node_->text : "";
}

std::string Value::scalar() const { return demand(node_ != nullptr && node_->scalar(), "a value") ? node_->text : ""; }

double Value::number() const {
  if (!demand(node_ != nullptr && (node_->kind == Node::Kind::kNumber || node_->kind == Node::Kind::kPlain), "a number")) {
    return 0;
  }
  const std::optional<double> value = parse_number(node_->text);
  if (!value) {
    problem(fmt::format("'{}' is no finite number: give one", shortened(node_->text)));
  }
  return value.value_or(0);
}

std::int64_t Value::integer(std::int64_t least, std::int64_t most) const {
  if (!demand(node_ != nullptr && (node_->kind == Node::Kind::kNumber || node_->kind == Node::Kind::kPlain), "a whole number")) {
    return least;
  }
  const std::optional<std::int64_t> value = parse_integer(node_->text);
  if (!value || *value < least || *value > most) {
    problem(fmt::format("'{}' is not a whole number from {} to {}", shortened(node_->text), least, most));
    return least;
  }
  return *value;
}

std::uint64_t Value::unsigned_integer() const {
  if (!demand(node_ != nullptr && (node_->kind == Node::Kind::kNumber || node_->kind == Node::Kind::kPlain), "a whole number")) {
    return 0;
  }
  const std::optional<std::uint64_t> value = parse_unsigned(node_->text);
  if (!value) {
    problem(fmt::format("'{}' is not a whole number of at least 0", shortened(node_->text)));
  }
  return value.value_or(0);
}

bool Value::boolean() const {
  const bool right = node_ != nullptr && (node_->kind == Node::Kind::kBool || node_->kind == Node::Kind::kPlain) &&
                     (node_->text == "true" || node_->text == "false");
  return demand(right, "true or false") && node_->text == "true";
}

std::vector<Value> Value::list() const {
  std::vector<Value> values;
  if (demand(node_ != nullptr && node_->kind == Node::Kind::kList, "a list")) {
    values.reserve(node_->items.size());
    for (std::size_t i = 0; i < node_->items.size(); ++i) {
      const Node& item = node_->items[i];
      values.emplace_back(&item, item.line > 0 ? item.line : line_, fmt::format("{}[{}]", path_, i), problems_);
    }
  }
  return values;
}

std::vector<Value::Entry> Value::entries() const {
  std::vector<Entry> entries;
  if (demand(node_ != nullptr && node_->kind == Node::Kind::kMap, "a map")) {
    entries.reserve(node_->fields.size());
    for (const Field& field : node_->fields) {
      const int line = field.value.line > 0 ? field.value.line : line_;
      entries.push_back({field.name, Value(&field.value, line, path_.empty() ? field.name : path_ + "." + field.name, problems_)});
    }
  }
  return entries;
}

Map::Map(const Value& value) : value_(value) {
  if (!value_.demand(value_.node_ != nullptr && value_.node_->kind == Node::Kind::kMap, "a map")) {
    value_.node_ = nullptr;
  }
}

Value Map::operator[](std::string_view name) {
  asked_.emplace_back(name);
  const Node* found = nullptr;
  if (value_.node_ != nullptr) {
    const auto field = std::ranges::find(value_.node_->fields, name, &Field::name);
    found = field == value_.node_->fields.end() ? nullptr : &field->value;
  }
  const int line = found != nullptr && found->line > 0 ? found->line : value_.line_;
  const std::string path = value_.path_.empty() ? std::string(name) : fmt::format("{}.{}", value_.path_, name);
  return {found, line, path, value_.problems_};
}

void Map::refuse_others() const {
  if (value_.node_ == nullptr) {
    return;
  }
  for (const Field& field : value_.node_->fields) {
    if (std::ranges::find(asked_, field.name) == asked_.end()) {
      const std::string path = value_.path_.empty() ? field.name : value_.path_ + "." + field.name;
      std::vector<std::string> known = asked_;
      std::ranges::sort(known);
      known.erase(std::ranges::unique(known).begin(), known.end());
      value_.problems_->add(field.value.line > 0 ? field.value.line : value_.line_, path,
                            fmt::format("is no field of this format: it knows {}", fmt::join(known, ", ")));
      return;
    }
  }
}

}  // namespace maypole::formats
