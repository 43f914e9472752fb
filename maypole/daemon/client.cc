// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/client.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/daemon/data_dir.h"
#include "maypole/formats/document.h"
#include "maypole/net/address.h"

#include <httplib.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>

namespace maypole::daemon {

namespace {

std::string variable(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

std::string first_word(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

absl::StatusCode code_of(int status) {
  switch (status) {
    case 400:
    case 413:
      return absl::StatusCode::kInvalidArgument;
    case 401:
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
    case 405:
      return absl::StatusCode::kNotFound;
    case 409:
      return absl::StatusCode::kFailedPrecondition;
    case 503:
      return absl::StatusCode::kUnavailable;
    case 507:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kInternal;
  }
}

std::string sentence_of(const httplib::Response& response) {
  if (const absl::StatusOr<formats::Node> node = formats::parse_json(response.body, "answer"); node.ok()) {
    for (const formats::Field& field : node->fields) {
      if (field.name == "error") {
        return field.value.text;
      }
    }
  }
  return fmt::format("what answered is no Maypole daemon (HTTP status {})", response.status);
}

class HttpClient final : public Client {
 public:
  HttpClient(const net::HostPort& target, const std::string& token)
      : address_(net::format_host_port(target.host, target.port)), client_(target.host, target.port) {
    client_.set_default_headers({{"Authorization", "Bearer " + token}});
    client_.set_keep_alive(true);
    client_.set_tcp_nodelay(true);
    constexpr time_t kConnectSeconds = 10;
    constexpr time_t kAnswerSeconds = 60;
    client_.set_connection_timeout(kConnectSeconds);
    client_.set_read_timeout(kAnswerSeconds);
  }

  [[nodiscard]] std::string address() const override { return address_; }

  absl::StatusOr<Answer> call(const std::string& method, const std::string& path, const std::string& body) override {
    httplib::Request request;
    request.method = method;
    request.path = path;
    request.body = body;
    request.set_header("Content-Type", "application/json");
    const httplib::Result result = client_.send(request);
    if (!result) {
      return base::error(absl::StatusCode::kUnavailable, "the daemon does not answer: {}", httplib::to_string(result.error()));
    }
    if (result->status >= 400) {
      return base::error(code_of(result->status), "{}", sentence_of(*result));
    }
    Answer answer{result->status, result->body, {}};
    for (const auto& [name, value] : result->headers) {
      if (name.starts_with("X-Maypole")) {
        answer.headers[name] = value;
      }
    }
    return answer;
  }

 private:
  std::string address_;
  httplib::Client client_;
};

/// One attempt. kUnavailable: worth another one.
absl::StatusOr<std::unique_ptr<Client>> attempt(const ClientOptions& options, const std::string& data_dir) {
  std::string address = options.address.empty() ? variable("MAYPOLE_ADDRESS") : options.address;
  const bool given = !address.empty();
  if (!given && daemon_has(data_dir)) {  // else another program may listen there now, which must not get the token
    address = first_word(data_dir + "/address");
  }
  if (address.empty()) {
    return base::error(absl::StatusCode::kUnavailable, "no daemon runs with the data directory {}: start one by `maypole up`", data_dir);
  }
  absl::StatusOr<net::HostPort> target = net::parse_host_port(address);
  if (!target.ok()) {
    return base::error(absl::StatusCode::kInvalidArgument, "{}: {}", given ? "--address" : data_dir + "/address",
                       base::message(target.status()));
  }
  if (target->host == "0.0.0.0" || target->host == "::") {
    target->host = "127.0.0.1";
  }
  std::string token = variable("MAYPOLE_TOKEN");
  if (token.empty()) {
    token = first_word(data_dir + "/token");
  }
  if (token.empty()) {
    return base::error(absl::StatusCode::kUnauthenticated, "there is no token in {}/token that may be read: set MAYPOLE_TOKEN", data_dir);
  }
  auto client = std::make_unique<HttpClient>(*target, token);
  const absl::StatusOr<Answer> answer = client->call("GET", "/v1/jobs?limit=0", "");
  if (absl::IsUnavailable(answer.status())) {
    return base::error(absl::StatusCode::kUnavailable, "no daemon answers at {}: start one by `maypole up`", address);
  }
  MAYPOLE_RETURN_IF_ERROR(answer.status());
  return client;
}

}  // namespace

bool address_given(const ClientOptions& options) { return !options.address.empty() || !variable("MAYPOLE_ADDRESS").empty(); }

std::string default_data_dir() {
  const std::string state = variable("XDG_STATE_HOME");
  if (!state.empty()) {
    return state + "/maypole";
  }
  const std::string home = variable("HOME");
  return (home.empty() ? "/var/lib" : home + "/.local/state") + "/maypole";
}

std::string data_dir_of(const std::string& written) {
  const std::string set = variable("MAYPOLE_DATA_DIR");
  return !written.empty() ? written : !set.empty() ? set : default_data_dir();
}

absl::StatusOr<std::unique_ptr<Client>> Client::connect(const ClientOptions& options) {
  const std::string data_dir = data_dir_of(options.data_dir);
  const auto deadline = std::chrono::steady_clock::now() + base::from_seconds(options.wait_s);
  while (true) {
    absl::StatusOr<std::unique_ptr<Client>> client = attempt(options, data_dir);
    if (!absl::IsUnavailable(client.status()) || std::chrono::steady_clock::now() >= deadline) {
      return client;
    }
    constexpr std::chrono::milliseconds kAgain{50};
    std::this_thread::sleep_for(kAgain);
  }
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool plain = (std::isalnum(static_cast<unsigned char>(c)) != 0) || c == '-' || c == '_' || c == '.' || c == '~';
    result += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return result;
}

}  // namespace maypole::daemon
