// SPDX-License-Identifier: Apache-2.0
#pragma once

// Gives a worker's state to newcomers, piece by piece, each with its digest. Several workers that hold the same state are sources at
// once; whoever fetches takes from each what it can give (state_fetch.h).

#include "maypole/base/fd.h"
#include "maypole/base/mutex.h"
#include "maypole/elastic/state_pieces.h"
#include "maypole/net/proof.h"

#include <cstdint>
#include <list>
#include <thread>

namespace maypole::elastic {

/// In net::Greeting::purpose; the context of the proof keeps these connections apart from those of a ring.
inline constexpr std::uint8_t kStatePurpose = 4;

class StateSource {
 public:
  struct Options {
    int listener = -1;  // not taken over
    net::Credentials credentials;
    std::uint32_t epoch = 0;  // of the ring whose members may ask
  };

  /// The memory stays as it is until this object is gone.
  StateSource(Options options, StatePieces pieces);
  /// Hangs up on whoever still fetches.
  ~StateSource();
  StateSource(const StateSource&) = delete;
  StateSource& operator=(const StateSource&) = delete;

 private:
  struct Guest {
    base::Fd fd;
    std::jthread thread;  // last: it uses the socket
  };

  void accept_guests();
  void serve(int fd) const;

  const Options options_;
  const StatePieces pieces_;
  base::Fd stop_;  // an eventfd that ends the thread
  base::Mutex mutex_;
  std::list<Guest> guests_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace maypole::elastic
