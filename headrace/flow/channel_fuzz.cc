// SPDX-License-Identifier: Apache-2.0
// Whatever a worker sends, cutting it into frames and reading these ends with frames or an error;
// how the bytes were cut up on their way makes no difference.
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "headrace/base/check.h"
#include "headrace/base/file.h"
#include "headrace/flow/channel_internal.h"

namespace {

using headrace::flow::FrameReader;

/// The frames of `bytes`, told as texts, and "corrupt" where they end.
std::vector<std::string> frames_of(std::string_view bytes, size_t step) {
  const headrace::base::Fd file(::memfd_create("frames", MFD_CLOEXEC));
  HR_CHECK(file.valid(), "memfd_create");
  FrameReader reader;
  std::vector<std::string> out;
  for (size_t begin = 0; begin < bytes.size(); begin += step) {
    const std::string_view some = bytes.substr(begin, step);
    const auto at = static_cast<off_t>(begin);
    HR_CHECK(
        ::pwrite(file.get(), some.data(), some.size(), at) == static_cast<ssize_t>(some.size()),
        "pwrite");
    while (*reader.read_from(file.get()) == FrameReader::Read::data) {
      for (;;) {
        const auto frame = reader.next();
        if (!frame.ok()) {
          out.emplace_back("corrupt");
          return out;
        }
        if (!frame->has_value()) {
          break;
        }
        const std::string_view payload = (*frame)->payload;
        static_cast<void>(headrace::flow::decode_hello(payload));
        static_cast<void>(headrace::flow::decode_call(payload));
        static_cast<void>(headrace::flow::decode_result(payload));
        static_cast<void>(headrace::flow::decode_group(payload));
        out.push_back(std::to_string(static_cast<int>((*frame)->type)) + std::string(payload));
      }
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto whole = frames_of(bytes, size + 1);
  HR_CHECK(frames_of(bytes, size / 3 + 1) == whole, "frames depend on how their bytes came");
  return 0;
}
