// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/access.h"

#include "maypole/base/status.h"
#include "maypole/net/hmac.h"

#include <algorithm>
#include <cctype>

namespace maypole::daemon {

std::string token_digest(std::string_view token) {
  // Tokens are 32 random bytes: nobody finds one from its digest, and equal digests mean equal tokens.
  const net::Digest digest = net::hmac_sha256("maypole token", std::as_bytes(std::span(token)));
  std::string text;
  for (const std::byte byte : digest) {
    text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  }
  return text;
}

absl::StatusOr<Access> Access::load(Store& store) {
  Access access(store);
  MAYPOLE_ASSIGN_OR_RETURN(const std::vector<TokenRow> rows, store.tokens());
  for (const TokenRow& row : rows) {
    access.by_digest_.emplace(row.digest, row);
  }
  return access;
}

const TokenRow* Access::find(std::string_view token) const {
  const auto found = by_digest_.find(token_digest(token));
  return token.empty() || found == by_digest_.end() ? nullptr : &found->second;
}

const TokenRow* Access::find_name(std::string_view name) const {
  const auto found = std::ranges::find_if(by_digest_, [&](const auto& each) { return each.second.name == name; });
  return found == by_digest_.end() ? nullptr : &found->second;
}

std::vector<TokenRow> Access::list() const {
  std::vector<TokenRow> rows;
  for (const auto& [digest, row] : by_digest_) {
    rows.push_back(row);
  }
  std::ranges::sort(rows, {}, &TokenRow::name);
  return rows;
}

absl::StatusOr<std::string> Access::create(const std::string& name, Role role, double now_s) {
  const bool plain = std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; });
  constexpr std::size_t kLongest = 64;
  if (name.empty() || name.size() > kLongest || !plain) {
    return base::error(absl::StatusCode::kInvalidArgument, "name: '{}' is no name of a token: use letters, digits, - _ . (at most {})",
                       name, kLongest);
  }
  if (std::ranges::any_of(by_digest_, [&](const auto& each) { return each.second.name == name; })) {
    return base::error(absl::StatusCode::kInvalidArgument, "name: there is a token '{}' already: revoke it first, or use another name",
                       name);
  }
  std::string token = net::random_hex(32);
  const TokenRow row{name, role, token_digest(token), now_s};
  MAYPOLE_RETURN_IF_ERROR(store_->add_token(row));
  by_digest_.emplace(row.digest, row);
  return token;
}

absl::Status Access::revoke(const std::string& name) {
  const auto found = std::ranges::find_if(by_digest_, [&](const auto& each) { return each.second.name == name; });
  if (found == by_digest_.end()) {
    return base::error(absl::StatusCode::kNotFound, "there is no token '{}'", name);
  }
  const bool another =
      std::ranges::any_of(by_digest_, [&](const auto& each) { return each.second.role == Role::kAdmin && each.second.name != name; });
  if (!another) {
    return base::error(absl::StatusCode::kFailedPrecondition, "'{}' is the last token of an admin: create another one first", name);
  }
  MAYPOLE_RETURN_IF_ERROR(store_->remove_token(name));
  by_digest_.erase(found);
  return absl::OkStatus();
}

}  // namespace maypole::daemon
