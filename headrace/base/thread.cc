// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/thread.h"

#include <pthread.h>

namespace headrace::base {

Thread::Thread(std::string name, std::function<void()> body)
    : thread_([name = std::move(name), body = std::move(body)] {
        pthread_setname_np(pthread_self(),
                           name.substr(0, 15).c_str());  // the kernel keeps 15 characters
        body();
      }) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  join();
  thread_ = std::move(other.thread_);
  return *this;
}

Thread::~Thread() { join(); }

void Thread::join() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

}  // namespace headrace::base
