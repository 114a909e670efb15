// SPDX-License-Identifier: Apache-2.0
// What the binding files of the collectives share.
#pragma once

#include "python/src/border.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "headrace/comm/context.h"

namespace headrace::python {

inline std::chrono::milliseconds milliseconds_of(double seconds) {
  constexpr double kLongest = 1e9;  // 30 years: a wait without a bound is none of ours
  return std::chrono::milliseconds(static_cast<int64_t>(std::min(seconds, kLongest) * 1000.0));
}

inline std::optional<std::chrono::milliseconds> optional_milliseconds(
    std::optional<double> seconds) {
  return seconds ? std::optional(milliseconds_of(*seconds)) : std::nullopt;
}

/// Something with threads, for an object of Python to hold. It goes without the GIL, for a thread
/// that it waits for may be about to take that.
template <class T>
class Held {
 public:
  Held() = default;
  explicit Held(std::unique_ptr<T> value) : value_(std::move(value)) {}
  Held(Held&&) noexcept = default;
  Held(const Held&) = default;
  Held& operator=(Held&& other) noexcept {
    reset();
    value_ = std::move(other.value_);
    return *this;
  }
  ~Held() { reset(); }
  void reset() {
    if (value_ != nullptr) {
      const nb::gil_scoped_release release;
      value_.reset();
    }
  }
  T& operator*() const { return *value_; }
  T* operator->() const { return value_.get(); }
  explicit operator bool() const { return value_ != nullptr; }

 private:
  std::shared_ptr<T> value_;
};

using ContextHolder = Held<comm::Context>;

/// Adds `named` to the class of contexts.
void bind_named(nb::module_& m, nb::class_<ContextHolder>& context);

/// Adds to the class of process sets what concerns GPUs, and `gpu_libraries` to the module.
void bind_gpu(nb::module_& m, nb::class_<comm::ProcessSet>& set);

}  // namespace headrace::python
