// SPDX-License-Identifier: Apache-2.0
// The JSON part of a model's portable form.
#pragma once

#include <cstdint>

#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/forecast/model.h"

namespace headrace::forecast {

/// `with_item_numbers`: also what differs between local models trained with the same options.
Json model_header(const Model& model, bool with_item_numbers);

/// Everything but the weights; `corrupt` names the field.
Result<Model> read_model_header(const Json& header, int64_t* members);

}  // namespace headrace::forecast
