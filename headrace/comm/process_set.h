// SPDX-License-Identifier: Apache-2.0
// Collectives over an ordered subset of the ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/comm/buffer.h"
#include "headrace/comm/work.h"

namespace headrace::comm {

/// How a collective is to be done.
struct Options {
  std::string_view name = {};  ///< for messages; ordered sets pair operations by their order alone
  double prescale = 1.0;       ///< on each contribution; reductions only
  double postscale = 1.0;      ///< on the result; reductions only
  /// Of reductions of f32; the same on all ranks. Default: the context's.
  std::optional<Wire16> wire16 = {};
  /// After which the set fails with `timeout` on all ranks; default: the context's.
  std::optional<std::chrono::milliseconds> timeout = {};
  /// Do it on this thread before the call returns: saves the hand-over to the progress thread.
  bool blocking = false;
  /// `blocking` for this long at most; what is not done by then goes on without this thread.
  std::optional<std::chrono::milliseconds> blocking_limit = {};
  /// Not the user's: ranks that agree on what to do. Metrics count it apart.
  bool negotiates = false;
};

/// An ordered subset of the ranks with operations of its own. All its ranks submit the same
/// operations in the same order (`mismatch` on all of them otherwise); different sets do not wait
/// for one another. Thread-safe; several threads that submit must agree on the order themselves.
///
/// Counts are elements. A count of zero is legal everywhere. Results are the same bits on all ranks
/// and from run to run. Once an operation has failed the set is of no use: all later ones fail with
/// the same error.
class HR_API ProcessSet {
 public:
  struct State;
  explicit ProcessSet(std::unique_ptr<State> state);
  ~ProcessSet();
  ProcessSet(const ProcessSet&) = delete;
  ProcessSet& operator=(const ProcessSet&) = delete;

  int rank() const;  ///< this process among `world_ranks()`
  int size() const;
  std::span<const int> world_ranks() const;
  uint64_t id() const;  ///< the same on all ranks, of this set alone

  /// out = op over all contributions, on all ranks. `in` and `out` are the same or do not overlap.
  Work all_reduce(ConstBuffer in, Buffer out, Op op, const Options& options = {});
  Work all_reduce(Buffer inout, Op op, const Options& options = {}) {
    return all_reduce(inout, inout, op, options);
  }
  /// The same, with the result on `root` only; `out` of the others is not touched.
  Work reduce(ConstBuffer in, Buffer out, int root, Op op, const Options& options = {});
  /// inout of `root` to all.
  Work broadcast(Buffer inout, int root, const Options& options = {});
  /// Contributions one after the other in the order of ranks; out.count = in.count * size().
  Work all_gather(ConstBuffer in, Buffer out, const Options& options = {});
  /// The same with counts[r] elements of rank r.
  Work all_gather_v(ConstBuffer in, std::span<const uint64_t> counts, Buffer out,
                    const Options& options = {});
  /// out = this rank's part of the reduction; in.count = out.count * size().
  Work reduce_scatter(ConstBuffer in, Buffer out, Op op, const Options& options = {});
  /// The same with counts[r] elements for rank r.
  Work reduce_scatter_v(ConstBuffer in, std::span<const uint64_t> counts, Buffer out, Op op,
                        const Options& options = {});
  /// The q-th of size() equal parts to rank q, parts from all ranks in their order.
  Work all_to_all(ConstBuffer in, Buffer out, const Options& options = {});
  /// The same with send[q] elements to rank q and recv[q] from it; send of q to r is recv of r from
  /// q (undefined contents otherwise).
  Work all_to_all_v(ConstBuffer in, std::span<const uint64_t> send, Buffer out,
                    std::span<const uint64_t> recv, const Options& options = {});
  /// Contributions of equal count to `root`; `out` of the others is not used.
  Work gather(ConstBuffer in, Buffer out, int root, const Options& options = {});
  /// The q-th of size() equal parts of root's `in` to rank q.
  Work scatter(ConstBuffer in, Buffer out, int root, const Options& options = {});
  /// Done when all have called it.
  Work barrier(const Options& options = {});

  /// For layers on top whose ranks begin operations when one of them has something to do: ask the
  /// other ranks to begin the next operation as well.
  void call_others();
  /// Another rank has asked for an operation that this one has not begun.
  bool called() const;
  /// Sleep until that, until wake() of this rank, a failure of the set, or `most`; `stop` is asked
  /// once before, when a wake() would already be noticed; it must not ask called().
  void wait_called(std::chrono::microseconds most, const std::function<bool()>& stop);
  void wake() const;
  /// As Context::flush_metrics(), of this set.
  void flush_metrics() const;
  /// The rank of this set that the operation under way waits for, or did last; -1: none.
  int waits_for() const;
  /// What all operations of this set end with, once it has failed or a rank has closed it.
  std::optional<Error> failure() const;

  /// One message to `dst`, and one from `src` (any_source: whoever sends one): matched by the tag,
  /// in the order of sending, beside the collectives, which neither waits for. Both name the same
  /// number of bytes (`mismatch` otherwise). A send is done when its buffer may be used again.
  Work send(ConstBuffer in, int dst, int tag, const Options& options = {});
  Work recv(Buffer out, int src, int tag, const Options& options = {});
  static constexpr int any_source = -1;

  /// `rank` of this set has closed it, in order.
  bool closed(int rank) const;

  /// End all operations, pending and later, on all ranks with `cancelled` and this reason.
  void abort(std::string_view reason);

 private:
  friend class Context;  // split() numbers the sets that are made of one
  std::unique_ptr<State> state_;
};

}  // namespace headrace::comm
