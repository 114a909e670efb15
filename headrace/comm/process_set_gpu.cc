// SPDX-License-Identifier: Apache-2.0
// Operations of a process set on tensors of GPUs: checked here, done by SetGpu.
#include <fmt/format.h>

#include <utility>

#include "headrace/comm/gpu/set_gpu.h"
#include "headrace/comm/process_set_internal.h"

namespace headrace::comm {

namespace {

std::chrono::milliseconds left_of(base::Deadline deadline) {
  constexpr std::chrono::hours kMost{1000};
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::min<base::Micros>(deadline.left(), kMost));
}

Work failed_work(Call&& call, Error error) {
  auto state = std::make_shared<WorkState>();
  state->call = std::move(call);
  state->complete(std::move(error));
  return Work(std::move(state));
}

Work waited(Work work, const Options& options) {
  if (options.blocking) {
    static_cast<void>(work.wait(options.blocking_limit));
  }
  return work;
}

SetDoor door_of(ProcessSet::State& state) {
  ProcessSet* const set = state.owner;
  const auto how = [](const char* name, base::Deadline deadline) {
    return Options{.name = name, .timeout = left_of(deadline)};
  };
  return {
      .rank = state.rank,
      .ranks = static_cast<int>(state.world_ranks.size()),
      .all_gather =
          [set, how](ConstBuffer in, Buffer out, base::Deadline deadline) {
            return set->all_gather(in, out, how("beginning of GPU operations", deadline));
          },
      .send =
          [set, how](ConstBuffer in, int to, int tag, base::Deadline deadline) {
            return set->send(in, to, tag, how("of a GPU", deadline));
          },
      .recv =
          [set, how](Buffer out, int from, int tag, base::Deadline deadline) {
            return set->recv(out, from, tag, how("of a GPU", deadline));
          },
      .on_host =
          [&state](Call&& call, base::Deadline deadline) {
            const std::string name = call.name;
            return state.submit(std::move(call), {.name = name,
                                                  .prescale = call.prescale,
                                                  .postscale = call.postscale,
                                                  .wire16 = Wire16::none,
                                                  .timeout = left_of(deadline)});
          },
      .failure =
          [&state] {
            auto failed = state.queue->failed();
            if (!state.queue->idle()) {
              state.progress->notify();  // who submitted meanwhile has found it driven
            }
            return failed;
          },
      .fail = [&state](const Error& error) { state.queue->fail(error); },
      .closed_rank =
          [&state] {
            for (int rank = 0; rank < static_cast<int>(state.world_ranks.size()); ++rank) {
              if (rank != state.rank && state.queue->closed(rank)) {
                return rank;
              }
            }
            return -1;
          },
  };
}

}  // namespace

SetGpu& ProcessSet::State::gpu_part() {
  base::MutexLock lock(gpu_mutex);
  if (gpu == nullptr) {
    gpu = std::make_shared<SetGpu>(door_of(*this), gpu_settings);
  }
  return *gpu;
}

void ProcessSet::State::close_gpu() {
  std::shared_ptr<SetGpu> part;
  {
    base::MutexLock lock(gpu_mutex);
    part = std::move(gpu);
  }
}

Work ProcessSet::State::submit_gpu(Call&& call, const Options& options) {
  return waited(
      gpu_part().submit(std::move(call), base::Deadline::in(options.timeout.value_or(timeout))),
      options);
}

Work ProcessSet::State::message_gpu(Kind kind, const ConstBuffer& buffer, int other, int tag,
                                    const Options& options) {
  Call call;
  call.kind = kind;
  call.dtype = buffer.dtype;
  call.root = other;
  call.in = buffer.bytes();
  call.out = const_cast<std::byte*>(buffer.bytes());  // a recv's is a Buffer
  call.count = buffer.count;
  call.name = options.name;
  call.device = buffer.device;
  call.device_index = buffer.device_index;
  call.stream = buffer.stream;
  if (mark.forked()) {
    return failed_work(std::move(call), forked_error());
  }
  if (kind == Kind::recv && other == any_source) {
    return failed_work(std::move(call),
                       {Errc::unsupported,
                        "comm: recv from any rank on a GPU: NCCL has none; name the rank, or "
                        "receive into a tensor on the CPU"});
  }
  const auto ranks = static_cast<int>(world_ranks.size());
  if (other < 0 || other >= ranks || other == rank) {
    return failed_work(std::move(call),
                       {Errc::invalid_argument,
                        fmt::format("comm: {}: the other end must be another one of the {} ranks "
                                    "of the set, not {}",
                                    kind_name(kind), ranks, other)});
  }
  return waited(gpu_part().message(std::move(call), tag,
                                   base::Deadline::in(options.timeout.value_or(timeout))),
                options);
}

void ProcessSet::begin_group(const Options& options) {
  state_->gpu_part().begin_group(base::Deadline::in(options.timeout.value_or(state_->timeout)));
}

Work ProcessSet::end_group() { return state_->gpu_part().end_group(); }

}  // namespace headrace::comm
