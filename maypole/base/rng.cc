// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/rng.h"

#include "maypole/base/check.h"

#include <cmath>

namespace maypole::base {

namespace {

std::uint64_t mixed(std::uint64_t seed, std::string_view stream) {
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a, 64 bits
  for (const char c : stream) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  return seed ^ (stream.empty() ? 0 : hash);
}

}  // namespace

Rng::Rng(std::uint64_t seed, std::string_view stream) : engine_(mixed(seed, stream)) {}

std::int64_t Rng::uniform_int(std::int64_t low, std::int64_t high) {
  MAYPOLE_CHECK_LE(low, high);
  const std::uint64_t count = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
  if (count == 0) {  // all 64-bit integers
    return static_cast<std::int64_t>(engine_());
  }
  const std::uint64_t rejected = (0 - count) % count;  // the 2^64 mod count lowest draws would come up once too often
  std::uint64_t drawn = engine_();
  while (drawn < rejected) {
    drawn = engine_();
  }
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + drawn % count);
}

double Rng::exponential(double mean) { return -mean * std::log1p(-uniform()); }

}  // namespace maypole::base
