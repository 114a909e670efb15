// SPDX-License-Identifier: Apache-2.0
// Settings of the collectives that users give by environment variables.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/comm/context.h"

namespace headrace::comm {

/// Put what the variables HEADRACE_COMM_... say into `config`, and the folders of
/// HEADRACE_GPU_LIBRARIES; HEADRACE_IFACE, and HOROVOD_GLOO_IFACE after it, are other spellings of
/// the interface.
/// `variables` is the whole environment, names and values. Pure. `invalid_argument`: a value that
/// is none, or a name that begins with HEADRACE_COMM_ and is not known.
HR_API Result<void> read_settings(std::span<const std::pair<std::string, std::string>> variables,
                                  Config* config);

}  // namespace headrace::comm
