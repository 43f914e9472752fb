// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who may do what: tokens with roles. The daemon's own user runs all jobs, so roles keep clients apart and not the code of jobs.

#include "maypole/daemon/store.h"

#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace maypole::daemon {

/// What the store keeps of a token.
[[nodiscard]] std::string token_digest(std::string_view token);

/// The tokens of a store. Borrows it.
class Access {
 public:
  [[nodiscard]] static absl::StatusOr<Access> load(Store& store);

  /// Null: a stranger.
  [[nodiscard]] const TokenRow* find(std::string_view token) const;
  /// Null: there is no token of that name.
  [[nodiscard]] const TokenRow* find_name(std::string_view name) const;
  /// By name.
  [[nodiscard]] std::vector<TokenRow> list() const;
  /// Makes a token and returns it, for the only time. Errors (kInvalidArgument): the name is empty, has other signs than letters, digits,
  /// - _ . or is taken; of the store.
  [[nodiscard]] absl::StatusOr<std::string> create(const std::string& name, Role role, double now_s);
  /// Errors: kNotFound; kFailedPrecondition: the last admin's token stays.
  [[nodiscard]] absl::Status revoke(const std::string& name);

 private:
  explicit Access(Store& store) : store_(&store) {}
  Store* store_;
  std::unordered_map<std::string, TokenRow> by_digest_;
};

}  // namespace maypole::daemon
