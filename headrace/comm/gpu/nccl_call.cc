// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/gpu/nccl_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

namespace headrace::comm {

namespace {

std::optional<int> type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::u8:
    case Dtype::boolean: return kNcclUint8;
    case Dtype::i8: return kNcclInt8;
    case Dtype::u32: return kNcclUint32;
    case Dtype::i32: return kNcclInt32;
    case Dtype::u64: return kNcclUint64;
    case Dtype::i64: return kNcclInt64;
    case Dtype::f16: return kNcclFloat16;
    case Dtype::bf16: return kNcclBfloat16;
    case Dtype::f32: return kNcclFloat32;
    case Dtype::f64: return kNcclFloat64;
    case Dtype::u16:
    case Dtype::i16: return std::nullopt;
  }
  return std::nullopt;
}

/// Booleans are bytes of 0 and 1: "or" is their maximum, "and" their minimum.
std::optional<int> op_of(Op op, Dtype dtype) {
  const bool boolean = dtype == Dtype::boolean;
  switch (op) {
    case Op::sum: return boolean ? kNcclMax : kNcclSum;
    case Op::product: return boolean ? kNcclMin : kNcclProd;
    case Op::max: return kNcclMax;
    case Op::min: return kNcclMin;
    case Op::average: return boolean ? std::nullopt : std::optional<int>(kNcclAvg);
    case Op::band: return boolean ? std::optional<int>(kNcclMin) : std::nullopt;
    case Op::bor: return boolean ? std::optional<int>(kNcclMax) : std::nullopt;
    case Op::bxor: return std::nullopt;
  }
  return std::nullopt;
}

Error refused(const Call& call, std::string_view why) {
  return {Errc::unsupported,
          fmt::format("comm: {}({}) of {} on a GPU: {}; copy the tensor to the CPU for it",
                      kind_name(call.kind), op_name(call.op), dtype_name(call.dtype), why)};
}

uint64_t sum_of(const std::vector<uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

bool all_equal(const std::vector<uint64_t>& counts) {
  return std::all_of(counts.begin(), counts.end(), [&](uint64_t one) { return one == counts[0]; });
}

/// Calls NCCL until one part fails.
class Parts {
 public:
  Parts(const NcclLibrary& nccl, const Call& call, const NcclTarget& target)
      : nccl_(nccl), call_(call), to_(target), bytes_(dtype_bytes(call.dtype)) {}

  int result() const { return result_; }

  void reduction(const NcclReduction& how) {
    int op = how.op;
    if (how.scale != 1.0) {
      scalar_of(how);
      note(nccl_.make_scaled_sum(&op, &scalar_, how.type, kNcclScalarOnHost, to_.comm));
    }
    if (!failed()) {
      reduce(how.type, op);
    }
    if (how.scale != 1.0 && !failed()) {
      note(nccl_.free_op(op, to_.comm));
    }
  }

  void movement() {
    switch (call_.kind) {
      case Kind::broadcast:
        note(nccl_.broadcast(call_.in, call_.out, call_.count * bytes_, kNcclUint8, call_.root,
                             to_.comm, to_.stream));
        break;
      case Kind::all_gather: all_gather(); break;
      case Kind::all_to_all:
        send_parts(call_.send_counts);
        receive_parts(call_.recv_counts);
        break;
      case Kind::gather:
        send(call_.in, call_.counts[self()], call_.root);
        if (to_.rank == call_.root) {
          receive_parts(call_.counts);
        }
        break;
      case Kind::scatter:
        if (to_.rank == call_.root) {
          send_parts(call_.counts);
        }
        receive(call_.out, call_.counts[self()], call_.root);
        break;
      case Kind::send: send(call_.in, call_.count, call_.root); break;
      case Kind::recv: receive(call_.out, call_.count, call_.root); break;
      default:  // a barrier
        note(nccl_.all_reduce(to_.scratch, to_.scratch, 1, kNcclUint8, kNcclMax, to_.comm,
                              to_.stream));
        break;
    }
  }

 private:
  size_t self() const { return static_cast<size_t>(to_.rank); }
  bool failed() const { return result_ != kNcclSuccess; }
  void note(int result) {
    if (!failed() && result != kNcclInProgress) {
      result_ = result;
    }
  }

  void scalar_of(const NcclReduction& how) {
    if (how.type == kNcclFloat64) {
      scalar_.f64 = how.scale;
    } else if (how.type == kNcclFloat32) {
      scalar_.f32 = static_cast<float>(how.scale);
    } else if (how.type == kNcclFloat16) {
      scalar_.bits = f16_of_f32(static_cast<float>(how.scale));
    } else {
      scalar_.bits = bf16_of_f32(static_cast<float>(how.scale));
    }
  }

  void reduce(int type, int op) {
    if (call_.kind == Kind::all_reduce) {
      note(nccl_.all_reduce(call_.in, call_.out, call_.count, type, op, to_.comm, to_.stream));
    } else if (call_.kind == Kind::reduce) {
      note(nccl_.reduce(call_.in, call_.out, call_.count, type, op, call_.root, to_.comm,
                        to_.stream));
    } else if (all_equal(call_.counts)) {
      note(nccl_.reduce_scatter(call_.in, call_.out, call_.counts[0], type, op, to_.comm,
                                to_.stream));
    } else {
      const std::byte* part = call_.in;
      for (size_t r = 0; r < call_.counts.size() && !failed(); ++r) {
        note(nccl_.reduce(part, r == self() ? call_.out : nullptr, call_.counts[r], type, op,
                          static_cast<int>(r), to_.comm, to_.stream));
        part += call_.counts[r] * bytes_;
      }
    }
  }

  void all_gather() {
    if (all_equal(call_.counts)) {
      note(nccl_.all_gather(call_.in, call_.out, call_.counts[0] * bytes_, kNcclUint8, to_.comm,
                            to_.stream));
      return;
    }
    std::byte* part = call_.out;
    for (size_t r = 0; r < call_.counts.size() && !failed(); ++r) {
      note(nccl_.broadcast(r == self() ? call_.in : part, part, call_.counts[r] * bytes_,
                           kNcclUint8, static_cast<int>(r), to_.comm, to_.stream));
      part += call_.counts[r] * bytes_;
    }
  }

  void send(const std::byte* data, uint64_t count, int rank) {
    if (count > 0 && !failed()) {
      note(nccl_.send(data, count * bytes_, kNcclUint8, rank, to_.comm, to_.stream));
    }
  }
  void receive(std::byte* data, uint64_t count, int rank) {
    if (count > 0 && !failed()) {
      note(nccl_.recv(data, count * bytes_, kNcclUint8, rank, to_.comm, to_.stream));
    }
  }
  void send_parts(const std::vector<uint64_t>& counts) {
    const std::byte* part = call_.in;
    for (size_t r = 0; r < counts.size(); ++r) {
      send(part, counts[r], static_cast<int>(r));
      part += counts[r] * bytes_;
    }
  }
  void receive_parts(const std::vector<uint64_t>& counts) {
    std::byte* part = call_.out;
    for (size_t r = 0; r < counts.size(); ++r) {
      receive(part, counts[r], static_cast<int>(r));
      part += counts[r] * bytes_;
    }
  }

  const NcclLibrary& nccl_;
  const Call& call_;
  const NcclTarget& to_;
  const size_t bytes_;
  union {
    double f64;
    float f32;
    uint16_t bits;
  } scalar_ = {};
  int result_ = kNcclSuccess;
};

}  // namespace

Result<NcclReduction> nccl_reduction(const Call& call, int ranks) {
  const auto type = type_of(call.dtype);
  const auto op = op_of(call.op, call.dtype);
  if (!type) {
    return refused(call, "NCCL has no 16-bit integers");
  }
  if (!op) {
    return refused(call, "NCCL has no such operation");
  }
  NcclReduction how = {*type, *op, call.prescale * call.postscale};
  if (how.scale != 1.0) {
    if (!is_floating(call.dtype) || (call.op != Op::sum && call.op != Op::average)) {
      return refused(call, "NCCL scales sums and averages of floats only");
    }
    how.scale /= call.op == Op::average ? ranks : 1;
    how.op = kNcclSum;
  }
  return how;
}

Result<void> check_nccl(const Call& call, int ranks) {
  if (is_reduction(call.kind)) {
    HR_TRY(nccl_reduction(call, ranks));
  }
  return {};
}

int nccl_enqueue(const NcclLibrary& nccl, const Call& call, const NcclTarget& target) {
  Parts parts(nccl, call, target);
  if (is_reduction(call.kind)) {
    const auto how = nccl_reduction(call, target.ranks);
    if (!how.ok()) {
      return kNcclInvalidArgument;  // check_nccl() has said why
    }
    parts.reduction(*how);
  } else {
    parts.movement();
  }
  return parts.result();
}

uint64_t elements_in(const Call& call, int rank) {
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
    case Kind::send: return call.count;
    case Kind::broadcast: return rank == call.root ? call.count : 0;
    case Kind::all_gather:
    case Kind::gather: return call.counts[static_cast<size_t>(rank)];
    case Kind::reduce_scatter: return sum_of(call.counts);
    case Kind::all_to_all: return sum_of(call.send_counts);
    case Kind::scatter: return rank == call.root ? sum_of(call.counts) : 0;
    default: return 0;
  }
}

uint64_t elements_out(const Call& call, int rank) {
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::recv: return call.count;
    case Kind::reduce: return rank == call.root ? call.count : 0;
    case Kind::broadcast: return rank == call.root ? 0 : call.count;
    case Kind::all_gather: return sum_of(call.counts);
    case Kind::gather: return rank == call.root ? sum_of(call.counts) : 0;
    case Kind::all_to_all: return sum_of(call.recv_counts);
    case Kind::reduce_scatter:
    case Kind::scatter: return call.counts[static_cast<size_t>(rank)];
    default: return 0;
  }
}

}  // namespace headrace::comm
