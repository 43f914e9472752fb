// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/http_server.h"

#include "maypole/base/status.h"

#include <httplib.h>

#include <thread>
#include <utility>

namespace maypole::daemon {

namespace {

constexpr std::size_t kNumThreads = 16;  // each serves one connection at a time
constexpr std::size_t kMostBodyBytes = 1U << 20U;
constexpr time_t kIdleSeconds = 1;  // that a connection may wait for its next request; also what the end of the server may take

class Server final : public HttpServer {
 public:
  Server(std::string host, Mailbox& mailbox) : host_(std::move(host)), mailbox_(&mailbox) {}
  ~Server() override {
    while (thread_.joinable() && !server_.is_running()) {  // stop() before the thread listens would be forgotten
      std::this_thread::yield();
    }
    server_.stop();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  absl::Status open(int port) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kNumThreads); };  // the library owns it
    server_.set_payload_max_length(kMostBodyBytes);
    server_.set_keep_alive_max_count(1'000'000);
    server_.set_keep_alive_timeout(kIdleSeconds);
    server_.set_tcp_nodelay(true);
    const httplib::Server::Handler handler = [this](const httplib::Request& request, httplib::Response& response) {
      serve(request, response);
    };
    server_.Get(".*", handler).Post(".*", handler).Put(".*", handler).Delete(".*", handler).Patch(".*", handler);
    server_.set_socket_options([](socket_t socket) {
      const int yes = 1;  // a port that a daemon before us used is free at once; one that is in use is not shared
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    port_ = port == 0 ? server_.bind_to_any_port(host_) : (server_.bind_to_port(host_, port) ? port : -1);
    if (port_ < 0) {
      return base::error(absl::StatusCode::kAlreadyExists,
                         "cannot listen on {}:{}: the port is taken, or the address is none of this machine's; try --listen {}:0", host_,
                         port, host_);
    }
    thread_ = std::jthread([this] { server_.listen_after_bind(); });
    return absl::OkStatus();
  }

  [[nodiscard]] int port() const override { return port_; }

 private:
  void serve(const httplib::Request& request, httplib::Response& response) {
    Response answer;
    if (may_be_served(request.get_header_value("Host"), request.get_header_value("Origin"), host_, port_)) {
      Request asked{.method = request.method, .path = request.path, .query = {}, .body = request.body, .token = {}};
      for (const auto& [name, value] : request.params) {
        asked.query[name] = value;
      }
      const std::string authorization = request.get_header_value("Authorization");
      constexpr std::string_view kBearer = "Bearer ";
      asked.token = authorization.starts_with(kBearer) ? authorization.substr(kBearer.size()) : "";
      answer = mailbox_->ask(std::move(asked));
    } else {
      answer = error_response(403, "this Host or Origin is not the daemon's own: call it by the address that it listens on");
    }
    response.status = answer.status;
    for (const auto& [name, value] : answer.headers) {
      response.set_header(name, value);
    }
    response.set_header("Cache-Control", "no-store");
    response.set_content(answer.body, answer.type);
  }

  std::string host_;
  Mailbox* mailbox_;
  int port_ = -1;
  httplib::Server server_;
  std::jthread thread_;
};

bool is_loopback_name(const std::string& host) { return host == "127.0.0.1" || host == "localhost" || host == "::1" || host == "[::1]"; }

}  // namespace

bool may_be_served(const std::string& host_header, const std::string& origin, const std::string& host, int port) {
  const std::size_t colon = host_header.rfind(':');
  const bool has_port = colon != std::string::npos && host_header.find(']', colon) == std::string::npos;
  const std::string name = has_port ? host_header.substr(0, colon) : host_header;
  const bool right_port = has_port && host_header.substr(colon + 1) == std::to_string(port);
  const bool wildcard = host == "0.0.0.0" || host == "::";  // listens on every address: which names lead here is not known
  const bool right_name = name == host || name == "[" + host + "]" || (is_loopback_name(name) && (is_loopback_name(host) || wildcard)) ||
                          (wildcard && !name.empty());
  return right_port && right_name && (origin.empty() || origin == "http://" + host_header);
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::listen(const std::string& host, int port, Mailbox& mailbox) {
  auto server = std::make_unique<Server>(host, mailbox);
  MAYPOLE_RETURN_IF_ERROR(server->open(port));
  return server;
}

}  // namespace maypole::daemon
