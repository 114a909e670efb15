// SPDX-License-Identifier: Apache-2.0
// Contexts whose ranks are threads of one process, for tests: the sanitizers see all of them.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/thread.h"
#include "headrace/comm/context.h"

namespace headrace::comm::testing {

/// A store for the threads of one process.
class MapStore {
 public:
  StoreTable table() {
    return {.set = [this](const std::string& key, const std::string& value) -> Result<void> {
              base::MutexLock lock(mutex_);
              values_[key] = value;
              changed_.notify_all();
              return {};
            },
            .get = [this](const std::string& key, base::Deadline deadline) -> Result<std::string> {
              base::MutexLock lock(mutex_);
              const auto there = [&]()
                                     HR_NO_THREAD_SAFETY_ANALYSIS { return values_.contains(key); };
              if (!changed_.wait_for(
                      mutex_, std::min<base::Micros>(deadline.left(), std::chrono::minutes(1)),
                      there)) {
                return Error{Errc::timeout, "no " + key};
              }
              return values_[key];
            }};
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  std::map<std::string, std::string> values_ HR_GUARDED_BY(mutex_);
};

/// Run `body` as each of `ranks` threads, each with a context of its own; their inits must succeed.
inline void run_thread_ranks(int ranks, const std::function<void(Config&)>& adjust,
                             const std::function<void(Context&)>& body) {
  MapStore store;
  std::vector<base::Thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back("rank", [&, rank] {
      Config config = {.rank = rank, .world_size = ranks};
      config.init_timeout = std::chrono::seconds(60);
      config.timeout = std::chrono::seconds(60);
      adjust(config);
      auto context = Context::init(config, store.table());
      if (!context.ok()) {
        FAIL_CHECK(context.error().message());
        return;
      }
      body(**context);
    });
  }
}

}  // namespace headrace::comm::testing
