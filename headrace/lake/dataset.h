// SPDX-License-Identifier: Apache-2.0
// What a GluonTS data set says of itself: the metadata file beside its folders train/ and test/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"

namespace headrace::lake {

struct Dataset {
  std::string metadata;   ///< the file
  std::string train;      ///< folder of the series; "" when the file alone was asked for
  std::string test;       ///< the same series with what came after; "" when there is none
  bool at_root = false;   ///< the name was that of the whole data set, not of one of its parts
  std::string frequency;  ///< a name of pandas: "H", "D", "W-SUN", ...
  int64_t horizon = 0;    ///< "prediction_length"; 0: not said
  std::vector<int64_t> cardinalities;  ///< of feat_static_cat_0, ...: values are below them
};

/// The data set that `url` is the root, the train/ or test/, or a file of those of. The file is
/// metadata.json, or `metadata`, a file or a folder with metadata.json: an object with a text
/// "freq". nullopt: it is none of these; a file that describes something else makes no data set,
/// unless `url` is its root and could not be read as a table (`invalid_argument`).
/// `metadata`: the file that is named in the place of that one, which is not read then; its url
/// need not be a data set's. `invalid_argument`: the file says something else than it should (names
/// the member).
HR_API Result<std::optional<Dataset>> find_dataset(const std::string& url,
                                                   const std::string& metadata = {});

/// A metadata file by its name, or by that of the folder that holds it. `not_found` besides.
HR_API Result<Dataset> read_dataset(const std::string& url);

}  // namespace headrace::lake
