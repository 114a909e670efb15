// SPDX-License-Identifier: Apache-2.0
// For tests: run a body once per instruction set of this machine.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "headrace/forecast/network.h"

namespace headrace::forecast {

template <typename Body>
void for_each_instruction_set(const Body& body) {
  const std::string before = instruction_set();
  for (const std::string& name : instruction_sets()) {
    INFO("instruction set ", name);
    REQUIRE(set_instruction_set(name).ok());
    body();
  }
  REQUIRE(set_instruction_set(before).ok());
}

}  // namespace headrace::forecast
