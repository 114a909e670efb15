// SPDX-License-Identifier: Apache-2.0
// Whatever a metadata file holds, reading it ends with a data set or an error.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "headrace/base/check.h"
#include "headrace/base/file.h"
#include "headrace/lake/dataset.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const headrace::base::Fd file(::memfd_create("metadata", MFD_CLOEXEC));
  HR_CHECK(file.valid() && ::write(file.get(), data, size) == static_cast<ssize_t>(size), "memfd");
  const auto read = headrace::lake::read_dataset("/proc/self/fd/" + std::to_string(file.get()));
  if (read.ok()) {
    HR_CHECK(!read->frequency.empty() && read->horizon >= 0, read->frequency);
  }
  return 0;
}
