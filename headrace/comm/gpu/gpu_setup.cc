// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/gpu/gpu_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace headrace::comm {

namespace {

constexpr auto kSlice = std::chrono::milliseconds(50);
constexpr base::Micros kAskLeast = std::chrono::microseconds(20);
constexpr base::Micros kAskMost = std::chrono::milliseconds(2);

static_assert(std::is_trivially_copyable_v<GpuCard>);

std::string_view text_of(const GpuCard& card) {
  return {card.why.data(), ::strnlen(card.why.data(), card.why.size())};
}

/// Page-locked where CUDA gives it.
std::shared_ptr<std::byte> host_memory(const CudaLibrary& cuda, size_t bytes) {
  if (auto locked = cuda.allocate_host(std::max<size_t>(bytes, 1)); locked.ok()) {
    // The library stays in the process, but this object of it may go before the memory does.
    return {static_cast<std::byte*>(*locked),
            [copy = cuda](std::byte* memory) { copy.free_host(memory); }};
  }
  return {static_cast<std::byte*>(::operator new(bytes, std::align_val_t(64))),
          [](std::byte* memory) { ::operator delete(memory, std::align_val_t(64)); }};
}

}  // namespace

GpuMeans GpuMeans::load(std::span<const std::string> folders) {
  GpuMeans means = {NcclLibrary::load(folders), CudaLibrary::load(folders), nullptr};
  if (means.cuda.ok()) {
    means.events = std::make_shared<EventPool>(*means.cuda);
  }
  return means;
}

GpuCard card_of(const GpuMeans& means, bool with_id) {
  GpuCard card;
  std::string why;
  if (!means.nccl.ok()) {
    why = means.nccl.error().message();
  } else if (!means.cuda.ok()) {
    why = means.cuda.error().message();
  } else {
    card.version = (*means.nccl)->version;
    const int made = with_id ? (*means.nccl)->get_unique_id(&card.id) : kNcclSuccess;
    if (made != kNcclSuccess) {
      card.version = 0;
      why = (*means.nccl)->error(made, "ncclGetUniqueId", nullptr).message();
    }
  }
  card.cuda = means.cuda.ok() ? 1 : 0;
  why.copy(card.why.data(), card.why.size() - 1);
  return card;
}

Result<GpuWay> common_way(std::span<const GpuCard> cards, std::span<const int> ranks,
                          bool staging) {
  const auto without =
      std::find_if(cards.begin(), cards.end(), [](const GpuCard& one) { return one.version == 0; });
  if (without != cards.end()) {
    const bool all_copy =
        std::all_of(cards.begin(), cards.end(), [](const GpuCard& one) { return one.cuda != 0; });
    if (staging && all_copy) {
      return GpuWay::host;
    }
    return Error{
        Errc::unsupported,
        fmt::format("comm: a tensor on a GPU needs NCCL on all ranks, and rank {} cannot use it: "
                    "{}; install nvidia-nccl-cu12 there, or name its folder in "
                    "HEADRACE_GPU_LIBRARIES{}",
                    ranks[static_cast<size_t>(without - cards.begin())], text_of(*without),
                    staging ? ""
                            : ", or set HEADRACE_COMM_GPU_STAGING=1 on all ranks to go "
                              "through host memory")};
  }
  for (size_t i = 1; i < cards.size(); ++i) {
    if (cards[i].version / 100 != cards[0].version / 100) {
      return Error{Errc::mismatch,
                   fmt::format("comm: rank {} has NCCL {}, rank {} has {}; give all ranks the same",
                               ranks[0], nccl_version_text(cards[0].version), ranks[i],
                               nccl_version_text(cards[i].version))};
    }
  }
  return GpuWay::nccl;
}

Result<void> wait_for(const Work& work, std::shared_ptr<void> keep, const GpuPatience& patience) {
  while (true) {
    auto how = work.wait(kSlice);
    if (work.done()) {
      return how.ok() || how.error().code() != Errc::timeout ? how : work.wait();
    }
    auto failed = patience.failure();
    if (failed || patience.deadline.passed()) {
      work.on_done([keep = std::move(keep)](const Result<void>&) {});
      return failed ? *std::move(failed) : std::move(how).error();
    }
  }
}

Result<void> wait_for_stream(EventPool& events, CudaStream stream, const GpuPatience& patience) {
  HR_TRY(const CudaEvent event, events.take());
  auto how = events.cuda().record(event, stream);
  base::Micros pause = kAskLeast;
  while (how.ok()) {
    const auto passed = events.cuda().passed(event);
    if (!passed.ok() || *passed) {
      how = passed.ok() ? Result<void>() : passed.error();
      break;
    }
    if (auto failed = patience.failure()) {
      how = *std::move(failed);
    } else if (patience.deadline.passed()) {
      how = Error{Errc::timeout,
                  "comm: what was put on the tensor's stream before the collective did not end "
                  "within its time limit"};
    }
    base::sleep_for(pause);
    pause = std::min(2 * pause, kAskMost);
  }
  events.give(event);
  return how;
}

Result<void> run_on_host(const SetDoor& door, EventPool& events, const Call& call, int tag,
                         const GpuPatience& patience) {
  const CudaLibrary& cuda = events.cuda();
  const DeviceScope scope(cuda, call.device_index);
  HR_TRY(scope.outcome());
  const auto stream = reinterpret_cast<CudaStream>(call.stream);
  const size_t width = dtype_bytes(call.dtype);
  const size_t in = elements_in(call, door.rank) * width;
  const size_t out = elements_out(call, door.rank) * width;
  const bool one_buffer = call.kind == Kind::broadcast;
  struct Memory {
    std::shared_ptr<std::byte> in;
    std::shared_ptr<std::byte> out;
  };
  const auto memory = std::make_shared<Memory>();
  memory->in = host_memory(cuda, one_buffer ? in + out : in);
  memory->out = one_buffer ? memory->in : host_memory(cuda, out);
  if (in > 0) {
    HR_TRY(cuda.copy(memory->in.get(), call.in, in, stream));
  }
  if (in > 0 || call.kind == Kind::barrier) {
    HR_TRY(wait_for_stream(events, stream, patience));
  }
  Call host = call;
  host.device = Device::cpu;
  host.in = memory->in.get();
  host.out = memory->out.get();
  Work work;
  if (call.kind == Kind::send) {
    work = door.send({host.in, call.count, call.dtype}, call.root, tag, patience.deadline);
  } else if (call.kind == Kind::recv) {
    work = door.recv({host.out, call.count, call.dtype}, call.root, tag, patience.deadline);
  } else {
    work = door.on_host(std::move(host), patience.deadline);
  }
  HR_TRY(wait_for(work, memory, patience));
  if (out > 0) {
    HR_TRY(cuda.copy(call.out, memory->out.get(), out, stream));
    HR_TRY(wait_for_stream(events, stream, patience));
  }
  return {};
}

}  // namespace headrace::comm
