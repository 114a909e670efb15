// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "headrace/comm/gpu_libraries.h"

namespace headrace::comm {

namespace {

constexpr std::string_view kPrefix = "HEADRACE_COMM_";
constexpr int64_t kUnbounded = int64_t{1} << 40;

struct Given {
  const std::string& name;
  const std::string& value;
};

Error refused(const Given& given, std::string_view takes) {
  return {Errc::invalid_argument,
          fmt::format("comm: {} is \"{}\"; it takes {}", given.name, given.value, takes)};
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number)
                                                                  : std::nullopt;
}

Result<int64_t> number_of(const Given& given, int64_t least, int64_t most) {
  const auto number = whole_number(given.value);
  if (number && *number >= least && *number <= most) {
    return *number;
  }
  return refused(given, most >= kUnbounded
                            ? fmt::format("a whole number from {} on", least)
                            : fmt::format("a whole number from {} to {}", least, most));
}

Result<void> read_milliseconds(const Given& given, std::chrono::milliseconds* out) {
  HR_TRY(const int64_t number, number_of(given, 1, kUnbounded));
  *out = std::chrono::milliseconds(number);
  return {};
}

Result<void> read_transport(const Given& given, Config* config) {
  HR_TRY(config->transport, transport_of_name(given.value), given.name);
  return {};
}

Result<void> read_hb_miss(const Given& given, Config* config) {
  HR_TRY(const int64_t number, number_of(given, 1, kUnbounded));
  config->hb_miss = static_cast<int>(std::min<int64_t>(number, 1'000'000));
  return {};
}

Result<void> read_bytes(const Given& given, uint64_t* out) {
  HR_TRY(const int64_t number, number_of(given, 1, int64_t{16} << 20));
  *out = static_cast<uint64_t>(number);
  return {};
}

Result<void> read_spin(const Given& given, Config* config) {
  HR_TRY(const int64_t number, number_of(given, 0, 10'000'000));
  config->spin = std::chrono::microseconds(number);
  return {};
}

Result<void> read_crc(const Given& given, Config* config) {
  if (given.value != "0" && given.value != "1") {
    return refused(given, "0 or 1");
  }
  config->crc = given.value == "1";
  return {};
}

/// Of the engine of named operations, which reads it itself.
Result<void> check_amount(const Given& given, Config*) {
  double number = 0;
  const char* end = given.value.data() + given.value.size();
  const auto read = std::from_chars(given.value.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end || !std::isfinite(number) || number < 0) {
    return refused(given, "a number from 0 on");
  }
  return {};
}

Result<void> read_streams(const Given& given, Config* config) {
  HR_TRY(const int64_t number, number_of(given, 1, 8));
  config->streams = static_cast<int>(number);
  return {};
}

Result<void> read_ports(const Given& given, Config* config) {
  constexpr std::string_view kTakes = "two ports, the lower one first: 40000-40063";
  const size_t dash = given.value.find('-');
  if (dash == std::string::npos) {
    return refused(given, kTakes);
  }
  const auto first = whole_number(std::string_view(given.value).substr(0, dash));
  const auto last = whole_number(std::string_view(given.value).substr(dash + 1));
  if (!first || !last || *first < 1 || *last < *first || *last > 65'535) {
    return refused(given, kTakes);
  }
  config->ports = {static_cast<uint16_t>(*first), static_cast<uint16_t>(*last)};
  return {};
}

Result<void> read_wire16(const Given& given, Config* config) {
  for (const auto one : {Wire16::none, Wire16::f16, Wire16::bf16}) {
    if (given.value == wire16_name(one)) {
      config->wire16 = one;
      return {};
    }
  }
  return refused(given, "none, f16 or bf16");
}

Result<void> read_gpu_staging(const Given& given, Config* config) {
  if (given.value != "0" && given.value != "1") {
    return refused(given, "0 or 1");
  }
  config->gpu_staging = given.value == "1";
  return {};
}

struct Setting {
  std::string_view field;
  Result<void> (*read)(const Given& given, Config* config);
};
constexpr Setting kSettings[] = {
    {"TIMEOUT_MS",
     [](const Given& given, Config* config) { return read_milliseconds(given, &config->timeout); }},
    {"HB_MS",
     [](const Given& given, Config* config) { return read_milliseconds(given, &config->hb_ms); }},
    {"HB_MISS", read_hb_miss},
    {"IFACE",
     [](const Given& given, Config* config) {
       config->iface = given.value;
       return Result<void>();
     }},
    {"TRANSPORT", read_transport},
    {"FLIGHT_DIR",
     [](const Given& given, Config* config) {
       config->flight_folder = given.value;
       return Result<void>();
     }},
    {"STREAMS", read_streams},
    {"WIRE16", read_wire16},
    {"GPU_STAGING", read_gpu_staging},
    {"CRC", read_crc},
    {"CHUNK_BYTES",
     [](const Given& given, Config* config) { return read_bytes(given, &config->chunk_bytes); }},
    {"SMALL_BYTES",
     [](const Given& given, Config* config) { return read_bytes(given, &config->small_bytes); }},
    {"SPIN_US", read_spin},
    {"FUSION_BYTES", check_amount},
    {"CYCLE_MS", check_amount},
    {"STALL_WARN_S", check_amount},
    {"STALL_FAIL_S", check_amount},
    {"PORT_RANGE", read_ports},
};

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t corner = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = corner + (a[i] == b[j] ? 0 : 1);
      corner = std::exchange(row[j + 1], std::min({changed, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

Error unknown(const std::string& name) {
  const std::string_view field = std::string_view(name).substr(kPrefix.size());
  const auto farther = [field](const Setting& one, const Setting& other) {
    return edit_distance(field, one.field) < edit_distance(field, other.field);
  };
  const auto nearest = std::min_element(std::begin(kSettings), std::end(kSettings), farther);
  std::string known;
  for (const Setting& one : kSettings) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", one.field);
  }
  const bool close = edit_distance(field, nearest->field) <= (field.size() + 2) / 3;
  return {Errc::invalid_argument,
          fmt::format("comm: no setting is called {}; {}after {} there may be {}", name,
                      close ? fmt::format("did you mean {}{}? ", kPrefix, nearest->field) : "",
                      kPrefix, known)};
}

Result<void> read_one(const std::string& name, const std::string& value, Config* config) {
  const std::string_view field = std::string_view(name).substr(kPrefix.size());
  for (const Setting& one : kSettings) {
    if (one.field == field) {
      return one.read({name, value}, config);
    }
  }
  return unknown(name);
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
