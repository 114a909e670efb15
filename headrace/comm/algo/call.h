// SPDX-License-Identifier: Apache-2.0
// One collective operation of one rank, as the front hands it to an algorithm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/random.h"
#include "headrace/comm/buffer.h"

namespace headrace::comm {

enum class Kind : uint8_t {
  barrier,
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  send,  ///< `root` is the rank at the other end; beside the collectives' order
  recv,  ///< the same; -1: any
};

std::string_view kind_name(Kind kind);
/// It has an `op`.
constexpr bool is_reduction(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
}

/// What a rank contributes and where it wants its result. `counts`, where a kind has them, are
/// elements by rank and the same on all ranks; all_to_all has one list of its own per direction.
struct Call {
  Kind kind = Kind::barrier;
  Op op = Op::sum;
  Dtype dtype = Dtype::u8;
  int root = 0;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  uint64_t count = 0;            ///< elements: see the kinds in plan_exchange
  std::vector<uint64_t> counts;  ///< all_gather, gather: of each rank; reduce_scatter, scatter: for
  std::vector<uint64_t> send_counts;  ///< all_to_all
  std::vector<uint64_t> recv_counts;  ///< all_to_all
  /// Elements before the part of each rank in the buffer that has parts of several, where they do
  /// not lie one behind the other: in `in` (reduce_scatter, scatter, all_to_all), in `out`
  /// (all_gather, gather, all_to_all).
  std::vector<uint64_t> in_offsets = {};
  std::vector<uint64_t> out_offsets = {};
  double prescale = 1.0;
  double postscale = 1.0;  ///< with the 1/n of `average` in it
  bool averages = false;   ///< `op` was average, and is sum
  std::string name;
  /// Type of the results of a reduction, where it is not `dtype`: f32 for a node's part of a sum of
  /// 16-bit floats. Only reduce in one piece and reduce_scatter know it.
  std::optional<Dtype> out_dtype = {};
  Wire16 wire16 = Wire16::none;  ///< of a reduction of f32
  bool negotiates = false;       ///< Options::negotiates
  /// A part of another call: which one the ranks compare and name, and which part of it this is.
  const Call* told = nullptr;
  uint32_t part = 0;

  Dtype result_dtype() const { return out_dtype.value_or(dtype); }
  const Call& as_told() const { return told != nullptr ? told->as_told() : *this; }
  Op op_as_told() const { return averages ? Op::average : op; }

  /// That of a call without `counts`.
  static uint64_t fingerprint_of(Kind kind, Op op, Dtype dtype, int root, uint64_t count,
                                 Wire16 wire16) {
    const uint64_t small = static_cast<uint64_t>(kind) | static_cast<uint64_t>(op) << 8U |
                           static_cast<uint64_t>(dtype) << 16U |
                           static_cast<uint64_t>(root) << 24U |
                           static_cast<uint64_t>(wire16) << 60U;
    return base::derive_seed(small, count);
  }
  /// What must be equal on all ranks, mixed into 64 bits.
  uint64_t fingerprint() const {
    if (told != nullptr) {
      return base::derive_seed(told->fingerprint(), part);
    }
    uint64_t mixed = fingerprint_of(kind, op_as_told(), dtype, root, count, wire16);
    for (const uint64_t one : counts) {
      mixed = base::derive_seed(mixed, one);
    }
    return mixed;
  }
};

/// What `rank` of the set puts in, and what it gets.
struct MovedBytes {
  uint64_t in = 0;
  uint64_t out = 0;
};
MovedBytes moved_bytes_of(const Call& call, int rank);

/// "all_reduce(sum) float32[1024] as bf16 "grad.weight"".
std::string describe(Kind kind, Op op, Dtype dtype, uint64_t count, int root, std::string_view name,
                     Wire16 wire16 = Wire16::none);

/// What two ranks do differently, by their descriptions: what only the fingerprints tell apart,
/// too.
std::string describe_difference(uint64_t sequence, std::string_view one, int one_rank,
                                std::string_view other, int other_rank);

}  // namespace headrace::comm
