// SPDX-License-Identifier: Apache-2.0
// The columns a forecaster needs out of a long table, checked: items, stamps, target, covariates.
#pragma once

#include <string>
#include <vector>

#include "headrace/lake/table.h"

namespace headrace::lake {

struct SeriesColumns {
  std::string id = "item_id";  ///< "": one item without a name
  std::string time = "timestamp";
  std::string target = "target";  ///< "": not read; all values are NaN
  std::vector<std::string> categories = {};
  std::vector<std::string> reals = {};
  std::string lists = {};  ///< "": none; lists of floats, or text as CSV has them ("1.5 2 0.25")
};

struct SeriesRead {
  std::vector<std::string> items = {};  ///< only these; empty: all
  Predicate predicate = {};             ///< further conditions
};

/// Rows of a long table in the form that builds series: dictionaries and codes, stamps, doubles.
struct SeriesRows {
  std::vector<std::string> ids;
  std::vector<int32_t> item;      ///< per row an index into `ids`
  std::vector<int64_t> stamp_us;  ///< INT64_MIN = null
  std::vector<double> target;     ///< NaN = null
  struct Category {
    std::string name;
    std::vector<std::string> values;
    std::vector<int32_t> code;  ///< -1 = null
  };
  struct Real {
    std::string name;
    std::vector<double> values;  ///< NaN = null
  };
  std::vector<Category> categories;
  std::vector<Real> reals;
  std::vector<float> lists;        ///< of all rows after one another; NaN = null
  std::vector<int64_t> list_ends;  ///< per row where its values end in `lists`
  std::string zone;                ///< of the stamps, as in Field
  bool integer_ids = false;        ///< the ids are whole numbers in the table
  ReadStats stats;
};

/// Read them. `not_found`: a column is missing (lists those found). `invalid_argument`: a type does
/// not fit (an id that is no text or integer, a time that is no stamp or date, a target that is no
/// number), or an id is null (tells how many and where first). `not_found` too when there are no
/// rows at all.
HR_API Result<SeriesRows> read_series(const Table& table, const SeriesColumns& columns = {},
                                      const SeriesRead& options = {});

/// The same from a stream, such as one of Arrow's; `where` names it in messages.
HR_API Result<SeriesRows> read_series(BatchReader& reader, const std::string& where,
                                      const SeriesColumns& columns = {});

/// What `read_series` would refuse before it reads: names, types, a table without rows.
HR_API Result<void> check_series_columns(const Table& table, const SeriesColumns& columns = {});

/// Columns of a table with a row per item.
struct StaticColumns {
  std::string id = "item_id";
  std::vector<std::string> categories = {};
  std::vector<std::string> reals = {};
};

struct StaticRows {
  std::vector<std::string> ids;  ///< per row, no two the same
  std::vector<SeriesRows::Category> categories;
  std::vector<SeriesRows::Real> reals;
  ReadStats stats;
};

/// Read all of them. Errors as of `read_series`, and `invalid_argument` when an item has more than
/// one row (names the first).
HR_API Result<StaticRows> read_static(const Table& table, const StaticColumns& columns);
HR_API Result<StaticRows> read_static(BatchReader& reader, const std::string& where,
                                      const StaticColumns& columns);

/// What `read_static` would refuse before it reads: names, types.
HR_API Result<void> check_static_columns(const Schema& schema, const std::string& where,
                                         const StaticColumns& columns);

/// `"a", "b", "c"`, and how many more there are: for messages about items.
HR_API std::string first_names(const std::vector<std::string>& names);

/// Items and their number of rows, in order of appearance.
struct Items {
  std::vector<std::string> ids;
  std::vector<int64_t> rows;
};
HR_API Result<Items> list_items(const Table& table, const std::string& id_column);

}  // namespace headrace::lake
