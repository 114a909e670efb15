// SPDX-License-Identifier: Apache-2.0
// Conditions on rows: decided by statistics for whole row groups, by values for rows.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/lake/column.h"

namespace headrace::lake {

enum class Op : uint8_t { equal, less, less_equal, greater, greater_equal, in };

/// `column op value`. Null never fulfils a condition, NaN neither.
struct Condition {
  std::string column = {};
  Op op = Op::equal;
  std::vector<Value> values = {};  ///< one, or any number for `in`
};

/// All conditions must hold. Empty: every row.
using Predicate = std::vector<Condition>;

/// "column OP value" with OP one of ==, =, <=, >=, <, >, or "column in a,b,c"; for the command
/// line. The value stays text; bind_predicate gives it the column's type.
HR_API Result<Condition> parse_condition(std::string_view text);

/// Check names (`not_found`, lists those found) and give each value the type of its column: numbers
/// for numbers ("1e3" too), time stamps from "2015-07-01", "2015-07-01T10:00:00Z" and the like.
/// `invalid_argument` when a value does not fit.
HR_API Result<Predicate> bind_predicate(const Predicate& predicate, const Schema& schema);

/// Least and greatest value of a column in a row group, as statistics tell; either may be missing.
struct Range {
  std::optional<Value> min = {};
  std::optional<Value> max = {};
  bool all_null = false;
};

/// -1, 0 or 1; nullopt when one is NaN or null, or they are of different kinds. Integers and reals
/// are compared exactly.
HR_API std::optional<int> compare_values(const Value& a, const Value& b);

/// Whether some row with values in `range` may fulfil `condition` (bound).
HR_API bool may_match(const Condition& condition, const Range& range);
/// Indices of the rows of `batch` that fulfil `predicate` (bound; its columns are in the batch).
HR_API std::vector<int64_t> matching_rows(const Predicate& predicate, const Batch& batch);

}  // namespace headrace::lake
