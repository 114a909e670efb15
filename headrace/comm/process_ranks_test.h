// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes, for tests of what threads cannot do: die, stop, leave.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/file.h"
#include "headrace/base/test_folder.h"
#include "headrace/base/test_process.h"
#include "headrace/comm/context.h"

namespace headrace::comm::testing {

/// Keys as files of a folder, for ranks that are processes.
inline StoreTable folder_store(const base::Path& folder) {
  const auto path_of = [folder](const std::string& key) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '/', '_');
    return folder / name;
  };
  return {
      .set = [path_of](const std::string& key, const std::string& value) -> Result<void> {
        return base::replace_file(path_of(key), value);
      },
      .get = [path_of](const std::string& key, base::Deadline deadline) -> Result<std::string> {
        while (!std::filesystem::exists(path_of(key))) {
          if (deadline.passed()) {
            return Error{Errc::timeout, "no " + key};
          }
          base::sleep_for(std::chrono::milliseconds(1));
        }
        return base::read_file(path_of(key));
      },
  };
}

/// Run `body` as each of `ranks` processes; their exit codes.
inline std::vector<int> run_ranks(
    int ranks, const std::function<int(Context&)>& body,
    const std::function<void(Config&)>& adjust = [](Config&) {}) {
  base::TestFolder folder;
  std::vector<base::TestProcess> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.emplace_back([&, rank] {
      Config config = {.rank = rank, .world_size = ranks};
      config.init_timeout = std::chrono::seconds(20);
      config.timeout = std::chrono::seconds(20);
      adjust(config);
      auto context = Context::init(config, folder_store(folder.path()));
      if (!context.ok()) {
        fprintf(stderr, "rank %d: %s\n", rank, context.error().message().c_str());
        return 50 + static_cast<int>(context.error().code());
      }
      return body(**context);
    });
  }
  std::vector<int> codes;
  for (auto& process : processes) {
    codes.push_back(process.wait(std::chrono::seconds(60)));
  }
  return codes;
}

}  // namespace headrace::comm::testing
