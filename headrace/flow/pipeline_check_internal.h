// SPDX-License-Identifier: Apache-2.0
// Checks of a whole pipeline: one that the reader of documents ends with, others for `validate`.
#pragma once

#include <string>
#include <vector>

#include "headrace/flow/pipeline.h"

namespace headrace::flow {

/// Names, references of expressions, variables; sets `outputs_of_items_used`.
void check_pipeline(Pipeline* pipeline, std::vector<Diagnostic>* diagnostics);

/// Members that nobody reads, and those that are read and not acted upon (W-IGNORED). Not part of
/// reading: a journal's own document may hold what was let through when its run began.
void check_member_names(const Pipeline& pipeline, std::vector<Diagnostic>* diagnostics);
/// E-PROPERTY when `name` is a misspelling of one that is `known`, else W-PROPERTY.
Diagnostic unknown_member(const std::string& owner, const std::string& name,
                          const std::vector<std::string>& known, std::string where);

}  // namespace headrace::flow
