// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::cli {
namespace {

TEST(Messages, ArriveWholeHoweverTheStreamIsCut) {
  const std::string stream = encode_message(MessageKind::kDone, "") + encode_worker_bytes(MessageKind::kOutput, 7, "hello") +
                             encode_message(MessageKind::kError, std::string(1000, 'e'));
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    MessageReader reader;
    std::vector<Message> got;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      reader.append(std::string_view(stream).substr(at, step));
      while (true) {
        auto message = reader.next();
        ASSERT_TRUE(message.ok());
        if (!message->has_value()) {
          break;
        }
        got.push_back(**message);
      }
    }
    ASSERT_EQ(got.size(), 3U) << step;
    EXPECT_EQ(got[0].kind, MessageKind::kDone);
    const auto part = decode_worker_bytes(got[1]);
    ASSERT_TRUE(part.ok());
    EXPECT_EQ(part->rank, 7);
    EXPECT_EQ(part->bytes, "hello");
    EXPECT_EQ(got[2].body.size(), 1000U);
  }
}

TEST(Messages, ShowTextThatIsNotOurs) {
  MessageReader reader;
  reader.append("Welcome to s1!\n");
  EXPECT_THAT(std::string(reader.next().status().message()), testing::HasSubstr("'Welcome to s1! '"));
}

TEST(Messages, CarryArgumentsThatAreNotUtf8) {
  JobSpec spec;
  spec.command = {"echo", "caf\xe9", "\xff\xfe", "gr\xc3\xbc\xc3\x9f", "a\"b\\c\n"};
  spec.environment = {{"NAME\x80", "value\xc2"}};
  spec.num_workers = 3;
  const auto read = from_json<JobSpec>(to_json(spec));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->command, spec.command);
  EXPECT_EQ(read->environment, spec.environment);
  EXPECT_EQ(read->num_workers, 3);
}

TEST(Messages, RefuseABodyThatIsNotTheExpectedJson) {
  EXPECT_FALSE(from_json<WorkerExit>("{").ok());
  EXPECT_FALSE(from_json<WorkerExit>("{\"rank\": 1}").ok());
}

}  // namespace
}  // namespace maypole::cli
