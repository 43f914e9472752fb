// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/http_server.h"

#include "maypole/base/fd.h"
#include "maypole/base/status.h"
#include "maypole/daemon/bounded_stream.h"
#include "maypole/net/socket.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

namespace maypole::daemon {

namespace {

constexpr std::size_t kHeaderBytes = 64U << 10U;
constexpr std::chrono::seconds kIdle{1};  // that a connection may wait for its next request

thread_local bool too_many = false;                    // whether the connection that begins in this thread is one too many
thread_local std::optional<EventReader> stream_asked;  // by the request that this thread serves: what the library answers is not sent

constexpr std::string_view kBusy = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Threads for so many connections. One too many is turned away in the thread that accepted it.
class Threads final : public httplib::TaskQueue {
 public:
  explicit Threads(const HttpLimits& limits) : most_(limits.connections), pool_(limits.threads) {}
  void enqueue(std::function<void()> serve) override {
    if (open_ >= most_) {
      too_many = true;
      serve();
      too_many = false;
      return;
    }
    ++open_;
    pool_.enqueue([this, serve = std::move(serve)] {
      serve();
      --open_;
    });
  }
  void shutdown() override { pool_.shutdown(); }

 private:
  std::size_t most_;
  std::atomic<std::size_t> open_ = 0;
  httplib::ThreadPool pool_;
};

void show(const net::SocketAddress& address, std::string& ip, int& port) {
  ip = address.host();
  port = address.port();
}

/// A bounded stream as the library wants it.
class Stream final : public httplib::Stream {
 public:
  explicit Stream(BoundedStream& stream) : stream_(&stream) {}
  [[nodiscard]] bool is_readable() const override { return !stream_->broken(); }
  [[nodiscard]] bool is_writable() const override { return stream_->is_writable(); }
  ssize_t read(char* target, size_t size) override { return stream_->read(target, size); }
  ssize_t write(const char* bytes, size_t size) override { return stream_asked ? static_cast<ssize_t>(size) : stream_->write(bytes, size); }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { show(net::remote_address_of(socket()), ip, port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override { show(net::local_address_of(socket()), ip, port); }
  [[nodiscard]] socket_t socket() const override { return stream_->socket(); }

 private:
  BoundedStream* stream_;
};

/// The library's server, with bounds on what it reads.
class BoundedServer final : public httplib::Server {
 public:
  BoundedServer(const HttpLimits& limits, EventStreams& streams) : limits_(limits), streams_(&streams) {
    new_task_queue = [limits] { return new Threads(limits); };  // the library owns it
    set_payload_max_length(limits.body_bytes);
  }

 private:
  bool process_and_close_socket(socket_t socket) override {
    base::Fd owned(socket);
    const StreamLimits limits = {limits_.body_bytes + kHeaderBytes, limits_.request, limits_.write};
    BoundedStream stream(socket, limits, [this] { return svr_sock_ == INVALID_SOCKET; });
    if (too_many) {
      return stream.write(kBusy.data(), kBusy.size()) > 0;
    }
    Stream adapted(stream);
    bool closed = false;
    while (!closed && stream.begin_request(kIdle)) {
      const bool served = process_request(adapted, false, closed, [](httplib::Request& request) {
        request.ranges.clear();                     // many of them would make a long answer of a short one
        request.headers.erase("Content-Encoding");  // a short body would unpack to a long one: it is taken as it is
      });
      closed = closed || !served || stream.broken();
      if (const std::optional<EventReader> reader = std::exchange(stream_asked, std::nullopt)) {
        return streams_->add(owned, reader->token_name, reader->last_event_id) || stream.write(kBusy.data(), kBusy.size()) > 0;
      }
    }
    if (stream.broken()) {
      stream.drain();
    }
    return true;
  }

  HttpLimits limits_;
  EventStreams* streams_;
};

/// `a=1; b=2`: the value of a name, or nothing.
std::string cookie(const std::string& header, const std::string& name) {
  for (std::size_t at = 0; at < header.size();) {
    const std::size_t end = std::min(header.find(';', at), header.size());
    const std::string part = header.substr(at, end - at);
    const std::size_t begin = std::min(part.find_first_not_of(' '), part.size());
    if (part.compare(begin, name.size() + 1, name + "=") == 0) {
      return part.substr(begin + name.size() + 1);
    }
    at = end + 1;
  }
  return "";
}

class Server final : public HttpServer {
 public:
  Server(std::string host, Mailbox& mailbox, EventStreams& streams, const HttpLimits& limits)
      : host_(std::move(host)), mailbox_(&mailbox), server_(limits, streams) {}
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
    server_.set_tcp_nodelay(true);
    const httplib::Server::Handler handler = [this](const httplib::Request& request, httplib::Response& response) {
      serve(request, response);
    };
    server_.Get(".*", handler).Post(".*", handler).Put(".*", handler).Delete(".*", handler).Patch(".*", handler);
    server_.set_error_handler([](const httplib::Request& /*request*/, httplib::Response& response) {
      if (response.body.empty()) {  // of the library itself
        const bool large = response.status == 413;
        response.set_content(error_response(response.status, large ? "the request is too large" : "this is no request of the API").body,
                             "application/json");
      }
    });
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
      asked.session = cookie(request.get_header_value("Cookie"), cookie_name());
      asked.own_origin = request.has_header("Origin");  // may_be_served() has looked at it
      asked.last_event_id = request.get_header_value("Last-Event-ID");
      answer = mailbox_->ask(std::move(asked));
    } else {
      answer = error_response(403, "this Host or Origin is not the daemon's own: call it by the address that it listens on");
    }
    stream_asked = std::move(answer.events);
    response.status = answer.status;
    for (const auto& [name, value] : answer.headers) {
      response.set_header(name, value);
    }
    if (answer.session) {
      response.set_header("Set-Cookie", fmt::format("{}={}; Path=/; Max-Age={:.0f}; HttpOnly; SameSite=Strict", cookie_name(),
                                                    *answer.session, answer.session->empty() ? 0 : Sessions::kSessionSeconds));
    }
    response.set_header("Cache-Control", "no-store");
    response.set_content(answer.body, answer.type);
  }

  /// Cookies do not tell ports apart; two daemons on one machine shall not log each other's browsers out.
  [[nodiscard]] std::string cookie_name() const { return fmt::format("maypole_{}", port_); }

  std::string host_;
  Mailbox* mailbox_;
  int port_ = -1;
  BoundedServer server_;
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

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::listen(const std::string& host, int port, Mailbox& mailbox, EventStreams& streams,
                                                               const HttpLimits& limits) {
  auto server = std::make_unique<Server>(host, mailbox, streams, limits);
  MAYPOLE_RETURN_IF_ERROR(server->open(port));
  return server;
}

}  // namespace maypole::daemon
