// SPDX-License-Identifier: Apache-2.0
// What of a series the weights of a model have seen: who compares models needs windows that none
// has.
#pragma once

#include <cstdint>
#include <span>

#include "headrace/base/export.h"
#include "headrace/forecast/model.h"
#include "headrace/forecast/options.h"
#include "headrace/forecast/series.h"

namespace headrace::forecast {

/// The stamp of the first step of `series` that no weight was fitted to, by what the model says of
/// its training. A validation tail that only stopped the training counts as not seen. The series
/// must be one that the model was trained on, as long or longer by now; of a model that does not
/// say enough (older files, a global model and series of different ends) the answer is late, not
/// early.
HR_API int64_t seen_until(const Model& model, const Series& series);

/// How many of the last `windows` windows of the horizon `model` has not seen, the newest first.
HR_API int unseen_windows(const Model& model, const Series& series, int horizon, int windows);

/// Say in `model->training` what it was fitted to: "left_out", steps at the end of each series, and
/// "values_end_us", the stamp after the last value of any. What `warm` has seen, where the weights
/// started from it, these have seen too.
void note_seen(std::span<const Series* const> series, const TrainOptions& resolved,
               const Model* warm, Model* model);

/// The same of an ensemble of several models: what any of them has seen.
HR_API void join_seen(const Model& other, Model* model);

}  // namespace headrace::forecast
