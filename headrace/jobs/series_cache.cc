// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/series_cache.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "headrace/base/json.h"

namespace headrace::jobs {

namespace {

std::string key_of(const TableSpec& spec) {
  Json parts = Json::array();
  parts.push_back(to_json(spec));
  for (const auto* names : {&spec.categories, &spec.static_reals, &spec.dynamic_reals}) {
    parts.push_back(Json(Json::Array(names->begin(), names->end())));
  }
  return parts.dump();
}

int64_t bytes_of(const forecast::SeriesSet& set) {
  size_t values = 0;
  for (const forecast::Series& series : set.series) {
    values += series.target.size();
    for (const auto& real : series.dynamic_reals) {
      values += real.size();
    }
  }
  return static_cast<int64_t>(values * sizeof(double));
}

bool same_files(const std::vector<lake::FileInfo>& a, const std::vector<lake::FileInfo>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.path == y.path && x.bytes == y.bytes && x.modified_us == y.modified_us;
  });
}

}  // namespace

Result<SeriesTable> SeriesCache::load(const TableSpec& spec, const std::string& item) {
  const std::string key = key_of(spec);
  if (key == not_kept_) {
    return load_series(spec, {item});
  }
  HR_TRY(const lake::TableFiles files, table_files(spec));
  if (files.format == lake::Format::parquet) {
    not_kept_ = key;
    return load_series(spec, {item});
  }
  if (key == key_ && same_files(files.files, table_.files)) {
    return part_of(spec, item);
  }
  HR_TRY(table_, load_series(spec));
  key_ = key;
  places_.clear();
  for (size_t i = 0; i < table_.set.series.size(); ++i) {
    places_.emplace(table_.set.series[i].id, i);
  }
  auto part = part_of(spec, item);
  if (part.ok()) {
    part->bytes_read = table_.bytes_read;
    part->set.notes = table_.set.notes;
  }
  if (bytes_of(table_.set) > bytes_max_) {
    not_kept_ = std::exchange(key_, {});
    table_ = {};
  }
  return part;
}

Result<SeriesTable> SeriesCache::part_of(const TableSpec& spec, const std::string& item) const {
  SeriesTable out;
  out.snapshot = table_.snapshot;
  out.set.frequency = table_.set.frequency;
  if (const auto place = places_.find(item); place != places_.end()) {
    out.set.series.push_back(table_.set.series[place->second]);
    return out;
  }
  for (const forecast::ItemError& error : table_.set.errors) {
    if (error.item == item) {
      out.set.errors.push_back(error);
      return out;
    }
  }
  return Error{Errc::not_found, spec.url + " has no item \"" + item + "\""};
}

}  // namespace headrace::jobs
