// SPDX-License-Identifier: Apache-2.0
// A stand-in for CUDA's runtime, for machines without a GPU: device memory is memory of the
// process, a stream is a thread that does one thing after the other, events order as CUDA's do.
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0;
constexpr int kMemoryAllocation = 2;
constexpr int kInvalidDevice = 101;
constexpr int kNotReady = 600;
constexpr int kDevices = 8;

thread_local int current_device = 0;

struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0;
  uint64_t reached = 0;
};

}  // namespace

struct CUstream_st {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;

  CUstream_st() {
    std::thread([this] { run(); }).detach();
  }
  void push(std::function<void()> task) {
    const std::lock_guard lock(mutex);
    tasks.push_back(std::move(task));
    changed.notify_all();
  }
  void run() {
    while (true) {
      std::function<void()> next;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return !tasks.empty(); });
        next = std::move(tasks.front());
        tasks.pop_front();
      }
      next();
    }
  }
};

struct CUevent_st {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

namespace {

CUstream_st& real(CUstream_st* stream) {
  static CUstream_st* const legacy = new CUstream_st();
  return stream != nullptr ? *stream : *legacy;
}

}  // namespace

/// For the stand-in of NCCL and for tests: run `task(argument)` in the order of the stream.
FAKE_API void fake_cuda_enqueue(CUstream_st* stream, void (*task)(void*), void* argument) {
  real(stream).push([task, argument] { task(argument); });
}

FAKE_API const char* cudaGetErrorString(int code) {
  return code == kMemoryAllocation ? "out of memory (stand-in)" : "some error (stand-in)";
}
FAKE_API int cudaGetLastError() { return kSuccess; }
FAKE_API int cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return kSuccess;
}
FAKE_API int cudaGetDevice(int* device) {
  *device = current_device;
  return kSuccess;
}
FAKE_API int cudaSetDevice(int device) {
  if (device < 0 || device >= kDevices) {
    return kInvalidDevice;
  }
  current_device = device;
  return kSuccess;
}
FAKE_API int cudaStreamCreateWithFlags(CUstream_st** stream, unsigned /*flags*/) {
  *stream = new CUstream_st();
  return kSuccess;
}
FAKE_API int cudaEventCreateWithFlags(CUevent_st** event, unsigned /*flags*/) {
  *event = new CUevent_st();
  return kSuccess;
}
FAKE_API int cudaEventDestroy(CUevent_st* event) {
  delete event;
  return kSuccess;
}
FAKE_API int cudaEventRecord(CUevent_st* event, CUstream_st* stream) {
  const auto state = event->state;
  uint64_t number = 0;
  {
    const std::lock_guard lock(state->mutex);
    number = ++state->recorded;
  }
  real(stream).push([state, number] {
    const std::lock_guard lock(state->mutex);
    state->reached = std::max(state->reached, number);  // it may be recorded elsewhere since
    state->changed.notify_all();
  });
  return kSuccess;
}
FAKE_API int cudaStreamWaitEvent(CUstream_st* stream, CUevent_st* event, unsigned /*flags*/) {
  const auto state = event->state;
  uint64_t number = 0;
  {
    const std::lock_guard lock(state->mutex);
    number = state->recorded;
  }
  real(stream).push([state, number] {
    std::unique_lock lock(state->mutex);
    state->changed.wait(lock, [&] { return state->reached >= number; });
  });
  return kSuccess;
}
FAKE_API int cudaEventQuery(CUevent_st* event) {
  const std::lock_guard lock(event->state->mutex);
  return event->state->reached >= event->state->recorded ? kSuccess : kNotReady;
}
FAKE_API int cudaHostAlloc(void** memory, size_t bytes, unsigned /*flags*/) {
  if (std::getenv("FAKE_CUDA_NO_LOCKED_MEMORY") != nullptr) {
    return kMemoryAllocation;
  }
  *memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  return kSuccess;
}
FAKE_API int cudaFreeHost(void* memory) {
  std::free(memory);
  return kSuccess;
}
FAKE_API int cudaMalloc(void** memory, size_t bytes) {
  *memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  return kSuccess;
}
FAKE_API int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int /*kind*/,
                             CUstream_st* stream) {
  real(stream).push([=] {
    if (bytes > 0) {
      std::memcpy(to, from, bytes);
    }
  });
  return kSuccess;
}
