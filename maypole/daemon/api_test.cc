// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/api.h"

#include "maypole/daemon/api_testing.h"
#include "maypole/daemon/suggestion.h"
#include "maypole/formats/document.h"
#include "maypole/formats/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

namespace maypole::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

const formats::Node* field(const formats::Node& node, std::string_view name) {
  for (const formats::Field& field : node.fields) {
    if (field.name == name) {
      return &field.value;
    }
  }
  return nullptr;
}

class ApiTest : public ::testing::Test {
 protected:
  FakeDaemon daemon_;
};

TEST_F(ApiTest, IsWhatItsOpenApiFileSays) {
  const auto text = formats::read_text_file(std::string(MAYPOLE_SOURCE_DIR) + "/docs/openapi.json");
  ASSERT_TRUE(text.ok());
  const auto document = formats::parse_json(*text, "openapi.json");
  ASSERT_TRUE(document.ok()) << document.status();
  std::set<std::string> described;
  for (const formats::Field& path : field(*document, "paths")->fields) {
    for (const formats::Field& method : path.value.fields) {
      if (method.name != "parameters") {
        std::string upper = method.name;
        std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
        described.insert(upper + " " + path.name);
      }
    }
  }
  std::set<std::string> served;
  for (const Route& route : Api::routes()) {
    served.insert(route.method + " " + route.path);
  }
  EXPECT_EQ(described, served);

  ASSERT_EQ(daemon_.submit().status, 201);
  const auto job = formats::parse_json(daemon_.ask("GET", "/v1/jobs/1").body, "job");
  ASSERT_TRUE(job.ok());
  const formats::Node* schema = field(*field(*field(*document, "components"), "schemas"), "Job");
  std::vector<std::string> promised;
  for (const formats::Field& property : field(*schema, "properties")->fields) {
    promised.push_back(property.name);
  }
  std::vector<std::string> sent;
  for (const formats::Field& property : job->fields) {
    sent.push_back(property.name);
  }
  EXPECT_EQ(sent, promised);
}

TEST_F(ApiTest, NothingIsServedToAStranger) {
  for (const Route& route : Api::routes()) {
    for (const char* token : {"", "guess"}) {
      const Response response = daemon_.ask(route.method, route.path, "", token);
      EXPECT_EQ(response.status, 401) << route.method << " " << route.path;
    }
  }
}

TEST_F(ApiTest, AUserMayDoNothingThatIsForAdmins) {
  int checked = 0;
  for (const Route& route : Api::routes()) {
    if (route.role == Role::kAdmin) {
      EXPECT_EQ(daemon_.ask(route.method, route.path, "", daemon_.user).status, 403) << route.path;
      ++checked;
    }
  }
  EXPECT_EQ(checked, 6);
}

TEST_F(ApiTest, AUserCancelsOnlyTheirOwnJobs) {
  ASSERT_EQ(daemon_.submit().status, 201);
  ASSERT_EQ(daemon_.submit(daemon_.user).status, 201);
  EXPECT_EQ(daemon_.ask("POST", "/v1/jobs/1/cancel", "", daemon_.user).status, 403);
  EXPECT_EQ(daemon_.ask("POST", "/v1/jobs/2/cancel", "", daemon_.user).status, 200);
  EXPECT_EQ(daemon_.ask("POST", "/v1/jobs/2/cancel", "", daemon_.user).status, 409);
  EXPECT_EQ(daemon_.ask("POST", "/v1/jobs/1/cancel").status, 200);
}

TEST_F(ApiTest, ANameMeansTheYoungestJobThatHasNotEnded) {
  ASSERT_EQ(daemon_.submit().status, 201);
  ASSERT_EQ(daemon_.submit().status, 201);
  ASSERT_EQ(daemon_.submit().status, 201);
  ASSERT_EQ(daemon_.ask("POST", "/v1/jobs/3/cancel").status, 200);
  EXPECT_THAT(daemon_.ask("GET", "/v1/jobs/digits").body, HasSubstr("\"id\": \"2\""));
  const Response wrong = daemon_.ask("GET", "/v1/jobs/digist");
  EXPECT_EQ(wrong.status, 404);
  EXPECT_THAT(wrong.body, HasSubstr("did you mean 'digits'?"));
}

TEST_F(ApiTest, JobsAreListedByStateAndUpToALimit) {
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(daemon_.submit().status, 201);
  }
  ASSERT_EQ(daemon_.ask("POST", "/v1/jobs/1/cancel").status, 200);
  const auto ids = [&](const std::string& query) {
    const auto answer = formats::parse_json(daemon_.ask("GET", "/v1/jobs" + query).body, "answer");
    EXPECT_TRUE(answer.ok());
    std::string found;
    for (const formats::Node& job : field(*answer, "jobs")->items) {
      found += field(job, "id")->text;
    }
    return found + " " + field(*answer, "left_out")->text;
  };
  EXPECT_EQ(ids(""), "1234 0");
  EXPECT_EQ(ids("?state=active"), "234 0");
  EXPECT_EQ(ids("?state=cancelled"), "1 0");
  EXPECT_EQ(ids("?state=cancelled,active"), "1234 0");
  EXPECT_EQ(ids("?limit=3"), "123 1");
  EXPECT_EQ(ids("?limit=0"), " 4");
}

TEST_F(ApiTest, WrongRequestsAreAnsweredByASentence) {
  EXPECT_EQ(daemon_.ask("POST", "/v1/jobs", "{").status, 400);
  EXPECT_THAT(daemon_.ask("POST", "/v1/jobs", R"({"version": 1, "command": ["x"], "colour": 1})").body, HasSubstr("colour"));
  EXPECT_EQ(daemon_.ask("GET", "/v1/nothing").status, 404);
  EXPECT_EQ(daemon_.ask("DELETE", "/v1/jobs").status, 405);
  EXPECT_EQ(daemon_.ask("GET", "/v1/jobs?state=asleep").status, 400);
  EXPECT_EQ(daemon_.ask("GET", "/v1/jobs?state=queued,").status, 400);
  EXPECT_EQ(daemon_.ask("GET", "/v1/jobs?limit=few").status, 400);
  EXPECT_EQ(daemon_.ask("GET", "/v1/jobs/1/logs").status, 404);
  EXPECT_EQ(daemon_.ask("POST", "/v1/tokens", R"({"name": "a b"})").status, 400);
  EXPECT_EQ(daemon_.ask("POST", "/v1/tokens", R"({"name": "bob", "role": "king"})").status, 400);
  EXPECT_EQ(daemon_.ask("DELETE", "/v1/tokens/root").status, 409) << "the last admin's";
  EXPECT_EQ(daemon_.ask("DELETE", "/v1/tokens/bob").status, 404);
}

TEST_F(ApiTest, LogsAreReadFromAPositionOn) {
  TemporaryFolder folder;
  daemon_.executor.folder = folder.path();
  ASSERT_EQ(daemon_.submit().status, 201);
  daemon_.pass(1);
  const std::string worker = daemon_.executor.output_folder({1, 1}, 0);
  std::filesystem::create_directories(worker);
  OutputWriter(worker).write("hello\n");
  EXPECT_EQ(daemon_.ask("GET", "/v1/jobs/1/logs").body, "hello\n");
  EXPECT_EQ(daemon_.ask("GET", "/v1/jobs/1/logs?offset=4").body, "o\n");
  EXPECT_EQ(daemon_.ask("GET", "/v1/jobs/1/logs?rank=1").status, 400);
}

TEST_F(ApiTest, NoSeriesOfTheMetricsOutlivesItsJob) {
  ASSERT_EQ(daemon_.submit().status, 201);
  daemon_.pass(1);
  EXPECT_THAT(daemon_.ask("GET", "/metrics").body, HasSubstr("maypole_jobs{state=\"starting\"} 1"));
  EXPECT_THAT(daemon_.ask("GET", "/metrics").body, Not(HasSubstr("digits")));
  daemon_.executor.events = {{.kind = WorkerEventKind::kEnded, .id = {1, 1}, .rank = 0, .exit = {}}};
  daemon_.pass(1);
  const std::string after = daemon_.ask("GET", "/metrics").body;
  EXPECT_THAT(after, HasSubstr("maypole_jobs{state=\"starting\"} 0"));
  EXPECT_THAT(after, HasSubstr("maypole_held{server=\"s0\",resource=\"cpu\"} 0\n"));
}

TEST_F(ApiTest, NothingNewStartsOnADrainedServerAndItIsRemembered) {
  const auto submit = [&](int workers) {
    ASSERT_EQ(daemon_.ask("POST", "/v1/jobs", fmt::format(R"({{"version": 1, "command": ["x"], "workers": {}}})", workers)).status, 201);
    daemon_.pass(1);
  };
  submit(8);
  const std::string drained = daemon_.ask("POST", "/v1/servers/s0/drain").body;
  EXPECT_THAT(drained, HasSubstr(R"("closed": "drained by root")"));
  EXPECT_THAT(drained, HasSubstr(R"("jobs": ["1"])")) << "what runs there goes on";
  EXPECT_THAT(daemon_.ask("GET", "/v1/cluster").body, HasSubstr(drained));
  ASSERT_EQ(daemon_.store.closed.size(), 1U);
  submit(5);
  submit(4);
  for (int rank = 0; rank < 8; ++rank) {
    daemon_.executor.events.push_back({.kind = WorkerEventKind::kEnded, .id = {1, 1}, .rank = rank, .exit = {}});
  }
  daemon_.pass(1);
  EXPECT_THAT(daemon_.ask("GET", "/v1/jobs/2").body, HasSubstr(R"("reason": "does not fit what is open: s0 is drained by root")"));
  EXPECT_THAT(daemon_.ask("GET", "/v1/jobs/3").body, HasSubstr(R"("ring": ["s1", "s1", "s1", "s1"])"));
  EXPECT_THAT(daemon_.ask("POST", "/v1/servers/s0/undrain").body, HasSubstr(R"("closed": null)"));
  EXPECT_THAT(daemon_.ask("GET", "/v1/jobs/2").body, HasSubstr(R"("reason": "")"));
  EXPECT_TRUE(daemon_.store.closed.empty());
  EXPECT_THAT(daemon_.ask("POST", "/v1/servers/s00/drain").body, HasSubstr("did you mean 's0'?"));
}

TEST_F(ApiTest, TheDaemonEndsOnlyWhenTheJobsMay) {
  ASSERT_EQ(daemon_.submit().status, 201);
  daemon_.pass(1);
  EXPECT_EQ(daemon_.ask("POST", "/v1/shutdown").status, 409);
  EXPECT_EQ(daemon_.api.shutdown(), Shutdown::kNone);
  ASSERT_EQ(daemon_.ask("POST", "/v1/jobs", R"({"version": 1, "command": ["x"], "workers": 8})").status, 201);
  EXPECT_EQ(daemon_.ask("POST", "/v1/shutdown?jobs=stop").status, 200);
  EXPECT_EQ(daemon_.api.shutdown(), Shutdown::kStopJobs);
  EXPECT_THAT(daemon_.executor.stopped, ElementsAre(EpochId{1, 1}));
  daemon_.executor.events = {{.kind = WorkerEventKind::kEnded, .id = {1, 1}, .rank = 0, .exit = {}}};
  daemon_.pass(1);
  EXPECT_THAT(daemon_.supervisor.holding(), SizeIs(0)) << "what waited for its capacity stays where it is";
  EXPECT_THAT(daemon_.ask("GET", "/v1/jobs/2").body, HasSubstr("queued"));
}

TEST_F(ApiTest, ABrowserLogsInByALinkAndChangesThingsOnlyFromOurPages) {
  const auto request = [&](const std::string& method, const std::string& path, const std::string& session, bool own_origin) {
    return daemon_.api
        .handle({.method = method, .path = path, .query = {}, .body = {}, .token = {}, .session = session, .own_origin = own_origin},
                daemon_.now_s)
        .response;
  };
  EXPECT_EQ(request("GET", "/", "", false).status, 401);
  EXPECT_EQ(request("GET", "/app.js", "", false).status, 401);
  const std::string link = daemon_.ask("POST", "/v1/logins", "", daemon_.user).body;
  const std::size_t at = link.find("key=") + 4;
  const std::string path = "/login?key=" + link.substr(at, link.find('"', at) - at);
  const Response in = daemon_.ask("GET", path, "", "none");
  ASSERT_TRUE(in.session) << in.body;
  EXPECT_EQ(daemon_.ask("GET", path, "", "none").status, 401) << "a link works once";
  const std::string session = *in.session;
  const Response page = request("GET", "/", session, false);
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.body, HasSubstr("<title>Maypole</title>"));
  EXPECT_EQ(request("GET", "/v1/jobs", session, false).status, 200);
  EXPECT_EQ(request("GET", "/v1/tokens", session, true).status, 403) << "a user's session is no admin's";
  ASSERT_EQ(daemon_.submit(daemon_.user).status, 201);
  EXPECT_EQ(request("POST", "/v1/jobs/1/cancel", session, false).status, 403) << "no Origin";
  EXPECT_EQ(request("POST", "/v1/jobs/1/cancel", session, true).status, 200);
  ASSERT_EQ(daemon_.ask("DELETE", "/v1/tokens/ann").status, 200);
  EXPECT_EQ(request("GET", "/v1/jobs", session, false).status, 401);
}

TEST(SuggestionTest, NamesWhatIsNear) {
  EXPECT_EQ(did_you_mean("sbumit", {"queue", "submit"}), ": did you mean 'submit'?");
  EXPECT_EQ(did_you_mean("frobnicate", {"queue", "submit"}), "");
}

}  // namespace
}  // namespace maypole::daemon
