// SPDX-License-Identifier: Apache-2.0
// The M4 Hourly data for tests: examples/m4_hourly's published CSV files, unpacked by the build.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/file.h"
#include "headrace/forecast/series.h"

namespace headrace::forecast {

/// Values by item of "train" or "test", in the order of the file.
inline std::vector<std::pair<std::string, std::vector<double>>> read_m4(const std::string& part) {
  const std::string text = base::read_file(HEADRACE_M4_FOLDER "/Hourly-" + part + ".csv").value();
  std::vector<std::pair<std::string, std::vector<double>>> items;
  size_t begin = text.find('\n') + 1;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::vector<double> values;
    std::string id;
    for (size_t at = begin; at < end;) {
      const size_t comma = std::min(text.find(',', at), end);
      std::string cell;
      for (const char c : text.substr(at, comma - at)) {
        if (c != '"' && c != '\r') {
          cell += c;
        }
      }
      if (at == begin) {
        id = cell;
      } else if (!cell.empty()) {
        values.push_back(std::strtod(cell.c_str(), nullptr));
      }
      at = comma + 1;
    }
    items.emplace_back(std::move(id), std::move(values));
    begin = end + 1;
  }
  return items;
}

inline Series hourly_series(const std::string& id, std::vector<double> values) {
  Series series;
  series.id = id;
  series.frequency = parse_frequency("h").value();
  series.start_us = 1'435'708'800'000'000;  // 2015-07-01 00:00:00
  series.target = std::move(values);
  return series;
}

}  // namespace headrace::forecast
