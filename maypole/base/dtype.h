// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace maypole::base {

/// Element types that collectives reduce. kByte is moved, never reduced (broadcast, all-gather of anything else).
enum class DType : std::uint8_t { kFloat32 = 0, kFloat64 = 1, kBFloat16 = 2, kFloat16 = 3, kByte = 4 };

[[nodiscard]] constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kFloat64:
      return 8;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kByte:
      return 1;
  }
  return 0;
}

[[nodiscard]] constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
    case DType::kByte:
      return "uint8";
  }
  return "?";
}

}  // namespace maypole::base
