// SPDX-License-Identifier: Apache-2.0
// Which of the instruction sets the kernels are built for is in use.
#include "headrace/forecast/network.h"

namespace headrace::forecast {

std::vector<std::string> instruction_sets() { return {"scalar"}; }

std::string instruction_set() { return "scalar"; }

Result<void> set_instruction_set(std::string_view name) {
  if (name != "scalar") {
    return Error{Errc::unsupported, "forecast: instruction set \"" + std::string(name) +
                                        "\" is not there; this machine and build have: scalar"};
  }
  return {};
}

}  // namespace headrace::forecast
