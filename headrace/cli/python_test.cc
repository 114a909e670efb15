// SPDX-License-Identifier: Apache-2.0
#include "headrace/cli/python.h"

#include <doctest/doctest.h>

namespace headrace::cli {

namespace {
bool everything(const std::string&) { return true; }
bool nothing(const std::string&) { return false; }
}  // namespace

TEST_CASE("the variable names the interpreter before anything else") {
  CHECK(python_program({"py3.12", "env/bin/headrace", "other"}, everything) == "py3.12");
}

TEST_CASE("the interpreter beside the called program comes before the active environment") {
  CHECK(python_program({"", "env/bin/headrace", "other"}, everything) == "env/bin/python");
  CHECK(python_program({"", "", "other"}, everything) == "other/bin/python");
}

TEST_CASE("without an environment it is python3 of the path") {
  CHECK(python_program({"", "env/bin/headrace", "other"}, nothing) == "python3");
  CHECK(python_program({"", "headrace", ""}, everything) == "python3");
}

}  // namespace headrace::cli
