// SPDX-License-Identifier: Apache-2.0
// Which registries a run's models went to: RUN/registries, a folder a line, for what is to be done
// with them at the run's end.
#pragma once

#include <span>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"

namespace headrace::jobs {

/// Note `registry`, once per process at least; safe among processes.
HR_API Result<void> note_registry(const base::Path& run_folder, const base::Path& registry);

/// Those that were noted, each once; none when there are none.
HR_API std::vector<base::Path> run_registries(const base::Path& run_folder);

/// Tell them how the run ended: status, times, digest of the pipeline's document.
HR_API Result<void> note_run_end(const base::Path& run_folder,
                                 std::span<const base::Path> registries);

}  // namespace headrace::jobs
