// SPDX-License-Identifier: Apache-2.0
#pragma once

// bfloat16 and float16 as element types of loops: widened to float32, rounded once (to nearest, ties to even) on the way back.

#include <bit>
#include <cstdint>

namespace maypole::pipeline {

struct BFloat16 {
  std::uint16_t bits = 0;
};

[[gnu::always_inline]] inline float widen(BFloat16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }
[[gnu::always_inline]] inline float widen(_Float16 value) { return static_cast<float>(value); }

[[gnu::always_inline]] inline void narrow(float value, BFloat16& out) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  out.bits = static_cast<std::uint16_t>(is_nan ? 0x7fc0u : rounded);
}
[[gnu::always_inline]] inline void narrow(float value, _Float16& out) { out = static_cast<_Float16>(value); }

}  // namespace maypole::pipeline
