// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "headrace/comm/gpu_libraries.h"

namespace headrace::comm {

namespace {

constexpr std::string_view kPrefix = "HEADRACE_COMM_";
constexpr std::string_view kKnown = "TIMEOUT_MS, HB_MS, HB_MISS, IFACE, TRANSPORT and GPU_STAGING";

Result<int64_t> positive(const std::string& name, const std::string& value) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < 1 ||
      number > int64_t{1} << 40) {
    return Error{Errc::invalid_argument,
                 fmt::format("comm: {} is \"{}\"; it takes a whole number from 1 on", name, value)};
  }
  return number;
}

Result<void> read_one(const std::string& name, const std::string& value, Config* config) {
  const std::string_view field = std::string_view(name).substr(kPrefix.size());
  if (field == "TRANSPORT") {
    HR_TRY(config->transport, transport_of_name(value), name);
  } else if (field == "IFACE") {
    config->iface = value;
  } else if (field == "TIMEOUT_MS") {
    HR_TRY(const int64_t number, positive(name, value));
    config->timeout = std::chrono::milliseconds(number);
  } else if (field == "HB_MS") {
    HR_TRY(const int64_t number, positive(name, value));
    config->hb_ms = std::chrono::milliseconds(number);
  } else if (field == "HB_MISS") {
    HR_TRY(const int64_t number, positive(name, value));
    config->hb_miss = static_cast<int>(std::min<int64_t>(number, 1'000'000));
  } else if (field == "GPU_STAGING") {
    if (value != "0" && value != "1") {
      return Error{Errc::invalid_argument,
                   fmt::format("comm: {} is \"{}\"; it is 0 or 1", name, value)};
    }
    config->gpu_staging = value == "1";
  } else {
    return Error{Errc::invalid_argument,
                 fmt::format("comm: no setting is called {}; after {} there may be {}", name,
                             kPrefix, kKnown)};
  }
  return {};
}

}  // namespace

Result<void> read_settings(std::span<const std::pair<std::string, std::string>> variables,
                           Config* config) {
  // Later ones of these count.
  for (const std::string_view other : {"HOROVOD_GLOO_IFACE", "HEADRACE_IFACE"}) {
    for (const auto& [name, value] : variables) {
      if (name == other && !value.empty()) {
        config->iface = value;
      }
    }
  }
  for (const auto& [name, value] : variables) {
    if (name == "HEADRACE_GPU_LIBRARIES" && !value.empty()) {
      config->gpu_folders = folders_of(value);
    }
    if (name.starts_with(kPrefix) && !value.empty()) {
      HR_TRY(read_one(name, value, config));
    }
  }
  return {};
}

}  // namespace headrace::comm
