// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/event_log.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::daemon {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

/// The id of the last event in a text.
std::string last_id(const std::string& text) {
  const std::size_t at = text.rfind("id: ") + 4;
  return text.substr(at, text.find('\n', at) - at);
}

TEST(EventLogTest, AReaderGoesOnBehindTheEventThatItHasSeenLast) {
  EventLog log;
  const EventLog::Start start = log.start("");
  EXPECT_THAT(start.text, HasSubstr("event: start\ndata: {}\n\n"));
  log.append("job", "{\"id\": \"1\"}");
  const auto first = log.read(start.next, 1000);
  ASSERT_TRUE(first);
  EXPECT_THAT(first->text, EndsWith("event: job\ndata: {\"id\": \"1\"}\n\n"));
  log.append("job", "{\"id\": \"2\"}");
  const EventLog::Start again = log.start(last_id(first->text));
  EXPECT_THAT(again.text, Not(HasSubstr("event: start")));
  const auto second = log.read(again.next, 1000);
  ASSERT_TRUE(second);
  EXPECT_THAT(second->text, HasSubstr("\"2\""));
  EXPECT_THAT(second->text, Not(HasSubstr("\"1\"")));
}

TEST(EventLogTest, TheIdOfTheStartIsOneToGoOnFrom) {
  EventLog log;
  log.append("job", "old");
  const EventLog::Start start = log.start("");
  log.append("job", "new");
  const EventLog::Start again = log.start(last_id(start.text));
  EXPECT_EQ(again.next, start.next);
  EXPECT_THAT(again.text, Not(HasSubstr("event: start")));
}

TEST(EventLogTest, AnIdOfAnotherLifeOrNoIdAtAllBeginsAnew) {
  EventLog log;
  EventLog other;
  log.append("job", "x");
  for (const std::string& id : {last_id(other.start("").text), std::string("7"), std::string("-1"), last_id(log.start("").text) + "9"}) {
    EXPECT_THAT(log.start(id).text, HasSubstr("event: start")) << id;
  }
}

TEST(EventLogTest, KeepsSoMuchAndAReaderBehindItHasLostItsPlace) {
  for (const EventLimits& limits : {EventLimits{.count = 3}, EventLimits{.bytes = 150}}) {
    EventLog log(limits);
    const EventLog::Start start = log.start("");
    std::string seen;
    for (int i = 0; i < 10; ++i) {
      log.append("job", fmt::format("{}", i));
      seen = i == 0 ? log.read(start.next, 1)->text : seen;
    }
    EXPECT_FALSE(log.read(start.next, 1000));
    EXPECT_THAT(log.start(last_id(seen)).text, HasSubstr("event: start"));
    EXPECT_THAT(log.start("").text, HasSubstr("-10\n"));
  }
}

TEST(EventLogTest, APartIsOfWholeEvents) {
  EventLog log;
  const EventLog::Start start = log.start("");
  for (int i = 0; i < 10; ++i) {
    log.append("job", "0123456789");
  }
  std::uint64_t next = start.next;
  int parts = 0;
  for (auto part = log.read(next, 50); !part->text.empty(); part = log.read(next, 50)) {
    EXPECT_THAT(part->text, EndsWith("\n\n"));
    next = part->next;
    ++parts;
  }
  EXPECT_EQ(next, start.next + 10);
  EXPECT_GT(parts, 3);
}

}  // namespace
}  // namespace maypole::daemon
