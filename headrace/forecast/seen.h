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

/// Series that a model remembers by their ids: half a megabyte of its header.
constexpr size_t kSeenItemsMax = 65'536;

/// The stamp of the first step of `series` that no weight was fitted to, by what the model says of
/// its training. A validation tail that only stopped the training counts as not seen. Of a series
/// that the model was trained on; a global model that says which these were has seen nothing of
/// others. Series are told by their ids. Where all of them ended at one stamp the answer is exact,
/// whatever the series' length by now. Of a model that does not say enough (older files, more than
/// `kSeenItemsMax` series, series of different ends) it is late, not early, for a series that is as
/// long or longer by now.
HR_API int64_t seen_until(const Model& model, const Series& series);

/// How many of the last `windows` windows of the horizon `model` has not seen, the newest first.
HR_API int unseen_windows(const Model& model, const Series& series, int horizon, int windows);

/// Say in `model->training` what it was fitted to: "left_out", steps at the end of each series, and
/// "values_end_us" and "values_end_first_us", the last and the first of the stamps after their last
/// values; in `model->seen_items`, of a
/// global model, which. What `warm` has seen, where the weights started from it, these have seen
/// too.
HR_API void note_seen(std::span<const Series* const> series, const TrainOptions& resolved,
                      const Model* warm, Model* model);

/// The same of an ensemble of several models: what any of them has seen.
HR_API void join_seen(const Model& other, Model* model);

}  // namespace headrace::forecast
