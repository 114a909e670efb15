// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/seen.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "headrace/base/checksum.h"

namespace headrace::forecast {

namespace {

constexpr const char* kLeftOut = "left_out";
constexpr const char* kEnd = "values_end_us";
constexpr const char* kFirstEnd = "values_end_first_us";
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

/// Every series that was trained on ends there, so that this is no bound but the end itself.
bool ends_are_one(const Model& model) {
  return values_end(model) != kUnknown &&
         model.training.get_number(kFirstEnd) == model.training.get_number(kEnd);
}

void join_bounds(const Model& other, Model* model) {
  const int64_t steps = std::min(left_out(*model), left_out(other));
  const int64_t end = std::max(values_end(*model), values_end(other));
  model->training.set(kLeftOut, steps);
  const bool one =
      ends_are_one(*model) && ends_are_one(other) && values_end(*model) == values_end(other);
  model->training.set(kEnd, end == kUnknown ? int64_t{0} : end);
  model->training.set(kFirstEnd, one ? end : int64_t{0});
}

/// A few bits will do: of two ids with one hash the unseen one counts as seen, and is left out.
uint32_t hash_of(const Series& series) { return static_cast<uint32_t>(base::xxh3_64(series.id)); }

/// Ascending; nothing of more than a model remembers.
std::vector<uint32_t> hashes_of(std::span<const Series* const> series) {
  std::vector<uint32_t> out;
  if (series.size() <= kSeenItemsMax) {
    out.reserve(series.size());
    for (const Series* s : series) {
      out.push_back(hash_of(*s));
    }
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

/// Of both; nothing where one is not known, or too many come together.
std::vector<uint32_t> joined(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  std::vector<uint32_t> out;
  if (!a.empty() && !b.empty()) {
    std::ranges::set_union(a, b, std::back_inserter(out));
  }
  return out.size() > kSeenItemsMax ? std::vector<uint32_t>() : out;
}

/// Whether it is certain that the model was not trained on a series of this id.
bool never_met(const Model& model, const Series& series) {
  return !model.seen_items.empty() &&
         !std::ranges::binary_search(model.seen_items, hash_of(series));
}

}  // namespace

int64_t seen_until(const Model& model, const Series& series) {
  if (never_met(model, series)) {
    return series.stamp(0);
  }
  if (ends_are_one(model)) {  // also of a table that has been cut since
    return values_end(model);
  }
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
  int64_t first_end = std::numeric_limits<int64_t>::max();
  for (const Series* s : series) {
    int64_t own = s->stamp(s->length() - steps);
    if (warm != nullptr) {
      const int64_t before = seen_until(*warm, *s);
      own = std::max(own, before);
      while (steps > 0 && s->stamp(s->length() - steps) < before) {
        --steps;
      }
    }
    end = std::max(end, own);
    first_end = std::min(first_end, own);
  }
  model->training.set(kLeftOut, steps);
  model->training.set(kEnd, end);
  model->training.set(kFirstEnd, first_end);
  const bool of_all = model->training.get_string("scope") == "global";
  model->seen_items = of_all ? hashes_of(series) : std::vector<uint32_t>();
  if (warm != nullptr && !model->seen_items.empty()) {
    std::vector<uint32_t> both = joined(model->seen_items, warm->seen_items);
    const bool more = both.size() > model->seen_items.size();
    model->seen_items = std::move(both);
    if (more) {  // series that are not among these: the bounds are to hold of them too
      join_bounds(*warm, model);
    }
  }
}

void join_seen(const Model& other, Model* model) {
  join_bounds(other, model);
  model->seen_items = joined(model->seen_items, other.seen_items);
}

}  // namespace headrace::forecast
