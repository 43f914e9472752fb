// SPDX-License-Identifier: Apache-2.0
// Peers that are silent, broken or strange, at the other end of a real link.
#include "maypole/comm/ring_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>

namespace maypole::comm {
namespace {

using ::testing::HasSubstr;

std::string text(const absl::Status& status) { return std::string(status.message().data(), status.message().size()); }

TEST(LivenessTest, ASilentPeerIsLostAfterTheLimitAndNamed) {
  auto ends = make_inproc_connections(2, InprocKind::kStream, {});
  ASSERT_TRUE(ends.ok());
  ProgressOptions options;
  options.silence = std::chrono::milliseconds(200);
  // The other end is connected but nobody runs it.
  const auto made = communicator_over(0, std::move((*ends)[0]), options);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(text(made.status()), HasSubstr("rank 1 (here) is lost: no sign of life"));
}

TEST(LivenessTest, ABusyCallerIsNotSilence) {
  ProgressOptions options;
  options.silence = std::chrono::milliseconds(200);
  auto ring = make_inproc_ring(2, InprocKind::kStream, options);
  ASSERT_TRUE(ring.ok());
  std::vector<float> ours(10, 1);
  const Work work = (*ring)[0]->all_reduce(reinterpret_cast<std::byte*>(ours.data()), ours.size(), base::DType::kFloat32, ReduceOp::kSum);
  // The peer's caller does nothing for five times the limit; its engine thread lives.
  EXPECT_EQ(work.wait_for(5 * options.silence).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE((*ring)[0]->status().ok());
  std::vector<float> theirs(10, 2);
  EXPECT_TRUE((*ring)[1]
                  ->all_reduce(reinterpret_cast<std::byte*>(theirs.data()), theirs.size(), base::DType::kFloat32, ReduceOp::kSum)
                  .wait()
                  .ok());
  EXPECT_TRUE(work.wait().ok());
  EXPECT_EQ(ours[9], 3);
}

TEST(LivenessTest, AnOperationThatStandsTooLongNamesWhoIsAwaited) {
  ProgressOptions options;
  options.silence = std::chrono::milliseconds(200);
  options.timeout = std::chrono::milliseconds(300);
  auto ring = make_inproc_ring(2, InprocKind::kSharedMemory, options);
  ASSERT_TRUE(ring.ok());
  std::vector<float> data(100000, 1);
  const absl::Status status =
      (*ring)[0]->all_reduce(reinterpret_cast<std::byte*>(data.data()), data.size(), base::DType::kFloat32, ReduceOp::kSum).wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(text(status), HasSubstr("rank 1"));
  EXPECT_THAT(text(status), HasSubstr("MAYPOLE_TIMEOUT"));
}

/// Answers rank 0's frames with `header` on the user lane.
absl::Status status_after_frame(FrameHeader header, std::size_t payload_bytes) {
  auto ends = make_inproc_connections(2, InprocKind::kStream, {});
  EXPECT_TRUE(ends.ok());
  const int socket = (*ends)[1].next[0].sockets[static_cast<std::size_t>(Lane::kUser)].get();
  std::vector<std::byte> frame(sizeof(header) + payload_bytes);
  std::memcpy(frame.data(), &header, sizeof(header));
  EXPECT_EQ(::send(socket, frame.data(), frame.size(), MSG_NOSIGNAL), static_cast<ssize_t>(frame.size()));
  ProgressOptions options;
  options.silence = std::chrono::seconds(1);
  return communicator_over(0, std::move((*ends)[0]), options).status();
}

TEST(LivenessTest, AFrameOfAnotherEpochIsRefused) {
  FrameHeader header;
  header.kind = FrameKind::kReduceScatter;
  header.epoch = 77;
  EXPECT_THAT(text(status_after_frame(header, 0)), HasSubstr("epoch 77"));
}

TEST(LivenessTest, AFrameLongerThanAnyIsRefusedBeforeItIsRead) {
  FrameHeader header;
  header.epoch = 1;
  header.bytes = 1U << 30;
  EXPECT_THAT(text(status_after_frame(header, 0)), HasSubstr("1073741824 bytes"));
}

TEST(LivenessTest, AnEpochsFrameOfAnotherOperationIsRefused) {
  FrameHeader header;
  header.kind = FrameKind::kReduceScatter;
  header.epoch = 1;
  header.check = 12345;
  EXPECT_THAT(text(status_after_frame(header, 0)), HasSubstr("disagrees"));
}

}  // namespace
}  // namespace maypole::comm
