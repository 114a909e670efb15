// SPDX-License-Identifier: Apache-2.0
// The connections of one process set, one to each other rank: moves bytes, knows no collective.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"

namespace headrace::comm {

/// Byte streams in both directions between this rank and each other one. For one thread at a time,
/// but for wake(), which any may call. No call waits but doze().
class TcpLinks {
 public:
  /// Connections by rank, the own entry empty. They are made non-blocking here.
  static Result<TcpLinks> make(int rank, std::vector<base::Fd> connections);

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(links_.size()); }

  /// Hand bytes to the kernel; how many it took. 0: no room now, or the connection is broken.
  size_t send(int to, std::span<const iovec> parts);
  /// Take bytes that are there; how many. 0: none now, or the connection is broken.
  size_t receive(int from, std::span<const iovec> parts);
  /// As far as is known without asking the kernel: worth a try.
  bool may_send(int to) const { return at(to).writable; }
  bool may_receive(int from) const { return at(from).readable; }
  /// More than `bytes` (below 4096) have come that nobody has received, or the end of all.
  bool has_bytes_after(int from, size_t bytes) const;

  /// False once the other side is known not to read what is sent to it.
  bool takes(int to) const { return at(to).takes; }
  /// Why the connection is of no more use; empty while it is. At the end of the stream the text
  /// says so.
  const std::string& broken(int rank) const { return at(rank).broken; }

  /// Ask the kernel which connections have become ready, wait for that `most`; false: none has.
  bool refresh(base::Micros most = base::Micros::zero());
  void wake();
  /// Readable when refresh() would find something.
  int ready_fd() const { return epoll_.get(); }

  /// Nothing more is sent: what was handed to the kernel goes out, then the end of the stream.
  void finish();
  /// Give the connections away, by rank.
  std::vector<base::Fd> release() &&;

 private:
  struct Link {
    base::Fd fd;
    bool readable = true;
    bool writable = true;
    bool ends = false;  // the end of the stream has come, maybe behind bytes
    bool takes = true;  // the other side still reads
    std::string broken;
  };
  TcpLinks(int rank, std::vector<Link> links, base::Fd epoll, base::Fd wake)
      : rank_(rank), links_(std::move(links)), epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  Link& at(int rank) { return links_[static_cast<size_t>(rank)]; }
  const Link& at(int rank) const { return links_[static_cast<size_t>(rank)]; }
  static size_t failed(Link& link, bool* ready, int error_number);

  int rank_;
  std::vector<Link> links_;
  base::Fd epoll_;
  base::Fd wake_;
};

}  // namespace headrace::comm
