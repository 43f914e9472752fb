// SPDX-License-Identifier: Apache-2.0
#pragma once

// Randomness that repeats from a seed on every machine: the standard fixes the bits of mt19937_64 but not those of its
// distributions, so these are ours.

#include <cstdint>
#include <random>
#include <string_view>

namespace maypole::base {

/// A stream of random numbers. Not thread-safe; pass it by reference, one owner.
class Rng {
 public:
  /// Different `stream` names give independent streams of the same seed (FNV-1a of the name is mixed in).
  explicit Rng(std::uint64_t seed, std::string_view stream = "");

  [[nodiscard]] std::uint64_t bits() { return engine_(); }
  /// Uniform in [0, 1), 53 bits.
  [[nodiscard]] double uniform() { return static_cast<double>(engine_() >> 11) * 0x1.0p-53; }
  /// Uniform in [low, high).
  [[nodiscard]] double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Uniform over the integers low..high, both included; high >= low. Unbiased (rejection).
  [[nodiscard]] std::int64_t uniform_int(std::int64_t low, std::int64_t high);
  /// Exponential with the given mean.
  [[nodiscard]] double exponential(double mean);

 private:
  std::mt19937_64 engine_;
};

}  // namespace maypole::base
