// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "headrace/base/test_folder.h"
#include "headrace/proc/memory_internal.h"

namespace headrace::proc {

TEST_CASE("kills for lack of memory are read from both kinds of control group and the machine") {
  const base::TestFolder folder;
  const auto put = [&folder](std::string_view name, std::string_view text) {
    REQUIRE(base::make_folders((folder / name).parent_path()).ok());
    REQUIRE(base::replace_file(folder / name, text).ok());
  };
  const auto kills = [&folder] {
    return out_of_memory_kills(folder / "self", folder / "cgroup", folder / "vmstat");
  };
  CHECK(kills() == 0);
  put("vmstat", "nr_free_pages 12\noom_kill 3\n");
  CHECK(kills() == 3);
  put("self", "0::/job\n");
  put("cgroup/job/memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n");
  CHECK(kills() == 5);
  put("self", "9:cpu,cpuacct:/other\n4:memory:/box/a\n0::/\n");
  put("cgroup/memory/box/a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n");
  CHECK(kills() == 10);
}

}  // namespace headrace::proc
