// SPDX-License-Identifier: Apache-2.0
#pragma once

// The state of a worker as memory, cut into pieces that are fetched, checked, and left out where both ends hold the same.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace maypole::elastic {

/// 64 bits that depend on every bit and its place. It finds damage and tells equal pieces from others; it does not withstand who forges.
[[nodiscard]] std::uint64_t digest_of(std::span<const std::byte> bytes);

class StatePieces {
 public:
  /// `parts`: what the state is made of, in an order that both ends have. `layout`: says what they are; equal on both ends.
  StatePieces(const std::vector<std::span<std::byte>>& parts, std::uint64_t layout);

  [[nodiscard]] std::size_t size() const { return pieces_.size(); }
  [[nodiscard]] std::span<std::byte> operator[](std::size_t index) const { return pieces_[index]; }
  [[nodiscard]] std::uint64_t layout() const { return layout_; }

 private:
  std::vector<std::span<std::byte>> pieces_;
  std::uint64_t layout_;
};

// --- what goes over the wire, in host byte order: the proof of the secret has shown that both machines have the same ---

/// First from the source.
struct PiecesOffer {
  std::uint64_t layout = 0;
  std::uint64_t num_pieces = 0;
};
struct PieceRequest {
  std::uint64_t index = 0;
  std::uint64_t digest = 0;  // of what is there already
};
struct PieceAnswer {
  std::uint64_t index = 0;
  std::uint64_t digest = 0;
  std::uint64_t bytes = 0;  // that follow: the whole piece, or none where the digests are equal
};

}  // namespace maypole::elastic
