// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/payload.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

namespace headrace::run {

namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;

}  // namespace

Result<void> put_file(wire::StoreClient& store, const std::string& key, const base::Path& path,
                      const base::Deadline& deadline) {
  HR_TRY(const auto bytes, base::read_file(path));
  size_t count = 0;
  for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
    HR_TRY(store.set(fmt::format("{}/{}", key, count),
                     std::string_view(bytes).substr(at, kPieceBytes), deadline));
    ++count;
  }
  return store.set(key + "/count", fmt::to_string(count), deadline);
}

Result<bool> take_file(wire::StoreClient& store, const std::string& key, const base::Path& path,
                       const base::Deadline& deadline) {
  HR_TRY(const auto number, store.get(key + "/count", deadline));
  if (!number) {
    return false;
  }
  size_t count = 0;
  std::from_chars(number->data(), number->data() + number->size(), count);
  HR_TRY(const auto file, base::open_file(path, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  for (size_t piece = 0; piece < count; ++piece) {
    HR_TRY(const auto bytes, store.get(fmt::format("{}/{}", key, piece), deadline));
    if (!bytes) {
      return Error{Errc::corrupt, fmt::format("run: part {} of {} in the job's store is missing",
                                              piece, key)};
    }
    HR_TRY(base::write_all(file.get(), *bytes, path));
  }
  return true;
}

}  // namespace headrace::run
