// SPDX-License-Identifier: Apache-2.0
// What the parts of the network share among themselves; not for other rooms.
#pragma once

#include "headrace/forecast/network.h"

namespace headrace::forecast {

/// `invalid_argument` names the field that is out of range.
Result<void> check_shape(const NetworkShape& shape);

}  // namespace headrace::forecast
