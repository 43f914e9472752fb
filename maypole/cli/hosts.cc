// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/hosts.h"

#include "maypole/base/status.h"
#include "maypole/net/machine.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <set>

namespace maypole::cli {

namespace {

constexpr std::string_view kForm = "write name:slots or name=address:slots, an IPv6 address in brackets";

bool is_name(std::string_view text) {
  return !text.empty() && text.front() != '-' && std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr("._-@%", c) != nullptr;
  });
}

/// Takes a host name or number, or `[v6]`, which comes back without its brackets; empty when it is neither.
std::string parse_address(std::string_view text) {
  if (text.size() > 2 && text.front() == '[' && text.back() == ']') {
    text = text.substr(1, text.size() - 2);
    const bool numbers =
        std::ranges::all_of(text, [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0 || c == ':' || c == '.'; });
    const std::string_view number = text.substr(0, text.find('%'));  // a scope may follow: fe80::1%eth0
    const bool scoped = number.size() != text.size() && is_name(text.substr(number.size() + 1));
    return numbers || scoped ? std::string(text) : "";
  }
  return is_name(text) ? std::string(text) : "";
}

absl::StatusOr<HostEntry> parse_entry(std::string_view text) {
  const auto wrong = [&](std::string_view what) {
    return base::error(absl::StatusCode::kInvalidArgument, "entry '{}' {}: {}", text, what, kForm);
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || text.back() == ']') {
    return wrong("has no number of slots");
  }
  HostEntry entry;
  const std::string_view slots = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(slots.data(), slots.data() + slots.size(), entry.slots);
  if (error != std::errc() || end != slots.data() + slots.size() || entry.slots < 1) {
    return wrong("needs a whole number of slots, 1 or more");
  }
  const std::string_view place = text.substr(0, colon);
  const std::size_t equals = place.find('=');
  const std::string_view name = place.substr(0, equals);
  if (!is_name(name)) {
    return wrong("has no proper host name");
  }
  entry.name = std::string(name);
  if (equals != std::string_view::npos) {
    entry.address = parse_address(place.substr(equals + 1));
    if (entry.address.empty()) {
      return wrong("has no proper address after '='");
    }
  }
  return entry;
}

}  // namespace

absl::StatusOr<std::vector<HostEntry>> parse_hosts(std::string_view text) {
  std::vector<HostEntry> hosts;
  std::set<std::string> names;
  while (true) {
    const std::size_t comma = text.find(',');
    MAYPOLE_ASSIGN_OR_RETURN(HostEntry entry, parse_entry(text.substr(0, comma)));
    if (!names.insert(entry.name).second) {
      return base::error(absl::StatusCode::kInvalidArgument, "host '{}' is listed twice: give it all its slots in one entry", entry.name);
    }
    hosts.push_back(std::move(entry));
    if (comma == std::string_view::npos) {
      return hosts;
    }
    text.remove_prefix(comma + 1);
  }
}

absl::StatusOr<std::vector<HostWorkers>> place_workers(const std::vector<HostEntry>& hosts, int num_workers) {
  if (hosts.empty()) {
    const int count = std::max(1, num_workers);
    return std::vector<HostWorkers>{{HostEntry{"localhost", "", count}, 0, count}};
  }
  int slots = 0;
  for (const HostEntry& host : hosts) {
    slots += host.slots;
  }
  if (num_workers > slots) {
    return base::error(absl::StatusCode::kInvalidArgument, "-n asks for {} workers and --hosts has {} slots: lower -n or add slots",
                       num_workers, slots);
  }
  int left = num_workers == 0 ? slots : num_workers;
  int rank = 0;
  std::vector<HostWorkers> placed;
  for (const HostEntry& host : hosts) {
    const int here = std::min(left, host.slots);
    if (here > 0) {
      placed.push_back({host, rank, here});
    }
    rank += here;
    left -= here;
  }
  return placed;
}

bool is_loopback(std::string_view address) { return address == "localhost" || address == "::1" || address.starts_with("127."); }

bool is_this_machine(const HostEntry& host) { return is_loopback(host.name) || is_loopback(host.address) || host.name == net::host_name(); }

}  // namespace maypole::cli
