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

struct Stray {
  pid_t pid = -1;
  Fd handle;
};

/// All strays that run now.
std::vector<Stray> find_strays(const std::function<bool(const Environment&)>& is_stray) {
  std::vector<Stray> found;
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
      found.push_back(
          {pid, std::move(handle)});  // of others' processes the environment cannot be read
    }
  }
  return found;
}

/// Wait for their ends; those that are still there when the time is over.
std::vector<pid_t> wait_for_ends(const std::vector<Stray>& strays, const base::Deadline& deadline) {
  std::vector<pid_t> left;
  for (const Stray& stray : strays) {
    pollfd end = {stray.handle.get(), POLLIN, 0};
    if (::poll(&end, 1, static_cast<int>(deadline.left().count() / 1000)) != 1) {
      left.push_back(stray.pid);
    }
  }
  return left;
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
    const std::vector<Stray> strays = find_strays(is_stray);
    if (strays.empty()) {
      return killed;
    }
    for (const Stray& stray : strays) {
      killed +=
          ::syscall(SYS_pidfd_send_signal, stray.handle.get(), SIGKILL, nullptr, 0) == 0 ? 1 : 0;
    }
    std::vector<pid_t> left = wait_for_ends(strays, deadline);
    if (left.empty() && !deadline.passed()) {
      continue;
    }
    for (const Stray& stray : left.empty() ? find_strays(is_stray) : std::vector<Stray>()) {
      left.push_back(stray.pid);  // they come faster than they go
    }
    if (!left.empty()) {
      return Error{Errc::timeout,
                   fmt::format("processes left behind by a command that was cut short are still "
                               "there {} ms after a SIGKILL: pid {}; they may hang in a file "
                               "system (state D in ps): wait for them or end what they wait for, "
                               "then try again",
                               limit.count(), fmt::join(left, ", "))};
    }
  }
}

}  // namespace headrace::proc
