// SPDX-License-Identifier: Apache-2.0
// Checks of a whole pipeline that the reader of documents ends with.
#pragma once

#include <vector>

#include "headrace/flow/pipeline.h"

namespace headrace::flow {

/// Names, references of expressions, variables; sets `outputs_of_items_used`.
void check_pipeline(Pipeline* pipeline, std::vector<Diagnostic>* diagnostics);

}  // namespace headrace::flow
