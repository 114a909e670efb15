// SPDX-License-Identifier: Apache-2.0
// What a NamedSet does with the tensors that all ranks have ready.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "headrace/comm/algo/adasum.h"
#include "headrace/comm/named_set_internal.h"

namespace headrace::comm {

namespace {

std::byte* bytes_of(void* memory) { return static_cast<std::byte*>(memory); }

Error no_memory(const std::string& name, uint64_t bytes) {
  return {Errc::out_of_memory,
          fmt::format("comm: no memory for the {} bytes of the output of \"{}\"", bytes, name)};
}

/// Memory for the output, where the caller has given none.
Result<Buffer> output_of(NamedState& ours, uint64_t rows) {
  const Request& request = ours.call.tensor->request;
  const uint64_t count = rows * request.row_elements();
  ours.rows = rows;
  if (ours.call.output == nullptr) {
    const uint64_t bytes = count * dtype_bytes(request.dtype);
    ours.owned.reset(new (std::nothrow) std::byte[std::max<uint64_t>(bytes, 1)]);
    if (ours.owned == nullptr) {
      return no_memory(ours.call.tensor->name, bytes);
    }
    ours.owned_bytes = bytes;
    return Buffer{ours.owned.get(), count, request.dtype};
  }
  return Buffer{ours.call.output, count, request.dtype};
}

ConstBuffer input_of(const NamedState& ours) {
  return {ours.call.input, ours.call.tensor->request.elements(), ours.call.tensor->request.dtype};
}

template <class T>
void fill(std::byte* memory, uint64_t count, T value) {
  std::fill_n(reinterpret_cast<T*>(memory), count, value);
}

template <class T>
void fill_extreme(std::byte* memory, uint64_t count, Op op) {
  using Limits = std::numeric_limits<T>;
  constexpr T least = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  constexpr T most = Limits::has_infinity ? Limits::infinity() : Limits::max();
  fill(memory, count, op == Op::min ? most : op == Op::max ? least : T{1});
}

/// What changes nothing when it is put together with others.
std::vector<std::byte> neutral(Dtype dtype, Op op, uint64_t count) {
  std::vector<std::byte> memory(count * dtype_bytes(dtype));
  if (op == Op::band) {
    std::fill(memory.begin(), memory.end(), std::byte{0xFF});
  }
  if (op != Op::min && op != Op::max && op != Op::product) {
    return memory;
  }
  constexpr uint16_t kHalf[] = {0x7C00, 0xFC00, 0x3C00};   // inf, -inf, 1
  constexpr uint16_t kBHalf[] = {0x7F80, 0xFF80, 0x3F80};  // inf, -inf, 1
  const size_t which = op == Op::min ? 0 : op == Op::max ? 1 : 2;
  std::byte* to = memory.data();
  switch (dtype) {
    case Dtype::u8: fill_extreme<uint8_t>(to, count, op); break;
    case Dtype::i8: fill_extreme<int8_t>(to, count, op); break;
    case Dtype::u16: fill_extreme<uint16_t>(to, count, op); break;
    case Dtype::i16: fill_extreme<int16_t>(to, count, op); break;
    case Dtype::u32: fill_extreme<uint32_t>(to, count, op); break;
    case Dtype::i32: fill_extreme<int32_t>(to, count, op); break;
    case Dtype::u64: fill_extreme<uint64_t>(to, count, op); break;
    case Dtype::i64: fill_extreme<int64_t>(to, count, op); break;
    case Dtype::f16: fill(to, count, kHalf[which]); break;
    case Dtype::bf16: fill(to, count, kBHalf[which]); break;
    case Dtype::f32: fill_extreme<float>(to, count, op); break;
    case Dtype::f64: fill_extreme<double>(to, count, op); break;
    case Dtype::boolean: fill<uint8_t>(to, count, op == Op::max ? 0 : 1); break;
  }
  return memory;
}

}  // namespace

Options NamedSet::State::options_of(const ReadyTensor& tensor) const {
  return {.name = tensor->name,
          .prescale = tensor->any().prescale,
          .postscale = tensor->any().postscale,
          .wire16 = tensor->any().wire16,
          .blocking = true,
          .blocking_limit = kDriveMost};
}

std::string NamedSet::State::transfer_name(NamedKind kind) const {
  return (context.topology().nodes > 1 ? "TCP_" : "SHM_") + upper_name(kind);
}

Op NamedSet::State::op_of(const ReadyTensor& tensor, Options& how) const {
  const Op op = tensor->any().op;
  if (op != Op::average || !options.join_active) {
    return op;
  }
  const auto active = std::count_if(tensor->requests.begin(), tensor->requests.end(),
                                    [](const auto& one) { return one != nullptr; });
  how.postscale /= static_cast<double>(active);
  return Op::sum;
}

Result<void> NamedSet::State::run_response(const Response& response) {
  switch (response.what) {
    case Response::What::shutdown: {
      is_shut_down = true;
      const Error& cause = *response.error;
      Error error(cause.code(),
                  fmt::format("comm: the process set has been shut down by rank {}{}{}",
                              set->world_ranks()[static_cast<size_t>(response.rank)],
                              cause.message().empty() ? "" : ": ", cause.message()));
      Origin origin;
      origin.rank = set->world_ranks()[static_cast<size_t>(response.rank)];
      error.set_origin(std::move(origin));
      return error;
    }
    case Response::What::joined: {
      NamedPending ours;
      {
        base::MutexLock lock(mutex);
        ours = std::exchange(joining, nullptr);
      }
      if (ours != nullptr) {
        ours->last_joined = set->world_ranks()[static_cast<size_t>(response.rank)];
        ours->complete({});
      }
      return {};
    }
    case Response::What::fail:
      for (const ReadyTensor& tensor : response.tensors) {
        if (const auto ours = take_pending(tensor->name)) {
          record_ended(*ours, false);
          ours->complete(*response.error);
        }
      }
      return {};
    case Response::What::run: break;
  }
  std::vector<NamedPending> ours;
  for (const ReadyTensor& tensor : response.tensors) {
    ours.push_back(take_pending(tensor->name));
  }
  record_started(ours);
  Result<void> good;
  if (response.tensors.size() == 1) {
    trace.activity(response, transfer_name(response.tensors.front()->any().kind));
  }
  if (response.tensors.size() > 1) {
    good = run_fused(response, ours);
  } else if (response.tensors.front()->any().kind == NamedKind::all_reduce) {
    good = run_all_reduce(response.tensors.front(), ours.front().get());
  } else if (ours.front() != nullptr) {
    good = run_one(response.tensors.front(), *ours.front());
  }
  set->flush_metrics();
  for (const NamedPending& one : ours) {
    if (one != nullptr) {
      record_ended(*one, good.ok());
      one->complete(good);
    }
  }
  return good;
}

Result<void> NamedSet::State::run_one(const ReadyTensor& tensor, NamedState& ours) {
  switch (tensor->any().kind) {
    case NamedKind::adasum: return run_adasum(tensor, ours);
    case NamedKind::all_gather: return run_all_gather(tensor, ours);
    case NamedKind::broadcast: return run_broadcast(tensor, ours);
    case NamedKind::all_to_all: return run_all_to_all(tensor, ours);
    case NamedKind::reduce_scatter: return run_reduce_scatter(tensor, ours);
    case NamedKind::add_set: return run_add_set(tensor, ours);
    default: return {};
  }
}

Result<void> NamedSet::State::run_all_reduce(const ReadyTensor& tensor, NamedState* ours) {
  Options how = options_of(tensor);
  const Op op = op_of(tensor, how);
  const Request& request = tensor->any();
  if (ours == nullptr) {  // this rank has joined
    auto memory = neutral(request.dtype, op, request.elements());
    how.prescale = 1.0;
    return finish(
        set->all_reduce(Buffer{memory.data(), request.elements(), request.dtype}, op, how),
        "in an allreduce");
  }
  ours->rows = request.rows();
  return finish(
      set->all_reduce(input_of(*ours), Buffer{ours->call.output, request.elements(), request.dtype},
                      op, how),
      "in an allreduce");
}

Result<void> NamedSet::State::run_fused(const Response& response,
                                        const std::vector<NamedPending>& ours) {
  const ReadyTensor& first = response.tensors.front();
  Options how = options_of(first);
  const Op op = op_of(first, how);
  const Dtype dtype = first->any().dtype;
  uint64_t count = 0;
  for (const ReadyTensor& tensor : response.tensors) {
    count += tensor->any().elements();
  }
  const size_t element = dtype_bytes(dtype);
  if (fusion.size() < count * element) {
    fusion.resize(count * element);
  }
  trace.activity(response, "MEMCPY_IN_FUSION_BUFFER");
  std::byte* at = fusion.data();
  for (size_t i = 0; i < ours.size(); ++i) {
    const uint64_t elements = response.tensors[i]->any().elements();
    if (elements > 0) {  // only what no rank lacks is fused
      std::memcpy(at, ours[i]->call.input, elements * element);
    }
    at += elements * element;
  }
  trace.activity(response, transfer_name(NamedKind::all_reduce));
  HR_TRY(finish(set->all_reduce(Buffer{fusion.data(), count, dtype}, op, how), "in an allreduce"));
  trace.activity(response, "MEMCPY_OUT_FUSION_BUFFER");
  at = fusion.data();
  for (size_t i = 0; i < ours.size(); ++i) {
    const uint64_t elements = response.tensors[i]->any().elements();
    if (elements > 0) {
      std::memcpy(ours[i]->call.output, at, elements * element);
    }
    at += elements * element;
  }
  return {};
}

Result<void> NamedSet::State::run_adasum(const ReadyTensor& tensor, NamedState& ours) {
  const ConstBuffer in = input_of(ours);
  const auto ranks = static_cast<size_t>(set->size());
  std::vector<std::byte> all(in.size_bytes() * ranks);
  HR_TRY(finish(
      set->all_gather(in, Buffer{all.data(), in.count * ranks, in.dtype}, options_of(tensor)),
      "in an Adasum"));
  std::vector<const std::byte*> sources;
  for (size_t rank = 0; rank < ranks; ++rank) {
    sources.push_back(all.data() + rank * in.size_bytes());
  }
  adasum_tree(in.dtype, sources, bytes_of(ours.call.output), in.count, tensor->any().prescale,
              tensor->any().postscale);
  return {};
}

Result<void> NamedSet::State::run_all_gather(const ReadyTensor& tensor, NamedState& ours) {
  std::vector<uint64_t> counts;
  uint64_t rows = 0;
  for (const auto& request : tensor->requests) {
    counts.push_back(request->elements());
    ours.received_splits.push_back(static_cast<int64_t>(request->rows()));
    rows += request->rows();
  }
  HR_TRY(const Buffer out, output_of(ours, rows));
  return finish(set->all_gather_v(input_of(ours), counts, out, options_of(tensor)),
                "in an allgather");
}

Result<void> NamedSet::State::run_broadcast(const ReadyTensor& tensor, NamedState& ours) {
  const Request& request = tensor->any();
  const Buffer out{ours.call.output, request.elements(), request.dtype};
  if (set->rank() == request.root && ours.call.input != ours.call.output && out.count > 0) {
    std::memcpy(out.data, ours.call.input, out.size_bytes());
  }
  ours.rows = request.rows();
  return finish(set->broadcast(out, request.root, options_of(tensor)), "in a broadcast");
}

Result<void> NamedSet::State::run_all_to_all(const ReadyTensor& tensor, NamedState& ours) {
  const uint64_t row = ours.call.tensor->request.row_elements();
  std::vector<uint64_t> send;
  std::vector<uint64_t> receive;
  uint64_t rows = 0;
  uint64_t sent = 0;
  for (size_t rank = 0; rank < tensor->requests.size(); ++rank) {
    const auto to = static_cast<uint64_t>(ours.call.tensor->request.splits[rank]);
    const auto from =
        static_cast<uint64_t>(tensor->requests[rank]->splits[static_cast<size_t>(set->rank())]);
    send.push_back(to * row);
    receive.push_back(from * row);
    ours.received_splits.push_back(static_cast<int64_t>(from));
    rows += from;
    sent += to * row;
  }
  HR_TRY(const Buffer out, output_of(ours, rows));
  const ConstBuffer in(ours.call.input, sent, ours.call.tensor->request.dtype);
  return finish(set->all_to_all_v(in, send, out, receive, options_of(tensor)), "in an alltoall");
}

Result<void> NamedSet::State::run_reduce_scatter(const ReadyTensor& tensor, NamedState& ours) {
  const uint64_t rows = tensor->any().rows();
  const auto ranks = static_cast<uint64_t>(set->size());
  std::vector<uint64_t> counts;
  uint64_t our_rows = 0;
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    const uint64_t of_rank = rows / ranks + (rank < rows % ranks ? 1 : 0);
    counts.push_back(of_rank * tensor->any().row_elements());
    our_rows = rank == static_cast<uint64_t>(set->rank()) ? of_rank : our_rows;
  }
  HR_TRY(const Buffer out, output_of(ours, our_rows));
  return finish(
      set->reduce_scatter_v(input_of(ours), counts, out, tensor->any().op, options_of(tensor)),
      "in a reducescatter");
}

Result<void> NamedSet::State::run_add_set(const ReadyTensor& tensor, NamedState& ours) {
  const std::vector<int64_t>& ranks = tensor->any().splits;
  const auto world_rank = set->world_ranks()[static_cast<size_t>(set->rank())];
  const auto place = std::find(ranks.begin(), ranks.end(), world_rank);
  const bool is_member = place != ranks.end();
  HR_TRY(ours.new_set, context.split(*set, is_member ? 0 : -1,
                                     is_member ? static_cast<int>(place - ranks.begin()) : 0));
  return {};
}

}  // namespace headrace::comm
