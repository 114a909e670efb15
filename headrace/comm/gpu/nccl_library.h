// SPDX-License-Identifier: Apache-2.0
// NCCL, opened at run time, by own declarations: nothing of it is needed to build.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "headrace/base/result.h"
#include "headrace/comm/gpu/cuda_library.h"

struct ncclComm;

namespace headrace::comm {

/// What the ranks of one NCCL group share; made by one of them.
struct NcclId {
  std::array<char, 128> bytes = {};
};

/// How a group is made, as NCCL 2.18 lays it out; later ones know it by its size and version.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;  ///< no call waits for other ranks; one that is not done is polled for
  int cga_cluster_size = INT_MIN;  // INT_MIN and null: as NCCL likes
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

// Numbers of NCCL's C API.
enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
};
enum NcclType : int {
  kNcclInt8 = 0,
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclUint32 = 3,
  kNcclInt64 = 4,
  kNcclUint64 = 5,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBfloat16 = 9,
};
enum NcclOp : int { kNcclSum = 0, kNcclProd = 1, kNcclMax = 2, kNcclMin = 3, kNcclAvg = 4 };
inline constexpr int kNcclScalarOnHost = 1;

/// The functions of one NCCL.
struct NcclLibrary {
  /// libnccl.so.2: the copy in this process, the one in `folders`, the system's. `unsupported`:
  /// none, one older than 2.18, or one that lacks a function.
  static Result<std::shared_ptr<const NcclLibrary>> load(std::span<const std::string> folders);

  std::string path;
  std::string told_by;
  int version = 0;  ///< 21805 is 2.18.5
  std::string version_text() const;

  /// `unsupported` and so on for what a call or a group has ended with; `comm` may be null.
  Error error(int result, std::string_view call, ncclComm* comm) const;

  const char* (*error_string)(int) = nullptr;
  const char* (*last_error)(ncclComm*) = nullptr;
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(NcclId*) = nullptr;
  int (*init_rank)(ncclComm**, int, NcclId, int, NcclConfig*) = nullptr;
  int (*finalize)(ncclComm*) = nullptr;
  int (*destroy)(ncclComm*) = nullptr;
  int (*abort)(ncclComm*) = nullptr;
  int (*async_error)(ncclComm*, int*) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int, int, ncclComm*, CudaStream) = nullptr;
  int (*reduce)(const void*, void*, size_t, int, int, int, ncclComm*, CudaStream) = nullptr;
  int (*broadcast)(const void*, void*, size_t, int, int, ncclComm*, CudaStream) = nullptr;
  int (*all_gather)(const void*, void*, size_t, int, ncclComm*, CudaStream) = nullptr;
  int (*reduce_scatter)(const void*, void*, size_t, int, int, ncclComm*, CudaStream) = nullptr;
  int (*send)(const void*, size_t, int, int, ncclComm*, CudaStream) = nullptr;
  int (*recv)(void*, size_t, int, int, ncclComm*, CudaStream) = nullptr;
  /// A sum of contributions that are multiplied first, by the value at the second argument.
  int (*make_scaled_sum)(int*, void*, int, int, ncclComm*) = nullptr;
  int (*free_op)(int, ncclComm*) = nullptr;
};

/// "2.21.5" of 22105.
std::string nccl_version_text(int version);

}  // namespace headrace::comm
