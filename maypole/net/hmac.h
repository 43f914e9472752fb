// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace maypole::net {

inline constexpr std::size_t kDigestSize = 32;
using Digest = std::array<std::byte, kDigestSize>;

/// HMAC-SHA256 of `data` under `key`; an empty key is allowed.
[[nodiscard]] Digest hmac_sha256(std::string_view key, std::span<const std::byte> data);

/// Compares in a time that does not depend on where the two differ.
[[nodiscard]] bool equal_digests(std::span<const std::byte> a, std::span<const std::byte> b);

/// 32 bytes that nobody can guess, from the kernel.
[[nodiscard]] Digest random_nonce();

/// `num_bytes` (at most 32) unguessable bytes as lower-case hexadecimal digits.
[[nodiscard]] std::string random_hex(std::size_t num_bytes);

}  // namespace maypole::net
