// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/result.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <memory>

namespace headrace {

namespace {

Result<int> half(int value) {
  if (value % 2 != 0) {
    return Error{Errc::invalid_argument, std::to_string(value) + " is odd"};
  }
  return value / 2;
}

Result<int> quarter(int value) {
  HR_TRY(const int first, half(value), "first half");
  HR_TRY(const int second, half(first), "second half");
  return second;
}

Result<void> must_be_even(int value) {
  HR_TRY(half(value));
  return {};
}

}  // namespace

TEST_CASE("HR_TRY passes values on and errors up, with context in front") {
  CHECK(*quarter(8) == 2);
  CHECK(quarter(3).error().message() == "first half: 3 is odd");
  CHECK(quarter(6).error().message() == "second half: 3 is odd");
  CHECK(quarter(6).error().code() == Errc::invalid_argument);
  CHECK(must_be_even(2).ok());
  CHECK(must_be_even(1).error().message() == "1 is odd");
}

TEST_CASE("a result carries values that can only be moved") {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  std::unique_ptr<int> value = *std::move(result);
  CHECK(*value == 7);
}

TEST_CASE("a note follows the first cause and does not replace it") {
  Error error(Errc::io, "the disk is gone");
  error.add_note("the lock file stays").add_context("closing");
  CHECK(error.message() == "closing: the disk is gone; note: the lock file stays");
  CHECK(error.code() == Errc::io);
}

TEST_CASE("errors of the system get the code that a caller acts on") {
  CHECK(errno_error(ENOSPC, "writing").code() == Errc::out_of_space);
  CHECK(errno_error(EDQUOT, "writing").code() == Errc::out_of_space);
  CHECK(errno_error(ENOENT, "opening").code() == Errc::not_found);
  CHECK(errno_error(EEXIST, "making").code() == Errc::already_exists);
  CHECK(errno_error(ENOMEM, "mapping").code() == Errc::out_of_memory);
  CHECK(errno_error(EACCES, "opening a").code() == Errc::io);
  CHECK(errno_error(EACCES, "opening a").message().starts_with("opening a: Permission denied"));
}

TEST_CASE("every code has the name that JSON shows") {
  CHECK(errc_name(Errc::not_found) == "not_found");
  CHECK(errc_name(Errc::child_failed) == "child_failed");
  CHECK(errc_name(Errc::auth_failed) == "auth_failed");
  CHECK(errc_name(Errc::internal) == "internal");
}

}  // namespace headrace
