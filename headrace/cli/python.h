// SPDX-License-Identifier: Apache-2.0
// Which Python a command starts when it needs one: the same answer for every command.
#pragma once

#include <string>
#include <vector>

namespace headrace::cli {

/// The interpreter: HEADRACE_PYTHON (the console script sets it to its own), else the one beside
/// the program as it was called (`.venv/bin/headrace` -> `.venv/bin/python`), else that of
/// VIRTUAL_ENV, else "python3" of the PATH.
std::string python_program();

/// The rule alone, for tests: `called_as` is argv[0] with its folder, or empty; `exists` answers
/// for a path.
struct PythonPlaces {
  std::string variable;
  std::string called_as;
  std::string virtual_environment;
};
std::string python_program(const PythonPlaces& places, bool (*exists)(const std::string& path));

}  // namespace headrace::cli
