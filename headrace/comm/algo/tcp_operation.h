// SPDX-License-Identifier: Apache-2.0
// A collective over the connections of a set: the moves of an ExchangePlan as byte streams.
//
// To each rank goes a header, then this rank's contribution to that rank's part, then the result of
// this rank's part as far as it is there. Both sides know the lengths from the call, so nothing but
// the header comes between the bytes, which are taken straight to where they belong.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "headrace/comm/algo/exchange_plan.h"
#include "headrace/comm/algo/node_tree.h"
#include "headrace/comm/algo/operation.h"
#include "headrace/comm/transport/tcp_links.h"

namespace headrace::comm {

/// What a rank says at the beginning of an operation. Little-endian on the wire, as all machines
/// that run this are.
struct TcpHeader {
  uint64_t flag =
      0;  ///< fingerprint with the number mixed in; kGoodbye: the rank has closed the set
  uint64_t sequence = 0;
  uint64_t contribution_bytes = 0;  ///< that follow for the receiver
  uint64_t result_bytes = 0;        ///< that follow after them
  uint64_t count = 0;
  uint8_t kind = 0;
  uint8_t op = 0;
  uint8_t dtype = 0;
  uint8_t wire16 = 0;
  int32_t root = 0;
  char name[80] = {};  ///< cut off, with a zero at the end

  static constexpr uint64_t kGoodbye = 0;
  /// `sequence` of the goodbye to a set that has failed: with what is told beside the stream.
  static constexpr uint64_t kFailed = 1;
};
static_assert(sizeof(TcpHeader) == 128);

/// What a rank remembers of a set from operation to operation.
struct TcpSetState {
  /// One other rank. Its header of an operation in which it sends nothing is waited for by nobody;
  /// it comes before whatever it sends later.
  struct Peer {
    std::deque<TcpHeader> expected;    ///< what this rank says itself; headers not yet taken
    TcpHeader header;                  ///< the one that is coming
    size_t header_bytes = 0;           ///< of it that are there
    std::atomic<bool> closed = false;  ///< has said goodbye
    std::atomic<bool> ended = false;   ///< nothing more comes from it
    bool failed = false;               ///< its set has failed; why is on its way
  };
  TcpSetState(int ranks, size_t small_bytes_in)
      : peers(static_cast<size_t>(ranks)), small_bytes(small_bytes_in) {}

  /// How messages call a rank of the set: by its number in the world.
  int told(int rank) const {
    return world_ranks.empty() ? rank : world_ranks[static_cast<size_t>(rank)];
  }

  uint64_t sequence = 0;
  std::vector<int> world_ranks;
  std::vector<Peer> peers;
  size_t small_bytes;              ///< up to here each rank puts all contributions together itself
  std::vector<std::byte> staging;  ///< contributions of others, on their way into a reduction
};

/// Ranks of a set among which an operation goes, and the tree over them.
struct TcpGroup {
  std::vector<int> ranks;  ///< in the order of the call's parts; this rank is one of them
  NodeTree tree;           ///< over places in `ranks`
};

/// Start the next operation of a set; all ranks do so in the same order, and those that are not in
/// the group count it in `state.sequence`. All of these must outlive it, and it must end before the
/// next one of the set starts.
std::unique_ptr<Operation> start_tcp_operation(const Call& call, const TcpGroup& group,
                                               TcpLinks& links, TcpSetState& state);

/// Between two operations: a rank has sent the header of the next one.
bool next_tcp_begun(const TcpLinks& links, const TcpSetState& state);

/// Tell all ranks, behind what was sent before, that this one takes part no longer.
void say_goodbye(TcpLinks& links, bool failed);

}  // namespace headrace::comm
