// SPDX-License-Identifier: Apache-2.0
// Notice at once when another rank of the node dies.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/file.h"
#include "headrace/base/thread.h"

namespace headrace::comm {

/// Watch processes by their handles (pidfd); sleeps until one ends or this is destroyed. Where a
/// container refuses handles it looks into /proc ten times a second.
class Liveness {
 public:
  struct Peer {
    int rank = 0;
    int64_t pid = 0;
  };
  /// `on_death(rank)` is called on the watching thread, once per peer.
  static Result<std::unique_ptr<Liveness>> start(const std::vector<Peer>& peers,
                                                 std::function<void(int)> on_death);
  ~Liveness();

 private:
  struct Watched {
    int rank;
    base::Fd handle;
    int64_t pid;
    std::string born;  // of one without a handle: when it was started
  };
  Liveness(std::vector<Watched> peers, base::Fd wake, std::function<void(int)> on_death);
  static Result<Watched> watch(const Peer& peer);
  void run();

  std::vector<Watched> peers_;
  base::Fd wake_;
  std::function<void(int)> on_death_;
  base::Thread thread_;  // last: stops before what it uses goes
};

}  // namespace headrace::comm
