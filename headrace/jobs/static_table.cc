// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/static_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "headrace/base/json.h"

namespace headrace::jobs {

namespace {

/// Rows of the static table by the items of the first one.
Result<std::vector<size_t>> places_of(const std::vector<std::string>& items,
                                      const lake::StaticRows& own, const std::string& url,
                                      const std::string& first_url) {
  std::unordered_map<std::string, size_t> known;
  for (size_t row = 0; row < own.ids.size(); ++row) {
    known.emplace(own.ids[row], row);
  }
  std::vector<size_t> places;
  std::vector<std::string> missing;
  for (const std::string& item : items) {
    const auto found = known.find(item);
    if (found == known.end()) {
      missing.push_back(item);
    } else {
      places.push_back(found->second);
    }
  }
  if (missing.empty()) {
    return places;
  }
  return Error{Errc::not_found,
               fmt::format("{}: {} of {} items of {} have no row: {}; add one for each", url,
                           missing.size(), items.size(), first_url, lake::first_names(missing))};
}

/// One value per item becomes one per row.
template <typename T>
std::vector<T> spread(const std::vector<T>& values, const std::vector<size_t>& places,
                      const std::vector<int32_t>& item) {
  std::vector<T> out;
  out.reserve(item.size());
  for (const int32_t i : item) {
    out.push_back(values[places[static_cast<size_t>(i)]]);
  }
  return out;
}

/// The entry of that name, moved out; nullptr when the list has none.
template <typename T>
T* find_named(std::vector<T>* list, const std::string& name) {
  const auto found =
      std::find_if(list->begin(), list->end(), [&](const T& one) { return one.name == name; });
  return found == list->end() ? nullptr : &*found;
}

}  // namespace

Result<StaticTable> StaticTable::open(const TableSpec& spec, lake::BatchReader* stream) {
  StaticTable out;
  out.stream_ = stream;
  out.url_ = stream == nullptr ? spec.static_table : "static table";
  if (stream == nullptr) {
    lake::TableOptions options;
    options.zone = spec.zone;
    options.allow_missing_columns = spec.allow_missing_columns;
    HR_TRY(auto table, lake::Table::open(spec.static_table, options), "static table");
    out.table_ = std::move(table);
  }
  return out;
}

const lake::Schema& StaticTable::schema() const {
  return stream_ == nullptr ? table_->schema() : stream_->schema();
}

Result<void> StaticTable::take_columns(const TableSpec& spec, const lake::Schema& first,
                                       lake::SeriesColumns* columns) {
  HR_TRY(columns_.id, id_column(spec, schema(), url_));
  const auto take = [&](const std::string& name, std::vector<std::string>* theirs,
                        std::vector<std::string>* ours) -> Result<void> {
    const bool here = name != columns_.id && lake::find_field(schema(), name) >= 0;
    const bool there = lake::find_field(first, name) >= 0;
    if (here && there) {
      return Error{Errc::invalid_argument,
                   fmt::format("column {} is in {} and in {}; rename or leave out one of them",
                               json_quote(name), spec.url, url_)};
    }
    if (!here && !there) {
      const Error neither = lake::missing_column(first, name, spec.url);
      return Error{neither.code(), neither.message() + "; nor has the static table: " +
                                       lake::missing_column(schema(), name, url_).message()};
    }
    if (here) {
      theirs->erase(std::find(theirs->begin(), theirs->end(), name));
      ours->push_back(name);
    }
    return {};
  };
  for (const std::string& name : spec.categories) {
    HR_TRY(take(name, &columns->categories, &columns_.categories));
  }
  for (const std::string& name : spec.static_reals) {
    HR_TRY(take(name, &columns->reals, &columns_.reals));
  }
  return lake::check_static_columns(schema(), url_, columns_);
}

Result<void> StaticTable::join(const TableSpec& spec, lake::SeriesRows* rows) const {
  if (columns_.categories.empty() && columns_.reals.empty()) {
    return {};
  }
  HR_TRY(lake::StaticRows own, stream_ != nullptr ? lake::read_static(*stream_, url_, columns_)
                                                  : lake::read_static(*table_, columns_));
  HR_TRY(const auto places, places_of(rows->ids, own, url_, spec.url));
  // In the order of the names, as if all had been read from one table.
  std::vector<lake::SeriesRows::Category> categories;
  for (const std::string& name : spec.categories) {
    if (auto* there = find_named(&rows->categories, name)) {
      categories.push_back(std::move(*there));
    } else {
      auto& here = *find_named(&own.categories, name);
      categories.push_back({name, here.values, spread(here.code, places, rows->item)});
    }
  }
  std::vector<lake::SeriesRows::Real> reals;
  for (const auto* names : {&spec.static_reals, &spec.dynamic_reals}) {
    for (const std::string& name : *names) {
      if (auto* there = find_named(&rows->reals, name)) {
        reals.push_back(std::move(*there));
      } else {
        const auto& here = *find_named(&own.reals, name);
        reals.push_back({name, spread(here.values, places, rows->item)});
      }
    }
  }
  rows->categories = std::move(categories);
  rows->reals = std::move(reals);
  return {};
}

}  // namespace headrace::jobs
