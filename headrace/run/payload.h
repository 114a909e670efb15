// SPDX-License-Identifier: Apache-2.0
// Files that go to the ranks and come back from them through the job's store.
#pragma once

#include <string>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/wire/store_client.h"

namespace headrace::run {

/// Put a file under `key`/0, `key`/1, ... and then their number under `key`/count.
Result<void> put_file(wire::StoreClient& store, const std::string& key, const base::Path& path,
                      const base::Deadline& deadline);

/// Write what is under `key` to a file; false when nothing is there.
Result<bool> take_file(wire::StoreClient& store, const std::string& key, const base::Path& path,
                       const base::Deadline& deadline);

}  // namespace headrace::run
