// SPDX-License-Identifier: Apache-2.0
// One line of a GluonTS file data set, and the object that describes all of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/lake/dataset.h"

namespace headrace::lake {

struct JsonSeries {
  std::string id;
  int64_t start_us = 0;
  std::string zone;
  std::vector<double> target;  ///< NaN = missing
  std::vector<int64_t> categories;
  std::vector<double> statics;
  std::vector<std::vector<double>> dynamics;  ///< each as long as the target or longer
};

/// `where` ("a.jsonl:3") is for messages; a line without item_id gets `number` as its id. Members
/// that are not known are passed over. A start may be a period's name; `year_end_month` is then as
/// for `parse_period`. `invalid_argument` for all that is wrong.
Result<JsonSeries> parse_json_series(std::string_view line, const std::string& where,
                                     int64_t number, int year_end_month = 12);

/// The metadata of a data set: `frequency`, `horizon` and `cardinalities`, with `where` as its
/// file.
Result<Dataset> parse_dataset(std::string_view text, const std::string& where);

}  // namespace headrace::lake
