// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/cluster.h"

#include "maypole/base/status.h"
#include "maypole/cli/cluster_command.h"
#include "maypole/cli/cluster_view.h"
#include "maypole/formats/document.h"
#include "maypole/formats/json_text.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace maypole::cli {

namespace {

constexpr std::string_view kAnswer = "the daemon's answer";

absl::StatusOr<std::string> cluster_text(const std::string& body) {
  MAYPOLE_ASSIGN_OR_RETURN(const ClusterView cluster, parse_cluster_view(body));
  std::string text = fmt::format("policy {}, slots of {:g} s\n", cluster.policy, cluster.slot_s);
  if (!cluster.refused.empty()) {
    text += fmt::format("a decision was refused: {}\n", cluster.refused);
  }
  for (const ServerView& server : cluster.servers) {
    text += fmt::format("  {}\n", server_text(server));
  }
  return text;
}

struct WrittenToken {
  ClusterFlags flags;
  std::string name;
  std::string role = "user";
};

absl::StatusOr<int> create_token(const WrittenToken& written, daemon::Client& client) {
  const std::string body = fmt::format(R"({{"name": {}, "role": "{}"}})", formats::json_string(written.name), written.role);
  MAYPOLE_ASSIGN_OR_RETURN(const daemon::Answer answer, client.call("POST", "/v1/tokens", body));
  MAYPOLE_ASSIGN_OR_RETURN(const formats::Node node, formats::parse_json(answer.body, kAnswer));
  formats::Problems problems{std::string(kAnswer)};
  const std::string token = formats::Map(formats::Value(&node, 1, "", &problems))["token"].text();
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  fmt::print("{}\n", written.flags.json ? answer.body : token);
  return 0;
}

absl::StatusOr<int> list_tokens(const WrittenToken& written, daemon::Client& client) {
  MAYPOLE_ASSIGN_OR_RETURN(const daemon::Answer answer, client.call("GET", "/v1/tokens"));
  if (written.flags.json) {
    fmt::print("{}\n", answer.body);
    return 0;
  }
  MAYPOLE_ASSIGN_OR_RETURN(const formats::Node node, formats::parse_json(answer.body, kAnswer));
  formats::Problems problems{std::string(kAnswer)};
  formats::Map map(formats::Value(&node, 1, "", &problems));
  for (const formats::Value& item : map["tokens"].list()) {
    formats::Map token(item);
    fmt::print("{}  {}\n", token["name"].text(), token["role"].text());
  }
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  return 0;
}

}  // namespace

std::function<int()> add_cluster(CLI::App& app) {
  auto flags = std::make_shared<ClusterFlags>();  // shared with the function that outlives this one
  CLI::App* cluster = app.add_subcommand("cluster", "Show the servers, and what of them is taken");
  add_cluster_flags(*cluster, *flags);
  return [flags] {
    return with_client("cluster", *flags, [&](daemon::Client& client) -> absl::StatusOr<int> {
      MAYPOLE_ASSIGN_OR_RETURN(const daemon::Answer answer, client.call("GET", "/v1/cluster"));
      MAYPOLE_ASSIGN_OR_RETURN(const std::string text, cluster_text(answer.body));
      fmt::print("{}", flags->json ? answer.body + "\n" : text);
      return 0;
    });
  };
}

std::function<int()> add_dashboard(CLI::App& app) {
  auto flags = std::make_shared<ClusterFlags>();
  CLI::App* dashboard = app.add_subcommand("dashboard", "Print a link to the dashboard, which logs one browser in");
  add_cluster_flags(*dashboard, *flags);
  return [flags] {
    return with_client("dashboard", *flags, [&](daemon::Client& client) -> absl::StatusOr<int> {
      MAYPOLE_ASSIGN_OR_RETURN(const daemon::Answer answer, client.call("POST", "/v1/logins"));
      MAYPOLE_ASSIGN_OR_RETURN(const formats::Node node, formats::parse_json(answer.body, kAnswer));
      formats::Problems problems{std::string(kAnswer)};
      formats::Map map(formats::Value(&node, 1, "", &problems));
      const std::string link = "http://" + client.address() + map["path"].text();
      MAYPOLE_RETURN_IF_ERROR(problems.status());
      fmt::print("{}\n", flags->json ? fmt::format("{{\"link\": {}}}", formats::json_string(link)) : link);
      return 0;
    });
  };
}

std::function<int()> add_drain(CLI::App& app, const std::string& name) {
  struct Written {
    ClusterFlags flags;
    std::string server;
  };
  auto written = std::make_shared<Written>();
  CLI::App* drain = app.add_subcommand(
      name, name == "drain" ? "Let nothing new start on a server; what runs there goes on" : "Let jobs start there again");
  add_cluster_flags(*drain, written->flags);
  drain->add_option("server", written->server, "Its id, as `maypole cluster` shows it")->required();
  return [written, name] {
    return with_client(name, written->flags, [&](daemon::Client& client) -> absl::StatusOr<int> {
      const std::string path = fmt::format("/v1/servers/{}/{}", daemon::escaped(written->server), name);
      MAYPOLE_ASSIGN_OR_RETURN(const daemon::Answer answer, client.call("POST", path));
      MAYPOLE_ASSIGN_OR_RETURN(const ServerView server, parse_server_view(answer.body));
      fmt::print("{}\n", written->flags.json ? answer.body : server_text(server));
      return 0;
    });
  };
}

std::function<int()> add_token(CLI::App& app) {
  auto written = std::make_shared<WrittenToken>();
  CLI::App* token = app.add_subcommand("token", "Create, list and revoke the tokens that clients need");
  token->require_subcommand(1);
  CLI::App* create = token->add_subcommand("create", "Make a token and print it, for the only time");
  create->add_option("name", written->name, "Whose it is: letters, digits, - _ .")->required();
  create->add_option("--role", written->role, "user: changes its own jobs only; admin: everything")
      ->check(CLI::IsMember({"user", "admin"}))
      ->capture_default_str();
  CLI::App* list = token->add_subcommand("list", "List names and roles");
  CLI::App* revoke = token->add_subcommand("revoke", "Make a token useless");
  revoke->add_option("name", written->name, "Its name")->required();
  for (CLI::App* sub : {create, list, revoke}) {
    add_cluster_flags(*sub, written->flags);
  }
  return [written, create, list] {
    return with_client("token", written->flags, [&](daemon::Client& client) -> absl::StatusOr<int> {
      if (create->parsed()) {
        return create_token(*written, client);
      }
      if (list->parsed()) {
        return list_tokens(*written, client);
      }
      MAYPOLE_ASSIGN_OR_RETURN(const daemon::Answer answer, client.call("DELETE", "/v1/tokens/" + daemon::escaped(written->name)));
      if (written->flags.json) {
        fmt::print("{}\n", answer.body);
      }
      return 0;
    });
  };
}

}  // namespace maypole::cli
