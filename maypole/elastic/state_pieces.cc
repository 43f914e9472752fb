// SPDX-License-Identifier: Apache-2.0
#include "maypole/elastic/state_pieces.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace maypole::elastic {

namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15ULL;  // 2^64 over the golden ratio

/// Every bit of `value` moves every bit of the result (splitmix64).
std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31U);
}

/// Both halves of the product with an odd number, in one: unlike the lower half alone, all of it moves with every bit of `value`.
std::uint64_t folded(std::uint64_t value) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(value) * kOdd;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}

}  // namespace

std::uint64_t digest_of(std::span<const std::byte> bytes) {
  constexpr std::size_t kLanes = 8;  // independent of each other, so that a multiplication need not wait for the one before
  constexpr std::size_t kStride = kLanes * sizeof(std::uint64_t);
  std::array<std::uint64_t, kLanes> lanes{};
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    lanes[lane] = mixed(lane + 1);
  }
  std::array<std::uint64_t, kLanes> words{};
  for (std::size_t at = 0; at < bytes.size(); at += kStride) {
    const std::size_t count = std::min(kStride, bytes.size() - at);
    words = count == kStride ? words : std::array<std::uint64_t, kLanes>{};
    std::memcpy(words.data(), bytes.data() + at, count);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = folded(lanes[lane] ^ words[lane]);
    }
  }
  std::uint64_t digest = mixed(bytes.size());
  for (const std::uint64_t lane : lanes) {
    digest = mixed(digest ^ lane) + kOdd;
  }
  return digest;
}

StatePieces::StatePieces(const std::vector<std::span<std::byte>>& parts, std::uint64_t layout) : layout_(layout) {
  for (const std::span<std::byte> part : parts) {
    for (std::size_t at = 0; at < part.size(); at += kPieceBytes) {
      pieces_.push_back(part.subspan(at, std::min(kPieceBytes, part.size() - at)));
    }
  }
}

}  // namespace maypole::elastic
