// SPDX-License-Identifier: Apache-2.0
// The HTML report of a run, with the forecasts and their accuracy where there are any.
#pragma once

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/flow/report.h"
#include "headrace/flow/run_state.h"

namespace headrace::jobs {

/// Write the report to `path` (RUN/report.html when empty; replaced durably) and return its path. A
/// run without forecasts gets the general parts; forecasts without an evaluation get plots, but no
/// accuracy. A table that can no longer be read costs the history in the plots, with a warning, not
/// the report.
HR_API Result<base::Path> write_run_report(const base::Path& run_folder, base::Path path = {});

/// Items that trained a model of all series are numbered by the pipeline: "0" says nothing, they
/// are shown as "global model 0".
HR_API void name_global_models(const flow::RunState& run, flow::ReportData* data);

}  // namespace headrace::jobs
