// SPDX-License-Identifier: Apache-2.0
// A series on a regular grid, and how rows of a long table become series.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/forecast/frequency.h"

namespace headrace::forecast {

/// One item: values at start, start + 1 step, ... Value i stands at `add_steps(frequency, start_us,
/// i)`.
struct Series {
  std::string id;
  Frequency frequency;
  int64_t start_us = 0;                            ///< microseconds since the epoch, UTC
  std::vector<double> target;                      ///< NaN = missing
  std::vector<std::string> categories;             ///< one value per categorical covariate
  std::vector<double> static_reals;                ///< one value per static covariate
  std::vector<std::vector<double>> dynamic_reals;  ///< one per dynamic covariate: target.size()
                                                   ///< values, or more where the future is known
  std::vector<std::string> notes;  ///< what its rows were taken for: gaps, filled covariates, ...

  int64_t length() const { return static_cast<int64_t>(target.size()); }
  int64_t stamp(int64_t index) const { return add_steps(frequency, start_us, index); }
  /// The same series without its last `count` values; dynamic reals keep what becomes the future.
  HR_API Series without_last(int64_t count) const;
};

/// Which columns of a long table hold what; "" = not known.
struct ColumnNames {
  std::string id;
  std::string time;
  std::string target;
  bool integer_ids = false;  ///< the ids are whole numbers there; not kept with models
  std::string zone = {};     ///< of the stamps, as in `lake::Field`; not kept with models
  std::string start = {};    ///< of a wide table: the first stamp of its rows
  /// The zone that the stamps were told to be read in ("UTC"); "" = none was told.
  std::string told_zone = {};

  bool empty() const { return id.empty() && time.empty() && target.empty(); }
  bool operator==(const ColumnNames&) const = default;
};

/// A failed item of a run; the others go on.
struct ItemError {
  std::string item;
  Error error;
};

/// What to do with several rows of one item and stamp.
enum class Duplicates : uint8_t { error, sum, mean, last };
HR_API Result<Duplicates> parse_duplicates(
    std::string_view name);  ///< "error", "sum", "mean", "last"

inline constexpr int64_t kNoStamp = std::numeric_limits<int64_t>::min();  ///< a null time stamp

/// Borrowed columns of a long table, all of one length, in any order of rows.
struct LongRows {
  std::span<const std::string> ids;   ///< dictionary of item ids
  std::span<const int32_t> item;      ///< per row an index into `ids`; empty: all rows are ids[0]'s
  std::span<const int64_t> stamp_us;  ///< kNoStamp = null
  std::span<const double> target;     ///< NaN = null
  struct Category {
    std::string name;
    std::span<const std::string> values;  ///< dictionary
    std::span<const int32_t> code;        ///< per row an index into `values`, -1 = null
  };
  struct Real {
    std::string name;
    std::span<const double> values;  ///< per row, NaN = null
  };
  std::vector<Category> categories;  ///< constant per item; null rows are passed over
  std::vector<Real> static_reals;    ///< constant per item; null rows are passed over
  std::vector<Real> dynamic_reals;   ///< per row
};

struct BuildOptions {
  std::optional<Frequency> frequency;  ///< absent: the most common step of all items
  Duplicates duplicates = Duplicates::error;
};

struct SeriesSet {
  Frequency frequency;
  std::vector<Series> series;     ///< in the order of `LongRows::ids`
  std::vector<ItemError> errors;  ///< items left out: duplicate or off-grid stamps, infinite
                                  ///< values, null stamps, covariates that change, nothing observed
  std::vector<std::string>
      notes;            ///< sentences for the log: guessed frequency, gaps, filled covariates
  ColumnNames columns;  ///< of the table they were read from; who reads it says them
};

/// Sort the rows of each item by stamp and lay them on the grid; steps without a row become
/// missing. A series ends with its last observed value: rows with a null target after it are the
/// future, and lengthen its dynamic reals alone. Deterministic whatever the order of rows, but for
/// rows of one item and stamp under `last`. Errors are of columns (lengths differ, an index out of
/// range) or of the frequency; what is wrong with one item is in `errors`.
HR_API Result<SeriesSet> build_series(const LongRows& rows, const BuildOptions& options);

/// The most common step between the stamps of an item's rows, over all items; what `build_series`
/// takes when it is told none. `invalid_argument`: no item has two different stamps.
HR_API Result<Frequency> infer_frequency(const LongRows& rows);

/// The first error, and how many there are, when no series is left to work with; `where` names the
/// table in its message.
HR_API Result<void> need_series(const SeriesSet& set, std::string_view where);

/// Check a series that was made otherwise: target not empty, no infinity, one observed value at
/// least, dynamic reals no shorter than the target. The message names the item and the first bad
/// stamp.
HR_API Result<void> check_series(const Series& series);

}  // namespace headrace::forecast
