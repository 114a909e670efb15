// SPDX-License-Identifier: Apache-2.0
// Which of the instruction sets the kernels are built for is in use.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <vector>

#include "headrace/base/environment.h"
#include "headrace/base/kernel_targets.h"
#include "headrace/base/log.h"
#include "headrace/forecast/kernels.h"

namespace headrace::forecast {

namespace {

std::vector<Kernels> supported_kernels() {
  std::vector<Kernels> all;
  base::for_each_target([&](int64_t target, const char* name) {
    all.push_back({name, lstm_kernels(target), distribution_kernels(target), adam_kernels(target)});
  });
  return all;
}

const std::vector<Kernels>& tables() {
  static const std::vector<Kernels> all = supported_kernels();
  return all;
}

const Kernels* find(std::string_view name) {
  for (const Kernels& one : tables()) {
    if (name == one.name) {
      return &one;
    }
  }
  return nullptr;
}

Error not_there(std::string_view name) {
  return Error{Errc::unsupported,
               fmt::format("forecast: instruction set \"{}\" is not there; this machine and build "
                           "have {}",
                           name, fmt::join(instruction_sets(), ", "))};
}

const Kernels* first_choice() {
  if (const auto wanted = base::environment("HEADRACE_FORECAST_ISA")) {
    if (const Kernels* found = find(*wanted)) {
      return found;
    }
    base::log(base::LogLevel::warning,
              fmt::format("HEADRACE_FORECAST_ISA: {}", not_there(*wanted).message()));
  }
  return &tables().front();
}

/// The one switch of the process. Tables never change, so relaxed order does.
std::atomic<const Kernels*>& in_use() {
  static std::atomic<const Kernels*> table = first_choice();
  return table;
}

}  // namespace

const Kernels& kernels() { return *in_use().load(std::memory_order_relaxed); }

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const Kernels& one : tables()) {
    names.emplace_back(one.name);
  }
  return names;
}

std::string instruction_set() { return kernels().name; }

Result<void> set_instruction_set(std::string_view name) {
  const Kernels* found = find(name);
  if (found == nullptr) {
    return not_there(name);
  }
  in_use().store(found, std::memory_order_relaxed);
  return {};
}

}  // namespace headrace::forecast
