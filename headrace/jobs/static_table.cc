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

/// The same with the values that occur alone: an item needs not those of all.
lake::SeriesRows::Category spread(const lake::SeriesRows::Category& category,
                                  const std::vector<size_t>& places,
                                  const std::vector<int32_t>& item) {
  lake::SeriesRows::Category out;
  out.name = category.name;
  std::unordered_map<int32_t, int32_t> known = {{-1, -1}};
  std::vector<int32_t> by_item;
  for (const size_t place : places) {
    const int32_t code = category.code[place];
    const auto [found, is_new] = known.emplace(code, static_cast<int32_t>(out.values.size()));
    if (is_new) {
      out.values.push_back(category.values[static_cast<size_t>(code)]);
    }
    by_item.push_back(found->second);
  }
  out.code.reserve(item.size());
  for (const int32_t i : item) {
    out.code.push_back(by_item[static_cast<size_t>(i)]);
  }
  return out;
}

/// The entry of that name; nullptr when the list has none.
template <typename List>
auto* find_named(List* list, const std::string& name) {
  const auto found =
      std::find_if(list->begin(), list->end(), [&](const auto& one) { return one.name == name; });
  return found == list->end() ? nullptr : &*found;
}

}  // namespace

Result<StaticTable> StaticTable::open(const TableSpec& spec, const lake::Schema& first,
                                      lake::BatchReader* stream) {
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
  HR_TRY(out.find_columns(spec, first));
  return out;
}

const lake::Schema& StaticTable::schema() const {
  return stream_ == nullptr ? table_->schema() : stream_->schema();
}

Result<void> StaticTable::find_columns(const TableSpec& spec, const lake::Schema& first) {
  HR_TRY(columns_.id, id_column(spec, schema(), url_));
  const auto find = [&](const std::string& name, std::vector<std::string>* ours) -> Result<void> {
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
      ours->push_back(name);
    }
    return {};
  };
  for (const std::string& name : spec.categories) {
    HR_TRY(find(name, &columns_.categories));
  }
  for (const std::string& name : spec.static_reals) {
    HR_TRY(find(name, &columns_.reals));
  }
  return lake::check_static_columns(schema(), url_, columns_);
}

void StaticTable::leave_out(lake::SeriesColumns* columns) const {
  const auto leave = [](const std::vector<std::string>& ours, std::vector<std::string>* theirs) {
    for (const std::string& name : ours) {
      theirs->erase(std::find(theirs->begin(), theirs->end(), name));
    }
  };
  leave(columns_.categories, &columns->categories);
  leave(columns_.reals, &columns->reals);
}

Result<void> StaticTable::read() {
  if (!has_columns()) {
    return {};
  }
  HR_TRY(rows_, stream_ != nullptr ? lake::read_static(*stream_, url_, columns_)
                                   : lake::read_static(*table_, columns_));
  for (size_t row = 0; row < rows_.ids.size(); ++row) {
    places_.emplace(rows_.ids[row], row);
  }
  return {};
}

int64_t StaticTable::bytes() const {
  constexpr size_t kPlaceBytes = sizeof(std::string_view) + sizeof(size_t) + 3 * sizeof(void*);
  const auto text_bytes = [](const std::vector<std::string>& texts) {
    size_t bytes = texts.size() * sizeof(std::string);
    for (const std::string& text : texts) {
      bytes += text.size();
    }
    return bytes;
  };
  size_t bytes = text_bytes(rows_.ids) + places_.size() * kPlaceBytes;
  for (const auto& category : rows_.categories) {
    bytes += text_bytes(category.values) + category.code.size() * sizeof(int32_t);
  }
  for (const auto& real : rows_.reals) {
    bytes += real.values.size() * sizeof(double);
  }
  return static_cast<int64_t>(bytes);
}

Result<std::vector<size_t>> StaticTable::places_of(const std::vector<std::string>& items,
                                                   const std::string& first_url) const {
  std::vector<size_t> places;
  std::vector<std::string> missing;
  for (const std::string& item : items) {
    const auto found = places_.find(item);
    if (found == places_.end()) {
      missing.push_back(item);
    } else {
      places.push_back(found->second);
    }
  }
  if (missing.empty()) {
    return places;
  }
  return Error{Errc::not_found,
               fmt::format("{}: {} of {} items of {} have no row: {}; add one for each", url_,
                           missing.size(), items.size(), first_url, lake::first_names(missing))};
}

Result<void> StaticTable::join(const TableSpec& spec, lake::SeriesRows* rows) const {
  if (!has_columns()) {
    return {};
  }
  HR_TRY(const auto places, places_of(rows->ids, spec.url));
  // In the order of the names, as if all had been read from one table.
  std::vector<lake::SeriesRows::Category> categories;
  for (const std::string& name : spec.categories) {
    if (auto* there = find_named(&rows->categories, name)) {
      categories.push_back(std::move(*there));
    } else {
      categories.push_back(spread(*find_named(&rows_.categories, name), places, rows->item));
    }
  }
  std::vector<lake::SeriesRows::Real> reals;
  for (const auto* names : {&spec.static_reals, &spec.dynamic_reals}) {
    for (const std::string& name : *names) {
      if (auto* there = find_named(&rows->reals, name)) {
        reals.push_back(std::move(*there));
      } else {
        const auto& here = *find_named(&rows_.reals, name);
        reals.push_back({name, spread(here.values, places, rows->item)});
      }
    }
  }
  rows->categories = std::move(categories);
  rows->reals = std::move(reals);
  return {};
}

}  // namespace headrace::jobs
