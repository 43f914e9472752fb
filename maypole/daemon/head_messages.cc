// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/head_messages.h"

#include "maypole/base/status.h"
#include "maypole/net/message.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <utility>

namespace maypole::daemon {

namespace {

constexpr std::size_t kMostBytes = 16U << 20U;

std::string text_of(const net::MessageWriter& writer) {
  return {reinterpret_cast<const char*>(writer.bytes().data()), writer.bytes().size()};
}

void put(net::MessageWriter& writer, const std::vector<std::string>& texts) {
  writer.put_u32(static_cast<std::uint32_t>(texts.size()));
  for (const std::string& text : texts) {
    writer.put_string(text);
  }
}

std::vector<std::string> strings(net::MessageReader& reader) {
  std::vector<std::string> texts;
  for (std::uint32_t left = reader.u32(); left > 0 && reader.ok(); --left) {
    texts.push_back(reader.string());
  }
  return texts;
}

void put(net::MessageWriter& writer, const HeadOrder& order) {
  writer.put_u32(static_cast<std::uint32_t>(order.number));
  writer.put_u32(static_cast<std::uint32_t>(order.ring.size()));
  for (const WorkerPlace& place : order.ring) {
    writer.put_string(place.server);
    writer.put_u32(static_cast<std::uint32_t>(place.devices.size()));
    for (const int device : place.devices) {
      writer.put_u32(static_cast<std::uint32_t>(device));
    }
  }
}

HeadOrder order_of(net::MessageReader& reader) {
  HeadOrder order;
  order.number = static_cast<int>(reader.u32());
  for (std::uint32_t left = reader.u32(); left > 0 && reader.ok(); --left) {
    WorkerPlace& place = order.ring.emplace_back();
    place.server = reader.string();
    for (std::uint32_t devices = reader.u32(); devices > 0 && reader.ok(); --devices) {
      place.devices.push_back(static_cast<int>(reader.u32()));
    }
  }
  return order;
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

std::string encode(const HeadOrder& order) {
  net::MessageWriter writer;
  put(writer, order);
  return text_of(writer);
}

absl::StatusOr<HeadOrder> decode_head_order(std::string_view bytes) {
  net::MessageReader reader(bytes_of(bytes));
  HeadOrder order = order_of(reader);
  MAYPOLE_RETURN_IF_ERROR(reader.finish("the daemon's order"));
  return order;
}

std::string encode(const HeadState& state) {
  net::MessageWriter writer;
  writer.put_u32(static_cast<std::uint32_t>(state.seen));
  writer.put_u32(static_cast<std::uint32_t>(state.done));
  writer.put_u8(state.resizable ? 1 : 0);
  put(writer, state.seats);
  put(writer, state.living);
  put(writer, state.members);
  writer.put_u32(static_cast<std::uint32_t>(state.failures));
  writer.put_u64(state.step);
  writer.put_string(state.problem);
  return text_of(writer);
}

absl::StatusOr<HeadState> decode_head_state(std::string_view bytes) {
  net::MessageReader reader(bytes_of(bytes));
  HeadState state;
  state.seen = static_cast<int>(reader.u32());
  state.done = static_cast<int>(reader.u32());
  state.resizable = reader.u8() != 0;
  state.seats = strings(reader);
  state.living = strings(reader);
  state.members = strings(reader);
  state.failures = static_cast<int>(reader.u32());
  state.step = reader.u64();
  state.problem = reader.string();
  MAYPOLE_RETURN_IF_ERROR(reader.finish("the head's state"));
  return state;
}

absl::Status write_head_spec(const std::string& folder, const HeadSpec& spec) {
  net::MessageWriter writer;
  writer.put_string(spec.socket);
  writer.put_string(spec.job);
  put(writer, spec.command);
  writer.put_u32(static_cast<std::uint32_t>(spec.min_workers));
  writer.put_u32(static_cast<std::uint32_t>(spec.max_workers));
  writer.put_u32(static_cast<std::uint32_t>(spec.retries));
  writer.put_u32(static_cast<std::uint32_t>(spec.failures));
  put(writer, spec.first);
  const std::string path = folder + "/head";
  const base::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const std::string text = text_of(writer);
  if (!file.valid() || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return base::errno_error(errno, "write {}", path);
  }
  return absl::OkStatus();
}

absl::StatusOr<HeadSpec> read_head_spec(const std::string& folder) {
  std::ifstream file(folder + "/head", std::ios::binary);
  if (!file) {
    return base::error(absl::StatusCode::kNotFound, "{}/head cannot be read", folder);
  }
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  net::MessageReader reader(bytes_of(text));
  HeadSpec spec;
  spec.socket = reader.string();
  spec.job = reader.string();
  spec.command = strings(reader);
  spec.min_workers = static_cast<int>(reader.u32());
  spec.max_workers = static_cast<int>(reader.u32());
  spec.retries = static_cast<int>(reader.u32());
  spec.failures = static_cast<int>(reader.u32());
  spec.first = order_of(reader);
  MAYPOLE_RETURN_IF_ERROR(reader.finish(folder + "/head"));
  return spec;
}

bool HeadStream::send(std::string_view message) {
  net::MessageWriter writer;
  writer.put_string(message);
  const std::string frame = text_of(writer);
  if (socket_.valid() && ::send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
                             static_cast<ssize_t>(frame.size())) {  // part of a message is of no use to anybody
    socket_.reset();
  }
  return socket_.valid();
}

std::vector<std::string> HeadStream::receive() {
  std::array<char, 16U << 10U> bytes{};
  while (socket_.valid()) {
    const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      buffer_.append(bytes.data(), static_cast<std::size_t>(got));
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      break;
    } else {
      socket_.reset();
    }
  }
  std::vector<std::string> messages;
  while (buffer_.size() >= net::kFrameHeaderSize) {
    const std::size_t size = net::MessageReader(bytes_of(buffer_)).u32();
    if (size > kMostBytes) {
      socket_.reset();
      buffer_.clear();
    }
    if (buffer_.size() < net::kFrameHeaderSize + size) {
      break;
    }
    messages.push_back(buffer_.substr(net::kFrameHeaderSize, size));
    buffer_.erase(0, net::kFrameHeaderSize + size);
  }
  return messages;
}

bool is_own_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == ::getuid() || peer.uid == 0);
}

}  // namespace maypole::daemon
