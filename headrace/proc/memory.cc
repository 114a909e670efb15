// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <string>
#include <string_view>

#include "headrace/proc/memory_internal.h"

namespace headrace::proc {

namespace {

constexpr int64_t kTextMax = 1 << 20;

/// The number behind "`name` " at the start of a line; 0 when there is none.
int64_t counter_in(const base::Path& path, std::string_view name) {
  const auto text = base::read_file(path, kTextMax);
  if (!text.ok()) {
    return 0;
  }
  const std::string wanted = std::string(name) + " ";
  std::string_view rest = *text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    if (line.substr(0, wanted.size()) == wanted) {
      int64_t value = 0;
      std::from_chars(line.data() + wanted.size(), line.data() + line.size(), value);
      return value;
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return 0;
}

/// Folder below `root` of the line of `membership` with these controllers ("" is v2).
base::Path group_of(std::string_view membership, std::string_view controllers) {
  const std::string wanted = ":" + std::string(controllers) + ":";
  const size_t at = membership.find(wanted);
  if (at == std::string_view::npos) {
    return {};
  }
  const std::string_view path = membership.substr(at + wanted.size());
  return base::Path(path.substr(0, path.find('\n'))).relative_path();
}

}  // namespace

int64_t out_of_memory_kills(const base::Path& membership, const base::Path& root,
                            const base::Path& vmstat) {
  const std::string groups = base::read_file(membership, kTextMax).value_or("");
  return counter_in(root / group_of(groups, "") / "memory.events", "oom_kill") +
         counter_in(root / "memory" / group_of(groups, "memory") / "memory.oom_control",
                    "oom_kill") +
         counter_in(vmstat, "oom_kill");
}

}  // namespace headrace::proc
