// SPDX-License-Identifier: Apache-2.0
// Conditions of a listing, compiled to SQL with bound parameters: text of a user never becomes SQL.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/registry/database.h"
#include "headrace/registry/types.h"

namespace headrace::registry {

using SqlValue = std::variant<int64_t, double, std::string>;

/// SQL with `?` for each value.
struct SqlText {
  std::string text;
  std::vector<SqlValue> values;

  void append(std::string_view more) { text += more; }
  void append(std::string_view more, SqlValue value) {
    text += more;
    values.push_back(std::move(value));
  }
  void append(const SqlText& other) {
    text += other.text;
    values.insert(values.end(), other.values.begin(), other.values.end());
  }
};

void bind_values(const SqlText& sql, Statement* statement);

/// Compile a condition such as `mase < naive_mase and (smape <= 12 or tag.reviewed = 'yes')`.
///
/// Operands: a metric (`mase`, or `"odd name"`, or `metric.version`), `param.NAME`, `tag.NAME`, the
/// columns `name`, `version`, `item`, `kind`, `run`, `attempt`, numbers, 'texts' (a quote is
/// doubled). Operators: `< <= > >= = == != <>`, `and`, `or`, `not`, parentheses, and `mase is nan`.
/// A comparison with an absent value or NaN is false. A param or tag that meets a number is read as
/// a number. The result speaks of the tables m (model), v (version), r (run). Errors are
/// `invalid_argument` with the column.
/// `names`: the metrics, parameters and tags it speaks of, in their order.
HR_API Result<SqlText> compile_where(std::string_view where,
                                     std::vector<AskedName>* names = nullptr);

}  // namespace headrace::registry
