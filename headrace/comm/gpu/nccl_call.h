// SPDX-License-Identifier: Apache-2.0
// What one call of a process set is in NCCL's terms. Pure, but for the functions that are called.
#pragma once

#include <cstdint>

#include "headrace/base/result.h"
#include "headrace/comm/algo/call.h"
#include "headrace/comm/gpu/nccl_library.h"

namespace headrace::comm {

/// A reduction: types and operations by NCCL's numbers.
struct NcclReduction {
  int type = kNcclFloat32;
  int op = kNcclSum;
  double scale = 1.0;  ///< other than 1: a sum of contributions times this
};

/// `average` with a scale is a scaled sum. `unsupported`: NCCL has no such type or operation.
Result<NcclReduction> nccl_reduction(const Call& call, int ranks);

/// `unsupported`: NCCL cannot do this call.
Result<void> check_nccl(const Call& call, int ranks);

/// Where NCCL is to do it.
struct NcclTarget {
  ncclComm* comm = nullptr;
  CudaStream stream = nullptr;
  int rank = 0;
  int ranks = 1;
  void* scratch = nullptr;  ///< 8 bytes on the device, for barriers
};

/// Hand the call's parts to NCCL, within a group that the caller has begun. send and recv: `root`
/// is the other rank of a group of two. What the first part that fails returns.
int nccl_enqueue(const NcclLibrary& nccl, const Call& call, const NcclTarget& target);

/// Elements that `rank` reads at `in` and writes at `out`.
uint64_t elements_in(const Call& call, int rank);
uint64_t elements_out(const Call& call, int rank);

}  // namespace headrace::comm
