// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/shared_region.h"

#include "maypole/base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

namespace maypole::comm {
namespace {

constexpr std::size_t kSegment = 4096;

TEST(SegmentPool, GivesEachSegmentOnceUntilItIsReleased) {
  SegmentPool pool(kSegment, [](std::size_t bytes) { return SharedRegion::create(bytes, 1, true); });
  std::set<std::byte*> given;
  for (int i = 0; i < 40; ++i) {
    given.insert(pool.acquire());
  }
  EXPECT_EQ(given.size(), 40u);
  EXPECT_EQ(pool.in_use(), 40u);
  for (std::byte* segment : given) {
    pool.release(segment);
  }
  EXPECT_EQ(pool.in_use(), 0u);
  EXPECT_TRUE(pool.failure().ok());
}

TEST(SegmentPool, WithoutMemoryToShareGivesPrivateMemoryAndSaysWhy) {
  SegmentPool pool(kSegment, [](std::size_t) -> absl::StatusOr<std::shared_ptr<SharedRegion>> {
    return base::errno_error(EMFILE, "cannot make shared memory");
  });
  std::byte* segment = pool.acquire();
  segment[kSegment - 1] = std::byte{1};
  EXPECT_EQ(base::message(pool.failure()), "cannot make shared memory: Too many open files; raise the limit, as `ulimit -n 1024` does");
}

}  // namespace
}  // namespace maypole::comm
