// SPDX-License-Identifier: Apache-2.0
#include "headrace/cli/python.h"

#include <unistd.h>

#include <filesystem>

#include "headrace/base/environment.h"
#include "headrace/base/file.h"

namespace headrace::cli {

std::string python_program(const PythonPlaces& places, bool (*exists)(const std::string& path)) {
  if (!places.variable.empty()) {
    return places.variable;
  }
  // The link is not followed: what it points to lies in a build folder, without an interpreter.
  if (const size_t slash = places.called_as.rfind('/'); slash != std::string::npos) {
    const std::string beside = places.called_as.substr(0, slash) + "/python";
    if (exists(beside)) {
      return beside;
    }
  }
  if (!places.virtual_environment.empty()) {
    const std::string inside = places.virtual_environment + "/bin/python";
    if (exists(inside)) {
      return inside;
    }
  }
  return "python3";
}

namespace {

bool executable(const std::string& path) { return ::access(path.c_str(), X_OK) == 0; }

/// argv[0]; with a folder even when the shell found it in PATH.
std::string called_as() {
  const auto words = base::read_file("/proc/self/cmdline", 1 << 20);
  const std::string name = words.ok() ? std::string(words->c_str()) : std::string();
  if (name.empty() || name.find('/') != std::string::npos) {
    return name;
  }
  const std::string path = base::environment("PATH").value_or("");
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find(':', start), path.size());
    const std::string candidate = path.substr(start, end - start) + "/" + name;
    if (executable(candidate)) {
      return candidate;
    }
    start = end + 1;
  }
  return {};
}

}  // namespace

std::string python_program() {
  return python_program({.variable = base::environment("HEADRACE_PYTHON").value_or(""),
                         .called_as = called_as(),
                         .virtual_environment = base::environment("VIRTUAL_ENV").value_or("")},
                        executable);
}

}  // namespace headrace::cli
