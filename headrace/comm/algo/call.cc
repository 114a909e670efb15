// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/algo/call.h"

#include <fmt/format.h>

#include <numeric>

#include "headrace/comm/algo/operation.h"

namespace headrace::comm {

std::string_view algorithm_name(Algorithm algorithm) {
  constexpr std::string_view kNames[] = {"unknown", "inline", "one_shot",
                                         "chunked", "tcp",    "nodes"};
  return kNames[static_cast<size_t>(algorithm)];
}

MovedBytes moved_bytes_of(const Call& call, int rank) {
  const auto sum = [](const std::vector<uint64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  };
  const auto own = [&] { return call.counts[static_cast<size_t>(rank)]; };
  const bool is_root = rank == call.root;
  uint64_t in = 0;
  uint64_t out = 0;
  switch (call.kind) {
    case Kind::barrier: break;
    case Kind::all_reduce: in = out = call.count; break;
    case Kind::reduce:
      in = call.count;
      out = is_root ? call.count : 0;
      break;
    case Kind::broadcast: (is_root ? in : out) = call.count; break;
    case Kind::all_gather:
      in = own();
      out = sum(call.counts);
      break;
    case Kind::gather:
      in = own();
      out = is_root ? sum(call.counts) : 0;
      break;
    case Kind::reduce_scatter:
      in = sum(call.counts);
      out = own();
      break;
    case Kind::scatter:
      in = is_root ? sum(call.counts) : 0;
      out = own();
      break;
    case Kind::all_to_all:
      in = sum(call.send_counts);
      out = sum(call.recv_counts);
      break;
    case Kind::send: in = call.count; break;
    case Kind::recv: out = call.count; break;
  }
  return {in * dtype_bytes(call.dtype), out * dtype_bytes(call.dtype)};
}

std::string_view kind_name(Kind kind) {
  constexpr std::string_view kNames[] = {"barrier",    "all_reduce",     "reduce",     "broadcast",
                                         "all_gather", "reduce_scatter", "all_to_all", "gather",
                                         "scatter",    "send",           "recv"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view wire16_name(Wire16 wire16) {
  constexpr std::string_view kNames[] = {"none", "f16", "bf16"};
  return kNames[static_cast<size_t>(wire16)];
}

namespace {

bool has_root(Kind kind) {
  return kind == Kind::reduce || kind == Kind::broadcast || kind == Kind::gather ||
         kind == Kind::scatter;
}

}  // namespace

std::string describe(Kind kind, Op op, Dtype dtype, uint64_t count, int root, std::string_view name,
                     Wire16 wire16) {
  std::string text(kind_name(kind));
  if (is_reduction(kind)) {
    text += fmt::format("({})", op_name(op));
  }
  if (has_root(kind)) {
    text += fmt::format(" root {}", root);
  }
  if (kind == Kind::send) {
    text += fmt::format(" to rank {}", root);
  }
  if (kind == Kind::recv) {
    text += root < 0 ? " from any rank" : fmt::format(" from rank {}", root);
  }
  if (kind != Kind::barrier) {
    text += fmt::format(" {}[{}]", dtype_name(dtype), count);
  }
  if (wire16 != Wire16::none) {
    text += fmt::format(" as {}", wire16_name(wire16));
  }
  if (!name.empty()) {
    text += fmt::format(" \"{}\"", name);
  }
  return text;
}

std::string describe_difference(uint64_t sequence, std::string_view one, int one_rank,
                                std::string_view other, int other_rank) {
  return fmt::format("operation {} is {} on rank {} and {} on rank {}{}", sequence, one, one_rank,
                     other, other_rank,
                     one == other ? ", with other counts for the single ranks" : "");
}

}  // namespace headrace::comm
