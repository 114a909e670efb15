// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/writer.h"

#include <unistd.h>

#include <algorithm>

#include "headrace/base/file_lock.h"
#include "headrace/registry/fault.h"
#include "headrace/registry/limits.h"

namespace headrace::registry {

Writer::Writer(Options options) : options_(std::move(options)), pid_(::getpid()) {}

Writer::~Writer() {
  if (database_ != nullptr && ::getpid() != pid_) {
    database_->abandon();
  }
}

Result<Database*> Writer::connection() {
  if (database_ == nullptr) {
    HR_TRY(database_, Database::open(options_.database, {.mode = DatabaseMode::read_write,
                                                         .sync_full = options_.sync_full}));
  }
  return database_.get();
}

Result<void> Writer::run(const Change& change) {
  if (::getpid() != pid_) {
    return Error{Errc::invalid_argument,
                 "headrace was started before fork(); use the spawn start method, or open the "
                 "registry again in this process"};
  }
  Request own{&change, base::Deadline::in(options_.lock_timeout), {}, std::nullopt};
  mu_.lock();
  waiting_.push_back(&own);
  while (!own.result) {
    if (!led_) {
      led_ = true;
      mu_.unlock();
      lead(&own);
      mu_.lock();
      led_ = false;
      changed_.notify_all();
      continue;
    }
    const auto ready = [&]() HR_REQUIRES(mu_) { return own.result.has_value() || !led_; };
    if (!changed_.wait_for(
            mu_, std::min<base::Micros>(own.deadline.left(), std::chrono::seconds(1)), ready) &&
        own.deadline.passed() && !own.taken) {
      std::erase(waiting_, &own);
      own.result = Error{Errc::busy, "registry: other threads of this process kept writing for " +
                                         std::to_string(options_.lock_timeout.count() / 1000) +
                                         " ms; raise lock_timeout"};
    }
  }
  mu_.unlock();
  return *std::move(own.result);
}

std::vector<Writer::Request*> Writer::take_batch(size_t already) {
  std::vector<Request*> batch;
  base::MutexLock lock(mu_);
  while (!waiting_.empty() && static_cast<int64_t>(already + batch.size()) < kBatchRowsMax) {
    waiting_.front()->taken = true;
    batch.push_back(waiting_.front());
    waiting_.pop_front();
  }
  return batch;
}

void Writer::lead(Request* own) {
  std::vector<Request*> batch;
  const Result<void> all = commit_batch(*own, &batch);
  base::MutexLock lock(mu_);
  for (Request* request : batch) {
    request->result = all.ok() ? std::move(request->outcome) : all;
  }
  if (!own->taken && !all.ok()) {  // the lock was not to be had in our time; others try in theirs
    std::erase(waiting_, own);
    own->result = all;
  }
}

void Writer::run_one(Request* request) {
  // Each change in its own savepoint: one that fails takes nobody with it.
  request->outcome = database_->execute("SAVEPOINT change");
  if (!request->outcome.ok()) {
    return;
  }
  request->outcome = (*request->change)(database_.get());
  if (!request->outcome.ok() && database_->in_transaction()) {
    static_cast<void>(database_->execute("ROLLBACK TO change"));
    database_->forget_keys();
  }
  if (database_->in_transaction()) {
    static_cast<void>(database_->execute("RELEASE change"));
  }
}

Result<void> Writer::commit_batch(const Request& own, std::vector<Request*>* batch) {
  const base::Micros begun = base::system_clock().monotonic();
  HR_TRY(auto lock, base::FileLock::acquire(options_.lock_file, own.deadline.left().count() / 1000,
                                            base::holder_description(options_.command), 0600));
  const base::Micros locked = base::system_clock().monotonic();
  options_.lock_wait_seconds.observe(locked - begun);
  fault::point("writer.locked");
  HR_TRY(connection());
  *batch = take_batch(0);  // only now: those who came while we waited for the lock ride along
  HR_TRY(auto transaction, Transaction::begin(database_.get(), true));
  const base::Deadline deadline = base::Deadline::in(base::Micros(kBatchMicrosMax));
  for (size_t done = 0; done < batch->size();) {
    run_one((*batch)[done++]);
    if (!database_->in_transaction()) {  // a full disk or an I/O error undid everything
      return Error((*batch)[done - 1]->outcome.error()).add_context("the transaction was undone");
    }
    if (done == batch->size() && !deadline.passed()) {
      const auto more = take_batch(batch->size());
      batch->insert(batch->end(), more.begin(), more.end());
    }
  }
  fault::point("writer.before_commit");
  HR_TRY(transaction.commit());
  options_.commit_seconds.observe(base::system_clock().monotonic() - locked);
  fault::point("writer.after_commit");
  return {};
}

Result<void> Writer::exclusive(const std::function<Result<void>(Database*)>& body) {
  if (::getpid() != pid_) {
    return Error{Errc::invalid_argument,
                 "headrace was started before fork(); open the registry again in this process"};
  }
  const base::Deadline deadline = base::Deadline::in(options_.lock_timeout);
  {
    base::MutexLock lock(mu_);
    if (!changed_.wait_for(mu_, options_.lock_timeout,
                           [this]() HR_REQUIRES(mu_) { return !led_; })) {
      return Error{Errc::busy, "registry: another thread of this process keeps writing"};
    }
    led_ = true;
  }
  const auto work = [&]() -> Result<void> {
    HR_TRY(auto lock, base::FileLock::acquire(options_.lock_file, deadline.left().count() / 1000,
                                              base::holder_description(options_.command), 0600));
    HR_TRY(connection());
    return body(database_.get());
  };
  const Result<void> result = work();
  base::MutexLock lock(mu_);
  led_ = false;
  changed_.notify_all();
  return result;
}

}  // namespace headrace::registry
