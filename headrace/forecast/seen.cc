// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/seen.h"

#include <algorithm>
#include <limits>

namespace headrace::forecast {

namespace {

constexpr const char* kLeftOut = "left_out";
constexpr const char* kEnd = "values_end_us";
constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

/// Steps at the end of each series that training left out.
int64_t left_out(const Model& model) {
  if (const Json* told = model.training.find(kLeftOut); told != nullptr && told->is_number()) {
    return static_cast<int64_t>(told->number());
  }
  const bool refitted = model.options.get_string("refit") == "full";  // of files before it was told
  const int64_t windows = model.options.get_integer("validation_windows");
  return refitted ? 0 : std::max<int64_t>(0, windows) * model.spec.horizon;
}

/// Of all series together. 0 stands for unknown too: a bundle's numbers have no other word for it.
int64_t values_end(const Model& model) {
  const auto told = static_cast<int64_t>(model.training.get_number(kEnd));
  return told == 0 ? kUnknown : told;
}

}  // namespace

int64_t seen_until(const Model& model, const Series& series) {
  // Both are bounds: the first grows with the data, the second is of the longest series.
  return std::min(values_end(model), series.stamp(series.length() - left_out(model)));
}

int unseen_windows(const Model& model, const Series& series, int horizon, int windows) {
  const int64_t seen = seen_until(model, series);
  int unseen = 0;
  while (unseen < windows &&
         series.stamp(series.length() - int64_t{unseen + 1} * horizon) >= seen) {
    ++unseen;
  }
  return unseen;
}

void note_seen(std::span<const Series* const> series, const TrainOptions& resolved,
               const Model* warm, Model* model) {
  int64_t steps =
      resolved.refit == "full" ? 0 : int64_t{resolved.validation_windows} * resolved.horizon;
  int64_t end = std::numeric_limits<int64_t>::min();
  for (const Series* s : series) {
    end = std::max(end, s->stamp(s->length() - steps));
    if (warm != nullptr) {
      const int64_t before = seen_until(*warm, *s);
      end = std::max(end, before);
      while (steps > 0 && s->stamp(s->length() - steps) < before) {
        --steps;
      }
    }
  }
  model->training.set(kLeftOut, steps);
  model->training.set(kEnd, end);
}

void join_seen(const Model& other, Model* model) {
  const int64_t steps = std::min(left_out(*model), left_out(other));
  const int64_t end = std::max(values_end(*model), values_end(other));
  model->training.set(kLeftOut, steps);
  model->training.set(kEnd, end == kUnknown ? int64_t{0} : end);
}

}  // namespace headrace::forecast
