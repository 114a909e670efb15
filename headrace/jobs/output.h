// SPDX-License-Identifier: Apache-2.0
// What is written must not be what is read: asked once, of all commands, before any work.
#pragma once

#include <span>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/jobs/table_spec.h"

namespace headrace::jobs {

/// `invalid_argument` where `out`, a file to be written, is one of the files of `tables` (their
/// second tables and metadata are among them), by its own name or by a link's, or would become one:
/// it lies in a folder, or fits a glob, that is read. Tables without a url are passed over, and so
/// are those that cannot be listed: who reads them says why.
HR_API Result<void> check_apart(const base::Path& out, std::span<const TableSpec> tables);

}  // namespace headrace::jobs
