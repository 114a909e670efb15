// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/gpu/cuda_library.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "headrace/comm/gpu/library_search.h"

namespace headrace::comm {

namespace {

constexpr std::string_view kNames[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};

// Numbers of CUDA's runtime API, the same in versions 11 to 13.
constexpr int kSuccess = 0;
constexpr int kMemoryAllocation = 2;
constexpr int kNotReady = 600;
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr unsigned kHostAllocPortable = 1;
constexpr int kCopyByAddress = 4;  // cudaMemcpyDefault

}  // namespace

Result<std::shared_ptr<const CudaLibrary>> CudaLibrary::load(std::span<const std::string> folders) {
  HR_TRY(const auto library, OpenLibrary::open("CUDA's runtime", library_places(kNames, folders)));
  std::shared_ptr<CudaLibrary> cuda(new CudaLibrary());
  cuda->path_ = library.path();
  HR_TRY(library.bind("cudaGetErrorString", &cuda->error_string_));
  HR_TRY(library.bind("cudaGetLastError", &cuda->last_error_));
  HR_TRY(library.bind("cudaGetDeviceCount", &cuda->count_devices_));
  HR_TRY(library.bind("cudaGetDevice", &cuda->get_device_));
  HR_TRY(library.bind("cudaSetDevice", &cuda->set_device_));
  HR_TRY(library.bind("cudaStreamCreateWithFlags", &cuda->stream_create_));
  HR_TRY(library.bind("cudaStreamWaitEvent", &cuda->stream_wait_));
  HR_TRY(library.bind("cudaEventCreateWithFlags", &cuda->event_create_));
  HR_TRY(library.bind("cudaEventDestroy", &cuda->event_destroy_));
  HR_TRY(library.bind("cudaEventRecord", &cuda->event_record_));
  HR_TRY(library.bind("cudaEventQuery", &cuda->event_query_));
  HR_TRY(library.bind("cudaHostAlloc", &cuda->host_alloc_));
  HR_TRY(library.bind("cudaFreeHost", &cuda->host_free_));
  HR_TRY(library.bind("cudaMalloc", &cuda->malloc_));
  HR_TRY(library.bind("cudaMemcpyAsync", &cuda->copy_));
  return std::shared_ptr<const CudaLibrary>(std::move(cuda));
}

Result<void> CudaLibrary::checked(int code, const char* call) const {
  if (code == kSuccess) {
    return {};
  }
  last_error_();  // or the next call of somebody else in this thread would be told of it
  const char* said = error_string_(code);
  return Error{
      code == kMemoryAllocation ? Errc::out_of_memory : Errc::io,
      fmt::format("comm: {} of CUDA: {} (error {})", call, said != nullptr ? said : "?", code)};
}

Result<int> CudaLibrary::devices() const {
  int count = 0;
  HR_TRY(checked(count_devices_(&count), "cudaGetDeviceCount"));
  return count;
}

Result<int> CudaLibrary::device() const {
  int device = -1;
  HR_TRY(checked(get_device_(&device), "cudaGetDevice"));
  return device;
}

Result<void> CudaLibrary::use_device(int device) const {
  return checked(set_device_(device), "cudaSetDevice");
}

Result<CudaStream> CudaLibrary::make_stream() const {
  CudaStream stream = nullptr;
  HR_TRY(checked(stream_create_(&stream, kStreamNonBlocking), "cudaStreamCreateWithFlags"));
  return stream;
}

Result<CudaEvent> CudaLibrary::make_event() const {
  CudaEvent event = nullptr;
  HR_TRY(checked(event_create_(&event, kEventDisableTiming), "cudaEventCreateWithFlags"));
  return event;
}

Result<void> CudaLibrary::record(CudaEvent event, CudaStream stream) const {
  return checked(event_record_(event, stream), "cudaEventRecord");
}

Result<void> CudaLibrary::wait(CudaStream stream, CudaEvent event) const {
  return checked(stream_wait_(stream, event, 0), "cudaStreamWaitEvent");
}

Result<bool> CudaLibrary::passed(CudaEvent event) const {
  const int code = event_query_(event);
  if (code == kNotReady) {
    last_error_();
    return false;
  }
  HR_TRY(checked(code, "cudaEventQuery"));
  return true;
}

Result<void*> CudaLibrary::allocate_host(size_t bytes) const {
  void* memory = nullptr;
  HR_TRY(checked(host_alloc_(&memory, bytes, kHostAllocPortable), "cudaHostAlloc"));
  return memory;
}

Result<void*> CudaLibrary::allocate(size_t bytes) const {
  void* memory = nullptr;
  HR_TRY(checked(malloc_(&memory, bytes), "cudaMalloc"));
  return memory;
}

Result<void> CudaLibrary::copy(void* to, const void* from, size_t bytes, CudaStream stream) const {
  return checked(copy_(to, from, bytes, kCopyByAddress, stream), "cudaMemcpyAsync");
}

DeviceScope::DeviceScope(const CudaLibrary& cuda, int device) : cuda_(cuda) {
  const auto before = cuda.device();
  if (!before.ok()) {
    outcome_ = before.error();
  } else if (*before != device) {
    outcome_ = cuda.use_device(device);
    before_ = outcome_.ok() ? *before : -1;
  }
}

DeviceScope::~DeviceScope() {
  if (before_ >= 0) {
    static_cast<void>(cuda_.use_device(before_));
  }
}

}  // namespace headrace::comm
