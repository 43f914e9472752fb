// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the tests of this folder share: a matcher for error sentences, small clusters, and the real traces.

#include "maypole/base/status.h"
#include "maypole/formats/cluster_file.h"

#include <absl/status/statusor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace maypole::formats {

// NOLINTNEXTLINE(readability-identifier-naming): reads like gmock's own matchers
MATCHER_P(FailsWith, sentence, "") {
  if (arg.ok()) {
    *result_listener << "is no error";
    return false;
  }
  const std::string text = base::message(arg.status());
  *result_listener << "says: " << text;
  return ::testing::ExplainMatchResult(::testing::HasSubstr(sentence), text, result_listener);
}

/// A cluster of `servers` with 8 GPUs each and no links.
inline model::Cluster plain_cluster(int servers, double gpus = 8) {
  model::ClusterParts parts;
  parts.resources = {"gpu"};
  for (int i = 0; i < servers; ++i) {
    model::Server server;
    server.id = "s" + std::to_string(i);
    server.capacity.assign(1, gpus);
    parts.servers.push_back(server);
  }
  return model::Cluster::make(std::move(parts)).value();
}

/// The folder of real traces: $MAYPOLE_TRACES, else ../shared/traces beside the source tree; empty where neither is there.
inline std::string traces() {
  const char* named = std::getenv("MAYPOLE_TRACES");  // NOLINT(concurrency-mt-unsafe): tests have one thread
  const std::string beside = std::string(MAYPOLE_SOURCE_DIR) + "/../shared/traces";
  const std::string folder = named != nullptr && *named != '\0' ? named : beside;
  return std::filesystem::is_directory(folder) ? folder : "";
}

/// Skips the test by name where `name` is not among the real traces.
#define MAYPOLE_NEED_TRACE(name)                                                                                       \
  if (::maypole::formats::traces().empty() || !std::filesystem::exists(::maypole::formats::traces() + "/" + (name))) { \
    GTEST_SKIP() << "no trace " << (name) << ": set MAYPOLE_TRACES to the folder that holds it";                       \
  }

}  // namespace maypole::formats
