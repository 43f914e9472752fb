// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the tests of this folder share: small clusters, and the real traces.

#include "maypole/model/cluster.h"
#include "maypole/model/status_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace maypole::formats {

using model::FailsWith;

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
