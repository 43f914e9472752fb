// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/reduce_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace maypole::comm {
namespace {

using base::DType;

// Independent of the kernels: rounds to nearest even by searching the neighbours in double.
float nearest_bfloat16(double x) {
  const auto truncated = std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(x)) & 0xffff0000U);
  const auto other = std::bit_cast<float>(std::bit_cast<std::uint32_t>(truncated) + 0x10000U);
  const double below = std::abs(x - truncated);
  const double above = std::abs(other - x);
  if (below != above) {
    return below < above ? truncated : other;
  }
  return (std::bit_cast<std::uint32_t>(truncated) & 0x10000U) == 0 ? truncated : other;
}

class ReduceKernelsTest : public ::testing::TestWithParam<const ReduceKernels*> {};

TEST_P(ReduceKernelsTest, AddsEveryTypeAtEveryLength) {
  std::mt19937_64 rng(7);
  std::uniform_real_distribution<float> draw(-100, 100);
  for (std::size_t n : {0u, 1u, 7u, 8u, 9u, 31u, 1000u}) {
    std::vector<float> a(n);
    std::vector<float> b(n);
    std::vector<double> c(n);
    for (std::size_t i = 0; i < n; ++i) {
      a[i] = draw(rng);
      b[i] = draw(rng);
      c[i] = draw(rng);
    }
    std::vector<float> out(n);
    GetParam()->add(DType::kFloat32, reinterpret_cast<std::byte*>(out.data()), reinterpret_cast<std::byte*>(a.data()),
                    reinterpret_cast<std::byte*>(b.data()), n);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(out[i], a[i] + b[i]);
    }
    std::vector<double> sum = c;
    auto* in_place = reinterpret_cast<std::byte*>(sum.data());
    GetParam()->add_scaled(DType::kFloat64, in_place, in_place, reinterpret_cast<std::byte*>(c.data()), n, 0.25);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(sum[i], (c[i] + c[i]) * 0.25);
    }
  }
}

TEST_P(ReduceKernelsTest, BFloat16RoundsToNearestEven) {
  std::mt19937_64 rng(8);
  std::uniform_real_distribution<float> draw(-3, 3);
  constexpr std::size_t kCount = 1003;
  std::vector<float> values(kCount);
  for (float& value : values) {
    value = draw(rng);
  }
  values[0] = 1.0F + 0x1p-8F;      // a tie, to even
  values[1] = 1.0F + 3 * 0x1p-8F;  // a tie, upwards
  values[2] = -0.0F;
  std::vector<std::uint16_t> wire(kCount);
  std::vector<float> back(kCount);
  GetParam()->compress(reinterpret_cast<std::byte*>(wire.data()), reinterpret_cast<std::byte*>(values.data()), kCount);
  GetParam()->decompress(reinterpret_cast<std::byte*>(back.data()), reinterpret_cast<std::byte*>(wire.data()), kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(back[i], nearest_bfloat16(values[i])) << i;
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  GetParam()->compress(reinterpret_cast<std::byte*>(wire.data()), reinterpret_cast<const std::byte*>(&nan), 1);
  GetParam()->decompress(reinterpret_cast<std::byte*>(back.data()), reinterpret_cast<std::byte*>(wire.data()), 1);
  EXPECT_TRUE(std::isnan(back[0]));
}

TEST_P(ReduceKernelsTest, Float16SumsOfSmallIntegersAndSubnormalsAreExact) {
  // Half precision holds integers up to 2048; 0x0001 is the smallest subnormal.
  const std::vector<std::uint16_t> a{0x3c00, 0x4000, 0x0001, 0x7c00, 0x8000, 0x6400, 0x03ff, 0x3c00, 0xbc00, 0x0000};
  const std::vector<std::uint16_t> b{0x3c00, 0x4200, 0x0001, 0x3c00, 0x8000, 0x3c00, 0x0001, 0xbc00, 0xbc00, 0x0400};
  const std::vector<std::uint16_t> sum{0x4000, 0x4500, 0x0002, 0x7c00, 0x8000, 0x6401, 0x0400, 0x0000, 0xc000, 0x0400};
  std::vector<std::uint16_t> out(a.size());
  GetParam()->add(DType::kFloat16, reinterpret_cast<std::byte*>(out.data()), reinterpret_cast<const std::byte*>(a.data()),
                  reinterpret_cast<const std::byte*>(b.data()), a.size());
  EXPECT_EQ(out, sum);
}

TEST_P(ReduceKernelsTest, AgreesWithThePortableKernelsOnEveryPatternOfBits) {
  std::mt19937_64 rng(9);
  constexpr std::size_t kCount = 4099;
  std::vector<std::uint32_t> a(kCount);
  std::vector<std::uint32_t> b(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    a[i] = static_cast<std::uint32_t>(rng()) & 0xbfffbfffU;  // no infinities and NaN: their payload may differ
    b[i] = static_cast<std::uint32_t>(rng()) & 0xbfffbfffU;
  }
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    std::vector<std::uint32_t> x(kCount);
    std::vector<std::uint32_t> y(kCount);
    const std::size_t n = kCount * 4 / size_of(dtype);
    const auto* pa = reinterpret_cast<std::byte*>(a.data());
    const auto* pb = reinterpret_cast<std::byte*>(b.data());
    GetParam()->add_scaled(dtype, reinterpret_cast<std::byte*>(x.data()), pa, pb, n, 0.5);
    portable_reduce_kernels().add_scaled(dtype, reinterpret_cast<std::byte*>(y.data()), pa, pb, n, 0.5);
    EXPECT_EQ(x, y) << name_of(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReduceKernelsTest, ::testing::Values(&portable_reduce_kernels(), &reduce_kernels()),
                         [](const auto& info) { return info.index == 0 ? "Portable" : "Fastest"; });

}  // namespace
}  // namespace maypole::comm
