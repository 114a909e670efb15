// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/connections.h"

#include <unistd.h>

namespace headrace::registry {

namespace {
constexpr size_t kIdleMax = 8;
}  // namespace

Connections::Connections(base::Path database, bool select_only)
    : path_(std::move(database)), select_only_(select_only), pid_(::getpid()) {}

Connections::~Connections() {
  if (!check_process().ok()) {
    for (auto& database : idle_) {
      database->abandon();
    }
  }
}

Connections::Lease::~Lease() {
  if (database_ == nullptr || owner_ == nullptr) {
    return;
  }
  base::MutexLock lock(owner_->mu_);
  if (owner_->idle_.size() < kIdleMax) {
    owner_->idle_.push_back(std::move(database_));
  }
}

Result<Connections::Lease> Connections::take() {
  HR_TRY(check_process());
  {
    base::MutexLock lock(mu_);
    if (!idle_.empty()) {
      auto database = std::move(idle_.back());
      idle_.pop_back();
      return Lease(this, std::move(database));
    }
  }
  HR_TRY(auto database, Database::open(path_, {.select_only = select_only_}));
  return Lease(this, std::move(database));
}

Result<void> Connections::check_process() const {
  if (::getpid() != pid_) {
    return Error{Errc::invalid_argument,
                 "headrace was started before fork(); use the spawn start method, or open the "
                 "registry again in this process"};
  }
  return {};
}

}  // namespace headrace::registry
