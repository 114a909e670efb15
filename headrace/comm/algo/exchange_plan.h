// SPDX-License-Identifier: Apache-2.0
// A collective as moves of bytes between pairs of ranks, with at most one reduction in the middle.
//
// All large collectives are one of these: contributions go straight to the rank that needs them,
// it puts them together in the order of the fixed tree, and its result goes straight to all. No
// move depends on the sizes or the transport, so neither do the bits of the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "headrace/comm/algo/call.h"

namespace headrace::comm {

struct ConstPiece {
  const std::byte* data = nullptr;
  size_t bytes = 0;
};
struct Piece {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

/// Moves as one rank sees them. Pieces go chunk by chunk, the k-th chunks of all pieces in step k.
struct ExchangePlan {
  std::vector<ConstPiece> send;  ///< to each rank, its own entry empty
  ConstPiece own;                ///< own contribution to the own part
  Piece result;             ///< where the own part's result goes here; may be empty (data null)
  size_t result_bytes = 0;  ///< of the own part
  bool reduces = false;     ///< own part = tree over all ranks' contributions; else a copy of `own`
  bool publishes = false;   ///< others take the own part's result
  int publish_to = -1;      ///< the only one who does; -1: all
  std::vector<Piece> take_result;  ///< other ranks' results
  std::vector<Piece> take_sent;    ///< what other ranks send, without a reduction
  size_t chunk_bytes = 0;          ///< a multiple of the element size
  uint32_t steps = 0;              ///< of this rank; the set does the greatest of all

  bool needs_agreement = false;  ///< `steps` is not the same on all ranks
};

/// Elements of `count` that each of `ranks` reduces: equal parts of whole cache lines as far as
/// possible.
std::vector<uint64_t> equal_parts(uint64_t count, int ranks, size_t element_bytes);

/// Elements before each part: as `given`, or one behind the other.
std::vector<uint64_t> offsets_of(const std::vector<uint64_t>& counts,
                                 const std::vector<uint64_t>& given = {});

/// The plan of `rank`. `chunk_bytes_max` bounds a chunk.
ExchangePlan plan_exchange(const Call& call, int rank, int ranks, size_t chunk_bytes_max);

/// The plan of an all_reduce or reduce in which each rank that wants the result puts all
/// contributions together itself: more bytes, one exchange instead of two.
ExchangePlan plan_direct(const Call& call, int rank, int ranks);

/// Bytes that each rank puts when the whole collective goes in one piece; nullopt for kinds whose
/// ranks do not know one another's sizes.
std::optional<size_t> one_piece_bytes(const Call& call);

}  // namespace headrace::comm
