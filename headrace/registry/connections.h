// SPDX-License-Identifier: Apache-2.0
// A small pool of read connections: one thread uses one at a time.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "headrace/base/thread.h"
#include "headrace/registry/database.h"

namespace headrace::registry {

/// Thread-safe. After fork() the child's copy is never closed: closing would disturb the parent's
/// locks.
class Connections {
 public:
  Connections(base::Path database, bool select_only);
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  /// Give the connection back at destruction.
  class Lease {
   public:
    Lease(Connections* owner, std::unique_ptr<Database> database)
        : owner_(owner), database_(std::move(database)) {}
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease();
    Database* operator->() const { return database_.get(); }
    Database* get() const { return database_.get(); }

   private:
    Connections* owner_;
    std::unique_ptr<Database> database_;
  };
  Result<Lease> take();

  /// Refuse in the child of a fork, with the sentence that says what to do.
  Result<void> check_process() const;

 private:
  const base::Path path_;
  const bool select_only_;
  const int64_t pid_;
  base::Mutex mu_;  // leaf
  std::vector<std::unique_ptr<Database>> idle_ HR_GUARDED_BY(mu_);
};

}  // namespace headrace::registry
