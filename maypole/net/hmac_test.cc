// SPDX-License-Identifier: Apache-2.0
#include "maypole/net/hmac.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace maypole::net {
namespace {

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) {
    text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  }
  return text;
}

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(HmacTest, AgreesWithThePublishedVectors) {  // RFC 4231, cases 1, 2 and 6
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), bytes("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", bytes("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'), bytes("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(HmacTest, AnEmptyKeyIsAKeyOfItsOwn) {
  EXPECT_EQ(hex(hmac_sha256("", bytes(""))), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
  [[maybe_unused]] const Digest other = hmac_sha256("a key", bytes(""));
  EXPECT_EQ(hex(hmac_sha256("", bytes(""))), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(HmacTest, NoncesDifferAndDigestsCompare) {
  const Digest nonce = random_nonce();
  EXPECT_TRUE(equal_digests(nonce, nonce));
  EXPECT_FALSE(equal_digests(nonce, random_nonce()));
  EXPECT_FALSE(equal_digests(nonce, std::span(nonce).first(31)));
  EXPECT_EQ(random_hex(16).size(), 32u);
  EXPECT_NE(random_hex(16), random_hex(16));
}

}  // namespace
}  // namespace maypole::net
