// SPDX-License-Identifier: Apache-2.0
#pragma once

// Dense indices that do not mix: a ServerId cannot be passed for a LinkId. An IdVector is a vector that only its own id opens.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace maypole::base {

/// A position in some table of the program, from 0; -1 means none. `Tag` only makes the types differ.
template <typename Tag>
class StrongId {
 public:
  constexpr StrongId() = default;
  constexpr explicit StrongId(std::int32_t value) : value_(value) {}
  [[nodiscard]] static constexpr StrongId from_index(std::size_t index) { return StrongId(static_cast<std::int32_t>(index)); }
  [[nodiscard]] constexpr std::int32_t value() const { return value_; }
  [[nodiscard]] constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }
  [[nodiscard]] constexpr bool valid() const { return value_ >= 0; }
  constexpr auto operator<=>(const StrongId&) const = default;
  template <typename H>
  friend H AbslHashValue(H state, const StrongId& id) {  // NOLINT(readability-identifier-naming): Abseil looks for this name
    return H::combine(std::move(state), id.value_);
  }

 private:
  std::int32_t value_ = -1;
};

/// `values[id]` for the ids 0..size()-1.
template <typename Id, typename T>
class IdVector {
 public:
  IdVector() = default;
  explicit IdVector(std::size_t size, const T& value = T()) : values_(size, value) {}

  [[nodiscard]] std::size_t size() const { return values_.size(); }
  [[nodiscard]] bool empty() const { return values_.empty(); }
  [[nodiscard]] decltype(auto) operator[](Id id) { return values_[id.index()]; }
  [[nodiscard]] decltype(auto) operator[](Id id) const { return values_[id.index()]; }
  [[nodiscard]] bool contains(Id id) const { return id.valid() && id.index() < values_.size(); }
  Id push_back(T value) {
    values_.push_back(std::move(value));
    return Id::from_index(values_.size() - 1);
  }
  void assign(std::size_t size, const T& value) { values_.assign(size, value); }
  [[nodiscard]] auto begin() { return values_.begin(); }
  [[nodiscard]] auto end() { return values_.end(); }
  [[nodiscard]] auto begin() const { return values_.begin(); }
  [[nodiscard]] auto end() const { return values_.end(); }
  bool operator==(const IdVector&) const = default;

 private:
  std::vector<T> values_;
};

}  // namespace maypole::base
