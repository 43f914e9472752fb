// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/sessions.h"

#include "maypole/formats/number.h"
#include "maypole/net/hmac.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace maypole::daemon {

namespace {

constexpr std::size_t kMostKeys = 64;  // at once; the oldest give way
constexpr std::size_t kKeyBytes = 32;

std::string mac(const TokenRow& row, std::string_view what) {
  std::string text;
  for (const std::byte byte : net::hmac_sha256("maypole session " + row.digest, std::as_bytes(std::span(what)))) {
    text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  }
  return text;
}

}  // namespace

std::string Sessions::create_key(const std::string& token_name, double now_s) {
  std::string key = net::random_hex(kKeyBytes);
  keys_.push_back({token_digest(key), token_name, now_s + kKeySeconds});
  if (keys_.size() > kMostKeys) {
    keys_.pop_front();
  }
  return key;
}

std::string Sessions::open(std::string_view key, double now_s) {
  const std::string digest = token_digest(key);
  const auto found = std::ranges::find(keys_, digest, &Key::digest);
  if (found == keys_.end()) {
    return "";
  }
  const Key used = std::move(*found);
  keys_.erase(found);
  const TokenRow* row = access_->find_name(used.token_name);
  if (row == nullptr || now_s >= used.until_s) {
    return "";
  }
  const std::string what = fmt::format("{}.{}", row->name, static_cast<std::int64_t>(now_s + kSessionSeconds));
  return fmt::format("{}.{}", what, mac(*row, what));
}

const TokenRow* Sessions::find(std::string_view session, double now_s) const {
  const std::size_t before_mac = session.rfind('.');
  const std::size_t before_expiry = before_mac == std::string_view::npos ? before_mac : session.rfind('.', before_mac - 1);
  if (before_mac == std::string_view::npos || before_mac == 0 || before_expiry == std::string_view::npos) {
    return nullptr;
  }
  const std::string_view what = session.substr(0, before_mac);
  const std::string_view given = session.substr(before_mac + 1);
  const TokenRow* row = access_->find_name(what.substr(0, before_expiry));
  const std::optional<std::int64_t> expiry = formats::parse_integer(std::string(what.substr(before_expiry + 1)));
  if (row == nullptr || !expiry || now_s >= static_cast<double>(*expiry)) {
    return nullptr;
  }
  const std::string right = mac(*row, what);
  return net::equal_digests(std::as_bytes(std::span(right)), std::as_bytes(std::span(given))) ? row : nullptr;
}

}  // namespace maypole::daemon
