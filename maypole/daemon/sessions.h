// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a browser becomes the holder of a token without ever seeing it: a link with a key that works once, and then a cookie.
//
// A session is its own proof: NAME.EXPIRY.MAC, the MAC by the digest of that token, which only the store knows. So sessions outlive the
// daemon, need no place to be kept, and end with their token.

#include "maypole/daemon/access.h"

#include <deque>
#include <string>
#include <string_view>

namespace maypole::daemon {

/// Borrows the tokens.
class Sessions {
 public:
  static constexpr double kKeySeconds = 600;
  static constexpr double kSessionSeconds = 7 * 86400.0;

  explicit Sessions(const Access& access) : access_(&access) {}

  /// A key that lets one browser in as the holder of that token, soon.
  [[nodiscard]] std::string create_key(const std::string& token_name, double now_s);
  /// The session that the key gives, for the only time; empty: the key was used, is too old, or never was.
  [[nodiscard]] std::string open(std::string_view key, double now_s);
  /// Whose session it is; null: nobody's.
  [[nodiscard]] const TokenRow* find(std::string_view session, double now_s) const;

 private:
  struct Key {
    std::string digest;
    std::string token_name;
    double until_s = 0;
  };

  const Access* access_;
  std::deque<Key> keys_;
};

}  // namespace maypole::daemon
