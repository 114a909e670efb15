// SPDX-License-Identifier: Apache-2.0
// Contexts whose ranks are processes, for tests of what only processes can do: die, stop, be
// killed.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/file.h"
#include "headrace/base/json.h"
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

/// What a rank has stored under a key of run_ranks() that begins with `what`, once it has.
inline Json stored(const base::Path& folder, const std::string& what, int rank) {
  const auto text = folder_store(folder).get("headrace/0/" + what + "/" + std::to_string(rank),
                                             base::Deadline::in(std::chrono::seconds(20)));
  REQUIRE(text.ok());
  auto json = parse_json(*text, "what a rank has stored");
  REQUIRE(json.ok());
  return *std::move(json);
}

/// Run `body` as each of `ranks` processes, and `meanwhile` here; their exit codes.
inline std::vector<int> run_ranks(
    int ranks, const std::function<int(Context&)>& body,
    const std::function<void(Config&)>& adjust = [](Config&) {},
    const std::function<void(const base::Path&)>& meanwhile = [](const base::Path&) {}) {
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
  meanwhile(folder.path());
  std::vector<int> codes;
  for (auto& process : processes) {
    codes.push_back(process.wait(std::chrono::seconds(60)));
  }
  return codes;
}

inline int sum_of_ranks(ProcessSet& set, size_t count) {
  std::vector<int64_t> values(count, set.rank() + 1);
  const Buffer buffer = {values.data(), values.size(), Dtype::i64};
  if (!set.all_reduce(buffer, Op::sum, {.blocking = true}).wait().ok()) {
    return -1;
  }
  const int64_t wanted = int64_t{set.size()} * (set.size() + 1) / 2;
  return values == std::vector<int64_t>(count, wanted) ? 0 : -2;
}

}  // namespace headrace::comm::testing
