// SPDX-License-Identifier: Apache-2.0
// Failures as values: one Error for all planes, and Result<T> that carries either a value or an
// Error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "headrace/base/check.h"
#include "headrace/base/export.h"

namespace headrace {

/// The kinds of failure a caller may act on.
enum class Errc : uint8_t {
  invalid_argument,  ///< the caller's input is wrong; correct it and call again
  not_found,         ///< the named thing is not there
  already_exists,    ///< the name is taken by something else
  mismatch,          ///< two things that must agree do not (schema, content, version)
  corrupt,           ///< bytes that were read are not what their format says
  io,                ///< the system refused a read, write, open or rename
  out_of_space,      ///< disk or quota is full; free some and resume
  out_of_memory,     ///< an allocation or a child's memory limit was exceeded
  timeout,           ///< a bounded wait ended; the message names who was waited for
  cancelled,         ///< somebody asked to stop
  child_failed,      ///< a process we own ended badly; `origin` says how
  unsupported,       ///< a known thing that this build or machine cannot do
  busy,              ///< somebody else holds it; the message names the holder
  peer_dead,         ///< a process that takes part has died; `origin` says which
  auth_failed,       ///< the other side did not prove that it knows the job's secret
  internal,          ///< a bug reported as a value
};

/// Name of a code as it stands in JSON and messages, e.g. "not_found".
HR_API std::string_view errc_name(Errc code);

/// Where a failure happened first.
struct Origin {
  int rank = -1;
  std::string host;
  int64_t pid = -1;
  std::string exit;  ///< "exit code 3", "SIGKILL (out of memory)", ...
};

/// One failure: what, where, with which values, and what to do. `note`s are later, secondary
/// causes.
class HR_API Error {
 public:
  Error(Errc code, std::string message) : code_(code), message_(std::move(message)) {}

  Errc code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::optional<Origin>& origin() const { return origin_; }

  /// Put `context` in front: "context: message". The first cause stays the cause.
  Error& add_context(std::string_view context) {
    message_ = std::string(context) + ": " + message_;
    return *this;
  }
  /// Append a secondary failure without replacing the cause.
  Error& add_note(std::string_view note) {
    message_ += "; note: ";
    message_ += note;
    return *this;
  }
  Error& set_origin(Origin origin) {
    origin_ = std::move(origin);
    return *this;
  }

 private:
  Errc code_;
  std::string message_;
  std::optional<Origin> origin_;
};

/// Error of a failed system call: "`what`: strerror", with out_of_space for ENOSPC and EDQUOT,
/// not_found for ENOENT, already_exists for EEXIST, out_of_memory for ENOMEM, io otherwise.
HR_API Error errno_error(int error_number, std::string_view what);

/// A value or an Error. Reading the absent side is a bug (HR_CHECK).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    HR_CHECK(ok(), std::get<1>(state_).message());
    return std::get<0>(state_);
  }
  const T& value() const& {
    HR_CHECK(ok(), std::get<1>(state_).message());
    return std::get<0>(state_);
  }
  T&& value() && {
    HR_CHECK(ok(), std::get<1>(state_).message());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  T value_or(T other) const& { return ok() ? std::get<0>(state_) : std::move(other); }

  Error& error() & {
    HR_CHECK(!ok(), "the result holds a value");
    return std::get<1>(state_);
  }
  const Error& error() const& {
    HR_CHECK(!ok(), "the result holds a value");
    return std::get<1>(state_);
  }
  Error&& error() && {
    HR_CHECK(!ok(), "the result holds a value");
    return std::get<1>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

/// Success without a value, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  void value() const { HR_CHECK(ok(), error_->message()); }
  Error& error() & {
    HR_CHECK(!ok(), "the result holds no error");
    return *error_;
  }
  const Error& error() const& {
    HR_CHECK(!ok(), "the result holds no error");
    return *error_;
  }
  Error&& error() && {
    HR_CHECK(!ok(), "the result holds no error");
    return *std::move(error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace headrace

#define HR_CONCAT_INNER(a, b) a##b
#define HR_CONCAT(a, b) HR_CONCAT_INNER(a, b)

/// HR_TRY(expr): return the Error upward. HR_TRY(auto x, expr): declare x from the value, or return
/// the Error. A further argument after `expr` is context: HR_TRY(auto x, expr, "reading " + path).
#define HR_TRY_1(expr)                     \
  do {                                     \
    auto hr_result = (expr);               \
    if (!hr_result.ok()) [[unlikely]] {    \
      return std::move(hr_result).error(); \
    }                                      \
  } while (false)
#define HR_TRY_2(decl, expr) HR_TRY_2_INNER(HR_CONCAT(hr_result_, __LINE__), decl, expr)
#define HR_TRY_2_INNER(tmp, decl, expr) \
  auto tmp = (expr);                    \
  if (!tmp.ok()) [[unlikely]] {         \
    return std::move(tmp).error();      \
  }                                     \
  decl = *std::move(tmp)
#define HR_TRY_3(decl, expr, context) \
  HR_TRY_3_INNER(HR_CONCAT(hr_result_, __LINE__), decl, expr, context)
#define HR_TRY_3_INNER(tmp, decl, expr, context)                   \
  auto tmp = (expr);                                               \
  if (!tmp.ok()) [[unlikely]] {                                    \
    return std::move(std::move(tmp).error().add_context(context)); \
  }                                                                \
  decl = *std::move(tmp)
#define HR_TRY_PICK(_1, _2, _3, NAME, ...) NAME
#define HR_TRY(...) HR_TRY_PICK(__VA_ARGS__, HR_TRY_3, HR_TRY_2, HR_TRY_1, unused)(__VA_ARGS__)
