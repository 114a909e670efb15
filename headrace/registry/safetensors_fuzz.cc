// SPDX-License-Identifier: Apache-2.0
// Whatever bytes a model file holds, opening it and reading all of it ends with values or an error.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "headrace/registry/model_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using headrace::registry::ModelFile;
  const headrace::base::Fd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  HR_CHECK(::write(fd.get(), data, size) == static_cast<ssize_t>(size), "writing the input");
  const auto file =
      ModelFile::open("/proc/self/fd/" + std::to_string(fd.get()), {.verify_checksum = false});
  if (!file.ok()) {
    return 0;
  }
  unsigned sum = 0;
  for (const auto& view : file->tensors()) {
    for (const std::byte byte : view.data) {
      sum += std::to_integer<unsigned>(byte);  // every byte that was handed out can be read
    }
  }
  static_cast<void>(sum);
  static_cast<void>(file->verify_items().ok());
  static_cast<void>(file->item("a").ok());
  return 0;
}
