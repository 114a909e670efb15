// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime, opened at run time: devices, streams, events and copies, by own declarations.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "headrace/base/result.h"

struct CUstream_st;
struct CUevent_st;

namespace headrace::comm {

// What these types point to is CUDA's.
using CudaStream = CUstream_st*;
using CudaEvent = CUevent_st*;

/// Thread-safe. Calls fail with `io` and CUDA's words, `out_of_memory` where it says so.
class CudaLibrary {
 public:
  /// libcudart.so.13, .12 or .11.0: a copy in this process, one in `folders`, one of the system.
  /// `unsupported`: there is none, or it lacks a function.
  static Result<std::shared_ptr<const CudaLibrary>> load(std::span<const std::string> folders);

  const std::string& path() const { return path_; }

  Result<int> devices() const;  ///< how many there are
  Result<int> device() const;   ///< of this thread
  Result<void> use_device(int device) const;

  /// A stream that does not wait for the legacy default stream.
  Result<CudaStream> make_stream() const;
  /// An event that only orders: it takes no times.
  Result<CudaEvent> make_event() const;
  void free_event(CudaEvent event) const { event_destroy_(event); }
  Result<void> record(CudaEvent event, CudaStream stream) const;
  /// What is put on `stream` from now on begins after `event`; the caller does not wait.
  Result<void> wait(CudaStream stream, CudaEvent event) const;
  /// What `event` was recorded behind has ended. Does not wait.
  Result<bool> passed(CudaEvent event) const;

  /// Page-locked memory of the host, which copies do not have to go through another buffer for.
  Result<void*> allocate_host(size_t bytes) const;
  void free_host(void* memory) const { host_free_(memory); }
  Result<void*> allocate(size_t bytes) const;
  /// Between host and device, either way, in the order of `stream`.
  Result<void> copy(void* to, const void* from, size_t bytes, CudaStream stream) const;

 private:
  CudaLibrary() = default;
  Result<void> checked(int code, const char* call) const;

  std::string path_;
  const char* (*error_string_)(int) = nullptr;
  int (*last_error_)() = nullptr;
  int (*count_devices_)(int*) = nullptr;
  int (*get_device_)(int*) = nullptr;
  int (*set_device_)(int) = nullptr;
  int (*stream_create_)(CudaStream*, unsigned) = nullptr;
  int (*stream_wait_)(CudaStream, CudaEvent, unsigned) = nullptr;
  int (*event_create_)(CudaEvent*, unsigned) = nullptr;
  int (*event_destroy_)(CudaEvent) = nullptr;
  int (*event_record_)(CudaEvent, CudaStream) = nullptr;
  int (*event_query_)(CudaEvent) = nullptr;
  int (*host_alloc_)(void**, size_t, unsigned) = nullptr;
  int (*host_free_)(void*) = nullptr;
  int (*malloc_)(void**, size_t) = nullptr;
  int (*copy_)(void*, const void*, size_t, int, CudaStream) = nullptr;
};

/// Makes `device` the thread's current one, and what it was before again at the end.
class DeviceScope {
 public:
  DeviceScope(const CudaLibrary& cuda, int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  const Result<void>& outcome() const { return outcome_; }

 private:
  const CudaLibrary& cuda_;
  int before_ = -1;
  Result<void> outcome_;
};

}  // namespace headrace::comm
