// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/base/dtype.h"

#include <cstddef>

namespace maypole::comm {

/// The arithmetic of one segment. All pointers hold `count` elements and need no alignment; `out` may be equal to `a` or `b`.
/// bfloat16 and float16 are added in float32 and rounded once (to nearest, ties to even).
struct ReduceKernels {
  /// out = a + b
  void (*add)(base::DType dtype, std::byte* out, const std::byte* a, const std::byte* b, std::size_t count);
  /// out = (a + b) * factor
  void (*add_scaled)(base::DType dtype, std::byte* out, const std::byte* a, const std::byte* b, std::size_t count, double factor);
  /// data *= factor
  void (*scale)(base::DType dtype, std::byte* data, std::size_t count, double factor);
  /// out = bfloat16(a), a in float32
  void (*compress)(std::byte* out, const std::byte* a, std::size_t count);
  /// out = float32(a), a in bfloat16
  void (*decompress)(std::byte* out, const std::byte* a, std::size_t count);
  /// out = bfloat16(float32(wire) + a): passes a partial sum on; out and wire in bfloat16, a in float32
  void (*add_compressed)(std::byte* out, const std::byte* wire, const std::byte* a, std::size_t count);
  /// out = (float32(wire) + a) * factor, in float32
  void (*add_decompressed)(std::byte* out, const std::byte* wire, const std::byte* a, std::size_t count, double factor);
};

/// The fastest kernels of this processor (AVX2 with F16C, or portable); chosen once.
/// AVX-512 gains nothing here: the sums are bound by memory.
[[nodiscard]] const ReduceKernels& reduce_kernels();
/// The portable kernels, for tests.
[[nodiscard]] const ReduceKernels& portable_reduce_kernels();

}  // namespace maypole::comm
