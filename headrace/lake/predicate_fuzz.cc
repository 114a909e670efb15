// SPDX-License-Identifier: Apache-2.0
// Conditions, globs, folder names and time stamps come from a command line or a file system: any
// text ends with a value or an error.
#include "headrace/lake/listing_internal.h"
#include "headrace/lake/predicate.h"
#include "headrace/lake/stamp.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace lake = headrace::lake;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto condition = lake::parse_condition(text);
  if (condition.ok()) {
    for (const lake::Type type : {lake::Type::int64, lake::Type::float64, lake::Type::string,
                                  lake::Type::timestamp_us, lake::Type::date}) {
      const lake::Schema schema = {{.name = condition->column, .type = type}};
      static_cast<void>(lake::bind_predicate({*condition}, schema).ok());
    }
  }
  const auto stamp = lake::parse_stamp(text);
  if (stamp.has_value()) {
    const auto again = lake::parse_stamp(lake::stamp_text(stamp->us, stamp->has_zone));
    // A zone may carry the first or last day out of the years that have four digits.
    constexpr int64_t kFirst = -62135596800000000;
    constexpr int64_t kLast = 253402300799999999;
    HR_CHECK((stamp->us < kFirst || stamp->us > kLast || (again && again->us == stamp->us)),
             "a stamp does not read back");
  }
  static_cast<void>(lake::parse_partition(text));
  const size_t half = std::min<size_t>(size / 2, 12);  // matching is exponential in its stars
  static_cast<void>(lake::glob_match(text.substr(0, half), text.substr(half)));
  return 0;
}
