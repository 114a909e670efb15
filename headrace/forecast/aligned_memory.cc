// SPDX-License-Identifier: Apache-2.0
// Memory for the kernels.
#include <sys/mman.h>

#include <new>

#include "headrace/forecast/network_internal.h"

namespace headrace::forecast {

namespace {

constexpr size_t kHugePage = size_t{1} << 21;
constexpr size_t kHugeFrom = size_t{1} << 20;

std::align_val_t alignment(size_t bytes) {
  return std::align_val_t{bytes >= kHugeFrom ? kHugePage : 64};
}

}  // namespace

void* allocate_aligned(size_t bytes) {
  void* memory = ::operator new(bytes, alignment(bytes));
  if (bytes >= kHugeFrom) {
    // Only advice: without huge pages all is as before, but for the misses of the TLB.
    static_cast<void>(madvise(memory, bytes, MADV_HUGEPAGE));
  }
  return memory;
}

void free_aligned(void* memory, size_t bytes) { ::operator delete(memory, alignment(bytes)); }

}  // namespace headrace::forecast
