// SPDX-License-Identifier: Apache-2.0
// A comm::Context as the bindings own it.
#pragma once

#include "python/src/border.h"

#include <memory>
#include <utility>

#include "headrace/comm/context.h"

namespace headrace::python {

/// Closes without the GIL: a thread that it waits for may be about to take it.
class ContextHolder {
 public:
  explicit ContextHolder(std::unique_ptr<comm::Context> context) : context_(std::move(context)) {}
  ContextHolder(ContextHolder&&) = default;
  ContextHolder& operator=(ContextHolder&&) = delete;
  ~ContextHolder() {
    const nb::gil_scoped_release release;
    context_.reset();
  }
  comm::Context& operator*() const { return *context_; }
  comm::Context* operator->() const { return context_.get(); }

 private:
  std::unique_ptr<comm::Context> context_;
};

}  // namespace headrace::python
