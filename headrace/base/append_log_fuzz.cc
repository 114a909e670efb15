// SPDX-License-Identifier: Apache-2.0
// Whatever a log's file holds, reading it ends with records or an error.
#include <sys/mman.h>
#include <unistd.h>

#include "headrace/base/append_log.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using headrace::base::AppendLog;
  using headrace::base::Fd;
  const Fd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  HR_CHECK(::write(fd.get(), data, size) == static_cast<ssize_t>(size), "writing the input");
  size_t bytes = 0;
  const auto result =
      AppendLog::read("/proc/self/fd/" + std::to_string(fd.get()),
                      [&bytes](uint8_t, std::string_view payload) -> headrace::Result<void> {
                        bytes += payload.size() + 16;
                        return {};
                      });
  HR_CHECK(bytes <= size, "more records than bytes");
  static_cast<void>(result.ok());
  return 0;
}
