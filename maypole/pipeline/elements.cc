// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/elements.h"

#include "maypole/base/check.h"
#include "maypole/pipeline/half.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace maypole::pipeline {
namespace {

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, BFloat16> || std::is_same_v<T, _Float16>;

template <typename T>
auto load(const T& element) {
  if constexpr (kIsHalf<T>) {
    return widen(element);
  } else {
    return element;
  }
}

template <typename T, typename V>
void store(V value, T& element) {
  if constexpr (kIsHalf<T>) {
    narrow(value, element);
  } else {
    element = value;
  }
}

/// Calls `body` with a null pointer of the element type.
template <typename Body>
void with_type(base::DType dtype, Body body) {
  switch (dtype) {
    case base::DType::kFloat32:
      return body(static_cast<float*>(nullptr));
    case base::DType::kFloat64:
      return body(static_cast<double*>(nullptr));
    case base::DType::kBFloat16:
      return body(static_cast<BFloat16*>(nullptr));
    case base::DType::kFloat16:
      return body(static_cast<_Float16*>(nullptr));
    case base::DType::kByte:
      break;
  }
  MAYPOLE_CHECK(dtype != base::DType::kByte);
}

template <typename T>
double squares(const T* data, std::size_t count) {
  constexpr std::size_t kLanes = 8;  // independent sums, so that the loop vectorises
  double sums[kLanes] = {};
  std::size_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double x = static_cast<double>(load(data[k + lane]));
      sums[lane] += x * x;
    }
  }
  double total = 0;
  for (; k < count; ++k) {
    const double x = static_cast<double>(load(data[k]));
    total += x * x;
  }
  for (const double sum : sums) {
    total += sum;
  }
  return total;
}

template <typename T>
double powers(const T* data, std::size_t count, double power) {
  if (power == 2) {
    return squares(data, count);
  }
  double total = 0;
  for (std::size_t k = 0; k < count; ++k) {
    const double x = std::abs(static_cast<double>(load(data[k])));
    total = combine_powers(total, std::isinf(power) || power == 1 ? x : std::pow(x, power), power);
  }
  return total;
}

}  // namespace

void add_elements(base::DType dtype, std::size_t count, std::byte* target, const std::byte* source) {
  with_type(dtype, [&]<typename T>(T*) {
    T* __restrict to = reinterpret_cast<T*>(target);
    const T* __restrict from = reinterpret_cast<const T*>(source);
    for (std::size_t k = 0; k < count; ++k) {
      store(load(to[k]) + load(from[k]), to[k]);
    }
  });
}

void scale_elements(base::DType dtype, std::size_t count, std::byte* data, double factor) {
  with_type(dtype, [&]<typename T>(T*) {
    T* elements = reinterpret_cast<T*>(data);
    const auto f = static_cast<decltype(load(*elements))>(factor);
    for (std::size_t k = 0; k < count; ++k) {
      store(load(elements[k]) * f, elements[k]);
    }
  });
}

double sum_of_powers(base::DType dtype, std::size_t count, const std::byte* data, double power) {
  double result = 0;
  with_type(dtype, [&]<typename T>(T*) { result = powers(reinterpret_cast<const T*>(data), count, power); });
  return result;
}

double combine_powers(double a, double b, double power) {
  if (!std::isinf(power)) {
    return a + b;
  }
  return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b);
}

double norm_from_powers(double total, double power) {
  if (std::isinf(power) || power == 1) {
    return total;
  }
  return power == 2 ? std::sqrt(total) : std::pow(total, 1 / power);
}

}  // namespace maypole::pipeline
