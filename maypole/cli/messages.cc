// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/messages.h"

#include "maypole/base/status.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

namespace maypole::cli {

namespace {

constexpr std::size_t kHeaderBytes = 7;  // 'M' 'P' kind length

void append_u32(std::string& text, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) {
    text.push_back(static_cast<char>(static_cast<unsigned char>(value >> shift)));
  }
}

std::uint32_t read_u32(std::string_view text) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])) << (8 * i);
  }
  return value;
}

std::string printable(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, 80)) {
    shown.push_back(std::isprint(static_cast<unsigned char>(c)) != 0 ? c : ' ');
  }
  return shown;
}

}  // namespace

std::string encode_message(MessageKind kind, std::string_view body) {
  std::string message = "MP";
  message.push_back(static_cast<char>(kind));
  append_u32(message, static_cast<std::uint32_t>(body.size()));
  message += body;
  return message;
}

std::string encode_worker_bytes(MessageKind kind, int rank, std::string_view bytes) {
  std::string body;
  append_u32(body, static_cast<std::uint32_t>(rank));
  body += bytes;
  return encode_message(kind, body);
}

absl::StatusOr<WorkerBytes> decode_worker_bytes(const Message& message) {
  if (message.body.size() < 4) {
    return base::error(absl::StatusCode::kInvalidArgument, "a message of kind {} is too short", static_cast<int>(message.kind));
  }
  return WorkerBytes{static_cast<int>(read_u32(message.body)), std::string_view(message.body).substr(4)};
}

absl::StatusOr<std::optional<Message>> MessageReader::next() {
  const std::string_view rest = std::string_view(buffer_).substr(start_);
  const bool ours = rest.substr(0, 2) == std::string_view("MP").substr(0, rest.size());
  if (!ours || (rest.size() >= kHeaderBytes && read_u32(rest.substr(3)) > kMaxMessageBytes)) {
    return base::error(absl::StatusCode::kInvalidArgument, "unexpected text '{}'", printable(rest));
  }
  if (rest.size() < kHeaderBytes || rest.size() < kHeaderBytes + read_u32(rest.substr(3))) {
    buffer_.erase(0, start_);
    start_ = 0;
    return std::nullopt;
  }
  const std::size_t length = read_u32(rest.substr(3));
  Message message{static_cast<MessageKind>(rest[2]), std::string(rest.substr(kHeaderBytes, length))};
  start_ += kHeaderBytes + length;
  return message;
}

std::optional<std::string> read_some(int fd, std::size_t limit) {
  std::string bytes(limit, '\0');
  const ssize_t got = ::read(fd, bytes.data(), bytes.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return std::string();
  }
  if (got <= 0) {
    return std::nullopt;
  }
  bytes.resize(static_cast<std::size_t>(got));
  return bytes;
}

void WriteQueue::push(std::string_view bytes) {
  if (start_ > buffer_.size() / 2) {  // drops what is written before it becomes most of the memory
    buffer_.erase(0, start_);
    start_ = 0;
  }
  buffer_ += bytes;
}

bool WriteQueue::flush(int fd) {
  while (start_ < buffer_.size()) {
    const ssize_t written = ::write(fd, buffer_.data() + start_, buffer_.size() - start_);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      return errno == EAGAIN;
    }
    start_ += static_cast<std::size_t>(written);
  }
  buffer_.clear();
  start_ = 0;
  return true;
}

void set_non_blocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(JobSpec, version, job_id, secret, host, directory, command, environment, world_size, first_rank,
                                   num_workers, bind_address, timeline, elastic)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AgentReady, rendezvous_port, master_port, cores, machine, directory)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StartOrder, rendezvous, master_address, master_port, workers_on_machine)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkerExit, rank, code, signal, seconds, reason)

namespace {
// Arguments and environments are bytes, not always UTF-8; so each string travels with bytes above 127 as U+0080..U+00FF.
std::string widen(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text.push_back(c);
    } else {
      text.push_back(static_cast<char>(0xC0U | (byte >> 6U)));
      text.push_back(static_cast<char>(0x80U | (byte & 0x3FU)));
    }
  }
  return text;
}

std::string narrow(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80 || i + 1 == text.size()) {
      bytes.push_back(text[i]);
    } else {
      bytes.push_back(static_cast<char>(((byte & 0x03U) << 6U) | (static_cast<unsigned char>(text[++i]) & 0x3FU)));
    }
  }
  return bytes;
}

template <typename Change>
nlohmann::json map_strings(const nlohmann::json& value, Change change) {
  if (value.is_string()) {
    return change(value.get_ref<const std::string&>());
  }
  if (!value.is_structured()) {
    return value;
  }
  nlohmann::json result = value.is_array() ? nlohmann::json::array() : nlohmann::json::object();
  for (const auto& [key, item] : value.items()) {
    if (value.is_array()) {
      result.push_back(map_strings(item, change));
    } else {
      result[change(key)] = map_strings(item, change);
    }
  }
  return result;
}

template <typename Body>
std::string dump(const Body& body) {
  return map_strings(nlohmann::json(body), widen).dump();
}
}  // namespace

std::string to_json(const JobSpec& spec) { return dump(spec); }
std::string to_json(const AgentReady& ready) { return dump(ready); }
std::string to_json(const StartOrder& order) { return dump(order); }
std::string to_json(const WorkerExit& exit) { return dump(exit); }

template <typename Body>
absl::StatusOr<Body> from_json(std::string_view text) {
  try {  // nlohmann reports by exceptions; they end here
    return map_strings(nlohmann::json::parse(text), narrow).template get<Body>();
  } catch (const nlohmann::json::exception& exception) {
    return base::error(absl::StatusCode::kInvalidArgument, "a message cannot be read: {}", exception.what());
  }
}

template absl::StatusOr<JobSpec> from_json<JobSpec>(std::string_view);
template absl::StatusOr<AgentReady> from_json<AgentReady>(std::string_view);
template absl::StatusOr<StartOrder> from_json<StartOrder>(std::string_view);
template absl::StatusOr<WorkerExit> from_json<WorkerExit>(std::string_view);

}  // namespace maypole::cli
