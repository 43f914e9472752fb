// SPDX-License-Identifier: Apache-2.0
#include "maypole/elastic/state_fetch.h"

#include "maypole/base/fd.h"
#include "maypole/base/mutex.h"
#include "maypole/base/status.h"
#include "maypole/elastic/state_source.h"
#include "maypole/net/address.h"
#include "maypole/net/machine.h"
#include "maypole/net/socket.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

namespace maypole::elastic {

namespace {

constexpr std::size_t kAhead = 2;  // pieces asked of a source before the first has come: it never waits for the next question
constexpr std::size_t kSign = std::size_t{64} << 10;  // bytes that count as a sign of life

/// What is still to be fetched, for the threads of all sources.
class MissingPieces {
 public:
  explicit MissingPieces(std::size_t num_pieces) : num_pieces_(num_pieces), num_missing_(num_pieces) {}

  /// A piece to ask for. Without `wait` nothing where all are asked for; with it only when all are here.
  std::optional<std::size_t> take(bool wait) {
    base::MutexLock lock(mutex_);
    while (wait && returned_.empty() && next_ == num_pieces_ && num_missing_ > 0) {
      changed_.wait(mutex_);  // what others have asked for may come back
    }
    if (!returned_.empty()) {
      const std::size_t piece = returned_.front();
      returned_.pop_front();
      return piece;
    }
    return next_ < num_pieces_ ? std::optional(next_++) : std::nullopt;
  }
  void done() {
    base::MutexLock lock(mutex_);
    --num_missing_;
    changed_.notify_all();
  }
  void give_back(const std::deque<std::size_t>& pieces) {
    base::MutexLock lock(mutex_);
    returned_.insert(returned_.end(), pieces.begin(), pieces.end());
    changed_.notify_all();
  }
  [[nodiscard]] std::size_t num_missing() {
    base::MutexLock lock(mutex_);
    return num_missing_;
  }

 private:
  const std::size_t num_pieces_;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::size_t> returned_ ABSL_GUARDED_BY(mutex_);
  std::size_t num_missing_ ABSL_GUARDED_BY(mutex_);
};

/// One source, in a thread of its own.
class Fetcher {
 public:
  Fetcher(const FetchOptions& options, const FetchSource& source, const StatePieces& into, MissingPieces& missing)
      : options_(options),
        source_(source),
        into_(into),
        missing_(missing),
        what_(fmt::format("rank {} at {}", source.rank, source.address)) {}

  void run() {
    status_ = fetch();
    missing_.give_back(asked_);
  }

  // --- after run() ---
  [[nodiscard]] const absl::Status& status() const { return status_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t bytes_kept() const { return bytes_kept_; }

 private:
  [[nodiscard]] base::TimePoint deadline() const { return std::chrono::steady_clock::now() + options_.silence; }

  [[nodiscard]] absl::StatusOr<base::Fd> connect() const {
    MAYPOLE_ASSIGN_OR_RETURN(const net::HostPort target, net::parse_host_port(source_.address));
    MAYPOLE_ASSIGN_OR_RETURN(const std::vector<net::SocketAddress> addresses, net::resolve(target, deadline()));
    absl::Status last = base::error(absl::StatusCode::kUnavailable, "{} has no address", what_);
    for (const net::SocketAddress& address : addresses) {
      std::optional<net::SocketAddress> from;
      if (!options_.interface.empty() && !address.is_loopback()) {
        MAYPOLE_ASSIGN_OR_RETURN(from, net::interface_address(options_.interface, address.family()));
      }
      auto fd = net::connect_tcp(address, from, deadline());
      if (fd.ok()) {
        return fd;
      }
      last = fd.status();
    }
    return last;
  }

  [[nodiscard]] absl::Status fetch() {
    MAYPOLE_ASSIGN_OR_RETURN(const base::Fd fd, connect());
    const net::Greeting greeting{.purpose = kStatePurpose, .epoch = options_.epoch, .from = options_.rank, .to = source_.rank};
    MAYPOLE_RETURN_IF_ERROR(net::prove_as_initiator(fd.get(), options_.credentials, greeting, deadline(), what_));
    net::tune_tcp(fd.get());
    PiecesOffer offer;
    MAYPOLE_RETURN_IF_ERROR(net::receive_all(fd.get(), std::as_writable_bytes(std::span(&offer, 1)), deadline(), what_));
    if (offer.layout != into_.layout() || offer.num_pieces != into_.size()) {
      return base::error(absl::StatusCode::kFailedPrecondition, "{} holds a state of another layout", what_);
    }
    while (true) {
      while (asked_.size() < kAhead) {
        const std::optional<std::size_t> piece = missing_.take(asked_.empty());
        if (!piece) {
          break;
        }
        asked_.push_back(*piece);
        const PieceRequest request{*piece, digest_of(into_[*piece])};
        MAYPOLE_RETURN_IF_ERROR(net::send_all(fd.get(), std::as_bytes(std::span(&request, 1)), deadline(), what_));
      }
      if (asked_.empty()) {
        return absl::OkStatus();
      }
      MAYPOLE_RETURN_IF_ERROR(receive(fd.get()));
    }
  }

  [[nodiscard]] absl::Status receive(int fd) {
    PieceAnswer answer;
    MAYPOLE_RETURN_IF_ERROR(net::receive_all(fd, std::as_writable_bytes(std::span(&answer, 1)), deadline(), what_));
    const std::size_t index = asked_.front();
    const std::span<std::byte> piece = into_[index];
    if (answer.index != index || (answer.bytes != 0 && answer.bytes != piece.size())) {
      return base::error(absl::StatusCode::kInternal, "{} gave piece {} where {} was asked for", what_, answer.index, index);
    }
    if (answer.bytes > 0) {
      for (std::size_t at = 0; at < piece.size(); at += kSign) {
        MAYPOLE_RETURN_IF_ERROR(net::receive_all(fd, piece.subspan(at, std::min(kSign, piece.size() - at)), deadline(), what_));
      }
      if (digest_of(piece) != answer.digest) {
        return base::error(absl::StatusCode::kDataLoss, "a piece of the state arrived damaged from {}", what_);
      }
    }
    (answer.bytes > 0 ? bytes_ : bytes_kept_) += piece.size();
    asked_.pop_front();
    missing_.done();
    return absl::OkStatus();
  }

  const FetchOptions& options_;
  const FetchSource& source_;
  const StatePieces& into_;
  MissingPieces& missing_;
  const std::string what_;
  std::deque<std::size_t> asked_;  // in this order, not here yet
  absl::Status status_;
  std::uint64_t bytes_ = 0;
  std::uint64_t bytes_kept_ = 0;
};

}  // namespace

absl::StatusOr<FetchReport> fetch_state(const FetchOptions& options, const std::vector<FetchSource>& sources, const StatePieces& into) {
  MissingPieces missing(into.size());
  std::deque<Fetcher> fetchers;  // which never moves them
  for (const FetchSource& source : sources) {
    fetchers.emplace_back(options, source, into, missing);
  }
  {
    std::vector<std::jthread> threads;
    for (Fetcher& fetcher : fetchers) {
      threads.emplace_back([&fetcher] { fetcher.run(); });
    }
  }
  FetchReport report;
  for (const Fetcher& fetcher : fetchers) {
    report.bytes_from.push_back(fetcher.bytes());
    report.bytes_kept += fetcher.bytes_kept();
    if (!fetcher.status().ok()) {
      report.lost.push_back(base::message(fetcher.status()));
    }
  }
  if (missing.num_missing() > 0) {
    return base::error(absl::StatusCode::kUnavailable, "no source of the state is left; the last said: {}",
                       report.lost.empty() ? "nothing" : report.lost.back());
  }
  return report;
}

}  // namespace maypole::elastic
