// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernels' bodies, compiled once for each instruction set: each .cc that includes this file is built with its own flags, and
// everything here has internal linkage, so that no copy built for a newer processor can be picked by the linker for an older one.

#include "maypole/comm/reduce_kernels.h"

#include <bit>
#include <cstdint>
#include <cstring>

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace maypole::comm {
namespace {

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

inline float to_float(BFloat16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

inline BFloat16 to_bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40U;
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return {static_cast<std::uint16_t>(is_nan ? quiet_nan : rounded)};
}

#ifdef __F16C__
inline float to_float(Float16 x) { return _cvtsh_ss(x.bits); }
inline Float16 to_float16(float x) { return {static_cast<std::uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT))}; }
#else
inline float to_float(Float16 x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (x.bits >> 10) & 0x1fU;
  const std::uint32_t fraction = x.bits & 0x3ffU;
  if (exponent == 0) {  // zero and subnormal: fraction * 2^-24 is exact in float
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 31 ? 0xffU : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}
inline Float16 to_float16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    return {static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU))};
  }
  if (magnitude >= 0x47800000U) {  // 2^16 and above
    return {static_cast<std::uint16_t>(sign | 0x7c00U)};
  }
  if (magnitude < 0x38800000U) {  // below 2^-14: subnormal; adding 0.5 leaves the rounded fraction in the low bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U))};
  }
  const std::uint32_t rounded = magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U);
  return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
}
#endif

inline float to_float(float x) { return x; }
inline double to_float(double x) { return x; }

template <typename T>
struct Rounded;
template <>
struct Rounded<float> {
  static float from(float x) { return x; }
};
template <>
struct Rounded<double> {
  static double from(double x) { return x; }
};
template <>
struct Rounded<BFloat16> {
  static BFloat16 from(float x) { return to_bfloat16(x); }
};
template <>
struct Rounded<Float16> {
  static Float16 from(float x) { return to_float16(x); }
};

/// Element access without alignment or aliasing assumptions; compiles to plain vector loads and stores.
template <typename T>
inline T load(const std::byte* data, std::size_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
inline void store(std::byte* data, std::size_t i, T value) {
  std::memcpy(data + i * sizeof(T), &value, sizeof(T));
}

// `out` equals `a`, equals `b`, or overlaps neither, so iterations are independent.
#define MAYPOLE_INDEPENDENT _Pragma("GCC ivdep")

template <typename T>
void add_all(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count) {
  MAYPOLE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    store(out, i, Rounded<T>::from(to_float(load<T>(a, i)) + to_float(load<T>(b, i))));
  }
}

template <typename T>
void add_scaled_all(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count, double factor) {
  const auto f = static_cast<decltype(to_float(T{}))>(factor);
  MAYPOLE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    store(out, i, Rounded<T>::from((to_float(load<T>(a, i)) + to_float(load<T>(b, i))) * f));
  }
}

template <typename T>
void scale_all(std::byte* data, std::size_t count, double factor) {
  const auto f = static_cast<decltype(to_float(T{}))>(factor);
  MAYPOLE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    store(data, i, Rounded<T>::from(to_float(load<T>(data, i)) * f));
  }
}

#ifdef __F16C__
template <>
void add_all<Float16>(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i * 2)));
    const __m256 y = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + i * 2)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * 2), _mm256_cvtps_ph(_mm256_add_ps(x, y), _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < count; ++i) {
    store(out, i, to_float16(to_float(load<Float16>(a, i)) + to_float(load<Float16>(b, i))));
  }
}
#endif

/// Calls `f` with a value of the dtype's element type. kByte is never reduced.
template <typename F>
void dispatch(base::DType dtype, F&& f) {
  switch (dtype) {
    case base::DType::kFloat32:
      f(float{});
      return;
    case base::DType::kFloat64:
      f(double{});
      return;
    case base::DType::kBFloat16:
      f(BFloat16{});
      return;
    case base::DType::kFloat16:
      f(Float16{});
      return;
    case base::DType::kByte:
      return;
  }
}

void add(base::DType dtype, std::byte* out, const std::byte* a, const std::byte* b, std::size_t count) {
  dispatch(dtype, [&]<typename T>(T) { add_all<T>(out, a, b, count); });
}

void add_scaled(base::DType dtype, std::byte* out, const std::byte* a, const std::byte* b, std::size_t count, double factor) {
  dispatch(dtype, [&]<typename T>(T) { add_scaled_all<T>(out, a, b, count, factor); });
}

void scale(base::DType dtype, std::byte* data, std::size_t count, double factor) {
  dispatch(dtype, [&]<typename T>(T) { scale_all<T>(data, count, factor); });
}

void compress(std::byte* out, const std::byte* a, std::size_t count) {
  MAYPOLE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    store(out, i, to_bfloat16(load<float>(a, i)));
  }
}

void decompress(std::byte* out, const std::byte* a, std::size_t count) {
  MAYPOLE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    store(out, i, to_float(load<BFloat16>(a, i)));
  }
}

void add_compressed(std::byte* out, const std::byte* wire, const std::byte* a, std::size_t count) {
  MAYPOLE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    store(out, i, to_bfloat16(to_float(load<BFloat16>(wire, i)) + load<float>(a, i)));
  }
}

void add_decompressed(std::byte* out, const std::byte* wire, const std::byte* a, std::size_t count, double factor) {
  const auto f = static_cast<float>(factor);
  MAYPOLE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    store(out, i, (to_float(load<BFloat16>(wire, i)) + load<float>(a, i)) * f);
  }
}

constexpr ReduceKernels kKernels{add, add_scaled, scale, compress, decompress, add_compressed, add_decompressed};

}  // namespace
}  // namespace maypole::comm
