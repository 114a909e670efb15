// SPDX-License-Identifier: Apache-2.0
// Which files a table's name means: a file, a glob, a folder, a hive-partitioned folder.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/lake/scan/storage_internal.h"
#include "headrace/lake/table.h"

namespace headrace::lake {

/// `key=value` parts of a file's folders, values as text; "__HIVE_DEFAULT_PARTITION__" is null.
using Partition = std::vector<std::pair<std::string, Value>>;

struct Listing {
  Format format = Format::parquet;
  std::vector<FileInfo> files;        ///< sorted by name
  std::vector<Partition> partitions;  ///< one per file, with the same keys
};

/// `not_found` when nothing is there or nothing is data; `mismatch` when folders differ in keys.
Result<Listing> list_table(const scan::Storage& storage, const std::string& url, Format wanted);

/// Whether `name` fits `pattern`: * (within a folder), ** (any folders), ?, [abc], [a-z], [!a].
bool glob_match(std::string_view pattern, std::string_view name);
/// The keys and values of "year=2015/month=7/part-0.parquet"; values are URL-decoded.
Partition parse_partition(std::string_view name);
/// Format by a name's ending; `automatic` when it tells none.
Format format_of(std::string_view name);
/// Whether the name ends in ".gz".
bool is_packed(std::string_view name);

}  // namespace headrace::lake
