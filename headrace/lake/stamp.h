// SPDX-License-Identifier: Apache-2.0
// Time stamps as text: ISO 8601 in, ISO 8601 out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/export.h"

namespace headrace::lake {

struct ParsedStamp {
  int64_t us = 0;  ///< microseconds since the epoch; with an offset already turned into UTC
  bool has_zone = false;
  int offset_minutes = 0;
  bool date_only = false;
};

/// "2015-07-01", "2015-07-01 10:00", "2015-07-01T10:00:00.123456+02:00", "...Z"; years 1 to 9999;
/// digits beyond microseconds are dropped. nullopt when `text` is none of these.
HR_API std::optional<ParsedStamp> parse_stamp(std::string_view text);

/// The first instant of a period as pandas names it, and GluonTS writes a start: "2015", "2015-07",
/// "2015Q3", "2015-06-29/2015-07-05" (a week). Years and quarters are those of a year that ends
/// with month `year_end_month`, 1 to 12. nullopt when `text` is none of these.
HR_API std::optional<int64_t> parse_period(std::string_view text, int year_end_month = 12);

/// "2015-07-01T10:00:00" with a fraction if there is one, and "Z" when it is an instant.
HR_API std::string stamp_text(int64_t us, bool instant);
/// "2015-07-01".
HR_API std::string date_text(int64_t days);
/// "", "UTC" or "+02:00".
HR_API std::string zone_text(const ParsedStamp& stamp);

inline constexpr int64_t kMicrosPerDay = int64_t{86400} * 1000000;

}  // namespace headrace::lake
