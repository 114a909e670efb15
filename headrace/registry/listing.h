// SPDX-License-Identifier: Apache-2.0
// Listings page by page: each page is one short read, so that checkpoints are not starved.
#pragma once

#include "headrace/registry/database.h"
#include "headrace/registry/query.h"
#include "headrace/registry/types.h"

namespace headrace::registry {

/// WHERE of a query, over m, v and r.
Result<SqlText> version_conditions(const Query& query);
/// One page in the query's order, continued by key, not by offset.
Result<Page> list_versions(Database* database, const Query& query);
Result<int64_t> count_versions(Database* database, const Query& query);
Result<std::vector<ModelInfo>> list_models(Database* database, std::string_view pattern,
                                           int64_t limit);

/// `Registry::unknown_names`, `Registry::known_names`.
Result<std::vector<AskedName>> find_unknown(Database* database, const Query& query);
Result<std::vector<std::string>> list_names(Database* database, const std::string& table);

}  // namespace headrace::registry
