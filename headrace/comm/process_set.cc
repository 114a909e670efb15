// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/process_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "headrace/comm/algo/reduce_kernel.h"
#include "headrace/comm/process_set_internal.h"

namespace headrace::comm {

namespace {

Call call_of(Kind kind, const ConstBuffer& in, const Buffer& out) {
  Call call;
  call.kind = kind;
  call.dtype = in.dtype;
  call.in = in.bytes();
  call.out = out.bytes();
  call.count = in.count;
  return call;
}

Error bad(const Call& call, const std::string& what) {
  return {Errc::invalid_argument, fmt::format("comm: {}: {}", kind_name(call.kind), what)};
}

constexpr uint64_t kCountMax = uint64_t{1} << 56;  // its bytes can be counted

/// What is wrong with `buffer`.
Error buffer_error(const Call& call, const char* which, const ConstBuffer& buffer, uint64_t count) {
  if (buffer.dtype != call.dtype) {
    return bad(call, fmt::format("{} is {}, the other buffer is {}", which,
                                 dtype_name(buffer.dtype), dtype_name(call.dtype)));
  }
  if (buffer.count != count) {
    return bad(call,
               fmt::format("{} has {} elements, it must have {}", which, buffer.count, count));
  }
  if (count > kCountMax) {
    return bad(call, fmt::format("{} has {} elements, more than there can be", which, count));
  }
  if (buffer.data == nullptr && count > 0) {
    return bad(call, fmt::format("{} has no memory", which));
  }
  return bad(call, fmt::format("{} does not begin at a multiple of {} bytes, the size of {}; copy "
                               "it to memory that does",
                               which, dtype_bytes(buffer.dtype), dtype_name(buffer.dtype)));
}

/// `count` and `dtype` of a buffer are what they must be.
bool fits(Dtype dtype, const ConstBuffer& buffer, uint64_t count) {
  return buffer.dtype == dtype && buffer.count == count && count <= kCountMax &&
         (buffer.data != nullptr || count == 0) &&
         (reinterpret_cast<uintptr_t>(buffer.data) & (dtype_bytes(buffer.dtype) - 1)) == 0;
}

Result<void> check_buffer(const Call& call, const char* which, const ConstBuffer& buffer,
                          uint64_t count) {
  if (fits(call.dtype, buffer, count)) {
    return {};
  }
  return buffer_error(call, which, buffer, count);
}

/// A buffer that is only copied may begin anywhere.
Result<void> check_bytes(const Call& call, const char* which, const ConstBuffer& buffer) {
  if (buffer.count <= kCountMax && (buffer.data != nullptr || buffer.count == 0)) {
    return {};
  }
  return buffer_error(call, which, buffer, buffer.count);
}

/// More than there can be, if one of them or their sum is.
uint64_t sum_of(std::span<const uint64_t> counts) {
  uint64_t sum = 0;
  for (const uint64_t one : counts) {
    sum = std::min(sum + std::min(one, kCountMax + 1), kCountMax + 1);
  }
  return sum;
}

uint64_t times(uint64_t count, size_t ranks) {
  return std::min(count, kCountMax + 1) * static_cast<uint64_t>(ranks);
}

Work failed_work(Call call, Error error) {
  auto state = std::make_shared<WorkState>();
  state->call = std::move(call);
  state->complete(std::move(error));
  return Work(std::move(state));
}

}  // namespace

ProcessSet::ProcessSet(std::unique_ptr<State> state) : state_(std::move(state)) {}

ProcessSet::~ProcessSet() {
  if (state_ != nullptr && state_->mark.forked()) {
    static_cast<void>(state_.release());  // its threads and what it shares are the parent's
  } else if (state_ != nullptr) {
    if (state_->network != nullptr) {
      state_->network->mail_failer()(
          state_->id,
          {Errc::cancelled, fmt::format("comm: rank {} has closed the process set", state_->rank)});
    }
    state_->queue->close();
    state_->progress->remove(state_->queue.get());
  }
}

int ProcessSet::rank() const { return state_->rank; }
uint64_t ProcessSet::id() const { return state_->id; }
int ProcessSet::size() const { return static_cast<int>(state_->world_ranks.size()); }
std::span<const int> ProcessSet::world_ranks() const { return state_->world_ranks; }

void ProcessSet::State::stop_driving() {
  queue->driving().unlock();
  if (!queue->idle()) {
    progress->notify();
  }
}

Work ProcessSet::State::submit(Call&& call, const Options& options) {
  const auto ranks = static_cast<int>(world_ranks.size());
  if (mark.forked()) {
    return failed_work(std::move(call), forked_error());
  }
  if (call.root < 0 || call.root >= ranks) {
    const int root = call.root;
    Error error = bad(call, fmt::format("root {} is not in [0, {})", root, ranks));
    return failed_work(std::move(call), std::move(error));
  }
  if (!options.name.empty()) {
    call.name = options.name;
  }
  call.negotiates = options.negotiates;
  call.prescale = options.prescale;
  call.postscale = options.postscale;
  if (call.op == Op::average) {
    call.op = Op::sum;
    call.averages = true;
    call.postscale /= ranks;
  }
  if (call.dtype == Dtype::f32 && is_reduction(call.kind)) {
    call.wire16 = options.wire16.value_or(wire16);
  }
  if (options.blocking && queue->driving().try_lock()) {
    return drive(std::move(call), options, {});
  }
  const auto work = made(std::move(call), options);
  if (queue->push(work)) {
    progress->notify();
    if (options.blocking) {
      static_cast<void>(Work(work).wait(options.blocking_limit));
    }
  }
  return Work(work);
}

std::shared_ptr<WorkState> ProcessSet::State::made(Call&& call, const Options& options) const {
  auto work = std::make_shared<WorkState>();
  work->call = std::move(call);
  work->deadline = base::Deadline::in(options.timeout.value_or(timeout));
  return work;
}

Work ProcessSet::State::drive(Call&& call, const Options& options,
                              std::optional<uint64_t> announced) {
  std::shared_ptr<WorkState> work;
  uint64_t sequence = announced.value_or(0);
  const auto limit = options.timeout.value_or(timeout);
  const auto now = queue->try_now(call, spin, limit, announced.has_value(), sequence, work);
  if (now == SetQueue::Now::ended) {
    stop_driving();
    queue->ring_ended();
    return Work::ended(sequence);
  }
  if (now == SetQueue::Now::not_begun) {
    work = made(std::move(call), options);
  }
  if (now == SetQueue::Now::begun || queue->push(work)) {
    queue->run(*work,
               options.blocking_limit ? base::Deadline::in(*options.blocking_limit)
                                      : base::Deadline::never(),
               spin);
  }
  stop_driving();
  return Work(std::move(work));
}

Work ProcessSet::State::reduce_now(const QuickReduce& what, const Options& options) {
  uint64_t sequence = 0;
  const auto now = queue->try_at_once(what, spin, sequence);
  if (now == SetQueue::Now::ended) {
    stop_driving();
    queue->ring_ended();
    return Work::ended(sequence);
  }
  Call call;
  call.kind = Kind::all_reduce;
  call.op = what.op;
  call.averages = what.averages;
  call.dtype = what.dtype;
  call.in = what.in;
  call.out = what.out;
  call.count = what.count;
  call.postscale = what.postscale;
  const bool announced = now == SetQueue::Now::begun;
  return drive(std::move(call), options,
               announced ? std::optional<uint64_t>(sequence) : std::nullopt);
}

Work ProcessSet::all_reduce(ConstBuffer in, Buffer out, Op op, const Options& options) {
  if (is_reducible(in.dtype, op) && fits(in.dtype, in, in.count) && fits(in.dtype, out, in.count))
      [[likely]] {
    const bool as_it_is =
        in.dtype != Dtype::f32 || options.wire16.value_or(state_->wire16) == Wire16::none;
    if (options.blocking && as_it_is && options.name.empty() && options.prescale == 1.0 &&
        !state_->mark.forked() && state_->queue->driving().try_lock()) {
      const bool average = op == Op::average;
      return state_->reduce_now(
          {.op = average ? Op::sum : op,
           .averages = average,
           .dtype = in.dtype,
           .in = in.bytes(),
           .out = out.bytes(),
           .count = in.count,
           .postscale = average ? options.postscale / size() : options.postscale},
          options);
    }
    Call call = call_of(Kind::all_reduce, in, out);
    call.op = op;
    return state_->submit(std::move(call), options);
  }
  Call call = call_of(Kind::all_reduce, in, out);
  Error error = !is_reducible(in.dtype, op)    ? check_reducible(in.dtype, op).error()
                : fits(in.dtype, in, in.count) ? buffer_error(call, "out", out, in.count)
                                               : buffer_error(call, "in", in, in.count);
  return failed_work(std::move(call), std::move(error));
}

Work ProcessSet::reduce(ConstBuffer in, Buffer out, int root, Op op, const Options& options) {
  Call call = call_of(Kind::reduce, in, out);
  call.op = op;
  call.root = root;
  Result<void> good = check_reducible(in.dtype, op);
  if (good.ok()) {
    good = check_buffer(call, "in", in, in.count);
  }
  if (good.ok() && root == rank()) {
    good = check_buffer(call, "out", out, in.count);
  }
  return good.ok() ? state_->submit(std::move(call), options)
                   : failed_work(std::move(call), std::move(good).error());
}

Work ProcessSet::broadcast(Buffer inout, int root, const Options& options) {
  Call call = call_of(Kind::broadcast, inout, inout);
  call.root = root;
  Result<void> good = check_bytes(call, "the buffer", inout);
  return good.ok() ? state_->submit(std::move(call), options)
                   : failed_work(std::move(call), std::move(good).error());
}

Work ProcessSet::all_gather(ConstBuffer in, Buffer out, const Options& options) {
  return all_gather_v(in, std::vector<uint64_t>(static_cast<size_t>(size()), in.count), out,
                      options);
}

Work ProcessSet::all_gather_v(ConstBuffer in, std::span<const uint64_t> counts, Buffer out,
                              const Options& options) {
  Call call = call_of(Kind::all_gather, in, out);
  call.counts.assign(counts.begin(), counts.end());
  call.count = sum_of(counts);
  Result<void> good;
  if (counts.size() != state_->world_ranks.size()) {
    good = bad(call, fmt::format("{} counts for {} ranks", counts.size(), size()));
  } else {
    good = check_buffer(call, "in", in, counts[static_cast<size_t>(rank())]);
    if (good.ok()) {
      good = check_buffer(call, "out", out, call.count);
    }
  }
  return good.ok() ? state_->submit(std::move(call), options)
                   : failed_work(std::move(call), std::move(good).error());
}

Work ProcessSet::reduce_scatter(ConstBuffer in, Buffer out, Op op, const Options& options) {
  return reduce_scatter_v(in, std::vector<uint64_t>(static_cast<size_t>(size()), out.count), out,
                          op, options);
}

Work ProcessSet::reduce_scatter_v(ConstBuffer in, std::span<const uint64_t> counts, Buffer out,
                                  Op op, const Options& options) {
  Call call = call_of(Kind::reduce_scatter, in, out);
  call.op = op;
  call.counts.assign(counts.begin(), counts.end());
  Result<void> good = check_reducible(in.dtype, op);
  if (good.ok() && counts.size() != state_->world_ranks.size()) {
    good = bad(call, fmt::format("{} counts for {} ranks", counts.size(), size()));
  }
  if (good.ok()) {
    good = check_buffer(call, "in", in, sum_of(counts));
  }
  if (good.ok()) {
    good = check_buffer(call, "out", out, counts[static_cast<size_t>(rank())]);
  }
  return good.ok() ? state_->submit(std::move(call), options)
                   : failed_work(std::move(call), std::move(good).error());
}

Work ProcessSet::all_to_all(ConstBuffer in, Buffer out, const Options& options) {
  const auto ranks = static_cast<uint64_t>(size());
  if (in.count % ranks != 0) {
    Call call = call_of(Kind::all_to_all, in, out);
    Error error = bad(call, fmt::format("{} elements are not {} equal parts", in.count, ranks));
    return failed_work(std::move(call), std::move(error));
  }
  const std::vector<uint64_t> equal(ranks, in.count / ranks);
  return all_to_all_v(in, equal, out, equal, options);
}

Work ProcessSet::all_to_all_v(ConstBuffer in, std::span<const uint64_t> send, Buffer out,
                              std::span<const uint64_t> recv, const Options& options) {
  Call call = call_of(Kind::all_to_all, in, out);
  call.count = 0;  // differs between ranks
  call.send_counts.assign(send.begin(), send.end());
  call.recv_counts.assign(recv.begin(), recv.end());
  const auto self = static_cast<size_t>(rank());
  Result<void> good;
  if (send.size() != state_->world_ranks.size() || recv.size() != send.size()) {
    good =
        bad(call, fmt::format("{} and {} counts for {} ranks", send.size(), recv.size(), size()));
  } else if (send[self] != recv[self]) {
    good = bad(call, fmt::format("{} elements to itself, {} from itself", send[self], recv[self]));
  }
  if (good.ok()) {
    good = check_buffer(call, "in", in, sum_of(send));
  }
  if (good.ok()) {
    good = check_buffer(call, "out", out, sum_of(recv));
  }
  return good.ok() ? state_->submit(std::move(call), options)
                   : failed_work(std::move(call), std::move(good).error());
}

Work ProcessSet::gather(ConstBuffer in, Buffer out, int root, const Options& options) {
  Call call = call_of(Kind::gather, in, out);
  call.root = root;
  call.counts.assign(state_->world_ranks.size(), in.count);
  Result<void> good = check_bytes(call, "in", in);
  if (good.ok() && root == rank()) {
    good = check_buffer(call, "out", out, times(in.count, call.counts.size()));
  }
  return good.ok() ? state_->submit(std::move(call), options)
                   : failed_work(std::move(call), std::move(good).error());
}

Work ProcessSet::scatter(ConstBuffer in, Buffer out, int root, const Options& options) {
  Call call = call_of(Kind::scatter, in, out);
  call.root = root;
  call.dtype = out.dtype;
  call.count = out.count;
  call.counts.assign(state_->world_ranks.size(), out.count);
  Result<void> good = check_bytes(call, "out", out);
  if (good.ok() && root == rank()) {
    good = check_buffer(call, "in", in, times(out.count, call.counts.size()));
  }
  return good.ok() ? state_->submit(std::move(call), options)
                   : failed_work(std::move(call), std::move(good).error());
}

Work ProcessSet::barrier(const Options& options) {
  return state_->submit(call_of(Kind::barrier, {}, {}), options);
}

void ProcessSet::call_others() { state_->queue->call_others(); }
bool ProcessSet::called() const { return state_->queue->called(); }
void ProcessSet::wait_called(std::chrono::microseconds most, const std::function<bool()>& stop) {
  state_->queue->wait_called(most, stop);
}
void ProcessSet::flush_metrics() const { state_->queue->observer().flush(); }
void ProcessSet::wake() const { state_->queue->wake(); }
int ProcessSet::waits_for() const { return state_->queue->waits_for(); }
std::optional<Error> ProcessSet::failure() const { return state_->queue->failure(); }

bool ProcessSet::closed(int rank) const { return state_->queue->closed(rank); }

void ProcessSet::abort(std::string_view reason) {
  if (state_->mark.forked()) {
    return;
  }
  state_->queue->fail(
      {Errc::cancelled, fmt::format("comm: rank {} aborted the process set: {}", rank(), reason)});
}

}  // namespace headrace::comm
