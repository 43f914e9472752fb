// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/agreement.h"

#include "maypole/base/status.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>

namespace maypole::pipeline {
namespace {

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  }
  return hash;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += line;
    text += '\n';
  }
  return text;
}

/// Sends `text` of rank `root` to all.
absl::StatusOr<std::string> broadcast_text(comm::Communicator& communicator, const std::string& text, int root, base::Nanoseconds timeout) {
  const auto length = std::make_shared<std::uint64_t>(text.size());
  const comm::Work sent = communicator.broadcast(reinterpret_cast<std::byte*>(length.get()), sizeof(*length), root);
  sent.on_done([length](const absl::Status&) {});  // keeps the buffer alive should the wait give up
  const comm::Work::Waiting waiting_for_sent(sent);
  MAYPOLE_RETURN_IF_ERROR(sent.wait_for(timeout));
  const auto buffer = std::make_shared<std::string>(text);
  buffer->resize(*length);
  if (!buffer->empty()) {
    const comm::Work body = communicator.broadcast(reinterpret_cast<std::byte*>(buffer->data()), buffer->size(), root);
    body.on_done([buffer](const absl::Status&) {});
    const comm::Work::Waiting waiting_for_body(body);
    MAYPOLE_RETURN_IF_ERROR(body.wait_for(timeout));
  }
  return *buffer;
}

std::string first_difference(std::string_view mine, std::string_view theirs, int rank) {
  while (true) {
    const std::string_view my_line = mine.substr(0, mine.find('\n'));
    const std::string_view their_line = theirs.substr(0, theirs.find('\n'));
    if (my_line != their_line || mine.empty() || theirs.empty()) {
      return fmt::format("rank {} has '{}' where rank 0 has '{}'", rank, my_line.empty() ? "nothing more" : my_line,
                         their_line.empty() ? "nothing more" : their_line);
    }
    mine.remove_prefix(std::min(mine.size(), my_line.size() + 1));
    theirs.remove_prefix(std::min(theirs.size(), their_line.size() + 1));
  }
}

}  // namespace

absl::Status check_agreement(comm::Communicator& communicator, const std::vector<std::string>& lines, base::Nanoseconds timeout) {
  const std::size_t num_ranks = static_cast<std::size_t>(communicator.num_ranks());
  const std::size_t rank = static_cast<std::size_t>(communicator.rank());
  if (num_ranks == 1) {
    return absl::OkStatus();
  }
  const std::string text = joined(lines);
  const std::uint64_t hash = hash_of(text);
  // Each rank fills its own slot; halves of 32 bits are exact in a double.
  const auto hashes = std::make_shared<std::vector<double>>(2 * num_ranks);
  (*hashes)[2 * rank] = static_cast<double>(hash >> 32);
  (*hashes)[2 * rank + 1] = static_cast<double>(hash & 0xffffffffu);
  const comm::Work exchanged =
      communicator.all_reduce(reinterpret_cast<std::byte*>(hashes->data()), hashes->size(), base::DType::kFloat64, comm::ReduceOp::kSum);
  exchanged.on_done([hashes](const absl::Status&) {});
  const comm::Work::Waiting waiting_for_exchanged(exchanged);
  MAYPOLE_RETURN_IF_ERROR(exchanged.wait_for(timeout));
  for (std::size_t r = 1; r < num_ranks; ++r) {
    if ((*hashes)[2 * r] == (*hashes)[0] && (*hashes)[2 * r + 1] == (*hashes)[1]) {
      continue;
    }
    MAYPOLE_ASSIGN_OR_RETURN(const std::string of_rank_0, broadcast_text(communicator, text, 0, timeout));
    const std::string mine = r == rank ? first_difference(text, of_rank_0, static_cast<int>(r)) : std::string();
    MAYPOLE_ASSIGN_OR_RETURN(const std::string difference, broadcast_text(communicator, mine, static_cast<int>(r), timeout));
    return base::error(absl::StatusCode::kFailedPrecondition,
                       "ranks disagree on the model: {}; build the same model and options on every rank", difference);
  }
  return absl::OkStatus();
}

}  // namespace maypole::pipeline
