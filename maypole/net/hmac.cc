// SPDX-License-Identifier: Apache-2.0
#include "maypole/net/hmac.h"

#include "maypole/base/check.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>

namespace maypole::net {

Digest hmac_sha256(std::string_view key, std::span<const std::byte> data) {
  Digest digest{};
  unsigned int size = 0;
  const char* key_bytes = key.empty() ? "" : key.data();  // a null key would mean "the key used before"
  const unsigned char* made =
      ::HMAC(::EVP_sha256(), key_bytes, static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(data.data()), data.size(),
             reinterpret_cast<unsigned char*>(digest.data()), &size);
  MAYPOLE_CHECK(made != nullptr);
  MAYPOLE_CHECK_EQ(size, kDigestSize);
  return digest;
}

bool equal_digests(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Digest random_nonce() {
  Digest nonce{};
  ssize_t filled = -1;
  do {
    filled = ::getrandom(nonce.data(), nonce.size(), 0);  // requests up to 256 bytes are never cut short once the pool is ready
  } while (filled < 0 && errno == EINTR);
  MAYPOLE_CHECK_EQ(filled, static_cast<ssize_t>(nonce.size()));
  return nonce;
}

std::string random_hex(std::size_t num_bytes) {
  MAYPOLE_CHECK_LE(num_bytes, kDigestSize);
  const Digest nonce = random_nonce();
  std::string text;
  for (std::size_t i = 0; i < num_bytes; ++i) {
    text += fmt::format("{:02x}", std::to_integer<unsigned>(nonce[i]));
  }
  return text;
}

}  // namespace maypole::net
