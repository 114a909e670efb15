// SPDX-License-Identifier: Apache-2.0
#include "headrace/proc/stray.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <string>

#include "headrace/base/clock.h"
#include "headrace/base/file.h"

namespace headrace::proc {

namespace {

using base::Fd;

constexpr int64_t kEnvironmentBytesMax = int64_t{16}
                                         << 20;  // the kernel allows a quarter of a stack

Environment split(std::string_view text) {
  Environment all;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\0', begin), text.size());
    all.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

/// Handles of all strays that run now.
std::vector<Fd> find_strays(const std::function<bool(const Environment&)>& is_stray) {
  std::vector<Fd> found;
  std::error_code code;
  auto it = std::filesystem::directory_iterator("/proc", code);
  for (; !code && it != std::filesystem::directory_iterator(); it.increment(code)) {
    const std::string name = it->path().filename().string();
    pid_t pid = -1;
    const auto number = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (number.ec != std::errc() || number.ptr != name.data() + name.size() || pid == ::getpid()) {
      continue;
    }
    // The handle first: should the number go to another process, the handle does not.
    Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    const auto text = base::read_file(it->path() / "environ", kEnvironmentBytesMax);
    if (handle.valid() && text.ok() && !text->empty() && is_stray(split(*text))) {
      found.push_back(std::move(handle));  // of others' processes the environment cannot be read
    }
  }
  return found;
}

}  // namespace

std::string_view value_in(const Environment& environment, std::string_view name) {
  for (const std::string_view variable : environment) {
    if (variable.size() > name.size() && variable[name.size()] == '=' &&
        variable.starts_with(name)) {
      return variable.substr(name.size() + 1);
    }
  }
  return {};
}

Result<int64_t> kill_strays(const std::function<bool(const Environment&)>& is_stray, Millis limit) {
  const base::Deadline deadline = base::Deadline::in(limit);
  int64_t killed = 0;
  // Again until there is none: a process may make others while it is looked for.
  for (;;) {
    const std::vector<Fd> strays = find_strays(is_stray);
    if (strays.empty()) {
      return killed;
    }
    for (const Fd& stray : strays) {
      killed += ::syscall(SYS_pidfd_send_signal, stray.get(), SIGKILL, nullptr, 0) == 0 ? 1 : 0;
    }
    for (const Fd& stray : strays) {
      pollfd end = {stray.get(), POLLIN, 0};
      const auto left = static_cast<int>(deadline.left().count() / 1000);
      if (::poll(&end, 1, left) == 0) {
        return Error{Errc::timeout,
                     fmt::format("{} processes that were left behind do not end within {} ms of a "
                                 "SIGKILL; they may hang in a file system",
                                 strays.size(), limit.count())};
      }
    }
  }
}

}  // namespace headrace::proc
