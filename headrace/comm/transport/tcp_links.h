// SPDX-License-Identifier: Apache-2.0
// The connections of one process set, one or several streams to each other rank: moves bytes, knows
// no collective.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/comm/transport/segments.h"

namespace headrace::comm {

/// Byte streams in both directions between this rank and each other one. For one thread at a time,
/// but for wake(), which any may call. No call waits but doze().
class TcpLinks {
 public:
  static constexpr int kStreamsMax = 8;

  struct Options {
    int streams = 1;
    bool checks = false;  ///< bytes go in segments with a checksum each; the same on both sides
  };
  /// Connections by rank, the own entry empty, those of the first stream first. They are made
  /// non-blocking here.
  static Result<TcpLinks> make(int rank, std::vector<base::Fd> connections, Options options);
  static Result<TcpLinks> make(int rank, std::vector<base::Fd> connections) {
    return make(rank, std::move(connections), Options());
  }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int streams() const { return streams_; }
  bool checks() const { return checks_; }

  /// Hand bytes to the kernel; how many it took. 0: no room now, or the connection is broken.
  size_t send(int to, std::span<const iovec> parts, int stream = 0);
  /// Take bytes that are there; how many. 0: none now, or the connection is broken.
  size_t receive(int from, std::span<const iovec> parts, int stream = 0);
  /// As far as is known without asking the kernel: worth a try.
  bool may_send(int to, int stream = 0) const { return at(to, stream).writable; }
  bool may_receive(int from, int stream = 0) const { return at(from, stream).readable; }
  /// More than `bytes` (below 4096), those of so many send() of the other side, have come in the
  /// first stream and nobody has received them; or the end of all.
  bool has_bytes_after(int from, size_t bytes, size_t sends) const;
  /// Bytes that came from `from` were not those that it sent.
  bool damaged(int from) const;

  /// False once the other side is known not to read what is sent to it.
  bool takes(int to) const;
  /// Why the connection is of no more use; empty while it is. At the end of the stream the text
  /// says so.
  const std::string& broken(int rank) const;

  /// Ask the kernel which connections have become ready, wait for that `most`; false: none has.
  bool refresh(base::Micros most = base::Micros::zero());
  void wake();
  /// Readable when refresh() would find something.
  int ready_fd() const { return epoll_.get(); }

  /// Nothing more is sent: what was handed to the kernel goes out, then the end of the stream.
  void finish();
  /// Give the connections away, as make() got them.
  std::vector<base::Fd> release() &&;

 private:
  struct Link {
    base::Fd fd;
    bool readable = true;
    bool writable = true;
    bool ends = false;  // the end of the stream has come, maybe behind bytes
    bool takes = true;  // the other side still reads
    std::string broken;
    SegmentsOut out;
    SegmentsIn in;
  };
  TcpLinks(int rank, Options options, std::vector<Link> links, base::Fd epoll, base::Fd wake)
      : rank_(rank),
        ranks_(static_cast<int>(links.size()) / options.streams),
        streams_(options.streams),
        checks_(options.checks),
        links_(std::move(links)),
        epoll_(std::move(epoll)),
        wake_(std::move(wake)) {}
  Link& at(int rank, int stream) { return links_[static_cast<size_t>(stream * ranks_ + rank)]; }
  const Link& at(int rank, int stream) const {
    return links_[static_cast<size_t>(stream * ranks_ + rank)];
  }
  static size_t failed(Link& link, bool* ready, int error_number);
  static size_t send(Link& link, std::span<const iovec> parts);
  static size_t receive(Link& link, std::span<const iovec> parts);

  int rank_;
  int ranks_;
  int streams_;
  bool checks_;
  std::vector<Link> links_;
  base::Fd epoll_;
  base::Fd wake_;
};

namespace testing {
/// What rank `from` of any set sends next to rank `to` is damaged on its way; where there are
/// checksums.
void damage_next(int from, int to);
}  // namespace testing

}  // namespace headrace::comm
