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

constexpr double kTablesReadMax = 2.0;

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

bool same_files(const lake::TableFiles& a, const lake::TableFiles& b) {
  return std::equal(a.files.begin(), a.files.end(), b.files.begin(), b.files.end(),
                    [](const auto& x, const auto& y) {
                      return x.path == y.path && x.bytes == y.bytes &&
                             x.modified_us == y.modified_us;
                    });
}

/// Asking an object store what it holds takes requests that are slow and are paid for.
bool is_remote(const TableSpec& spec) {
  const auto remote = [](const std::string& url) {
    return url.find("://") != std::string::npos && !url.starts_with("file://");
  };
  return remote(spec.url) || remote(spec.static_table);
}

}  // namespace

Result<SeriesTable> SeriesCache::load(const TableSpec& spec, const std::string& item) {
  int64_t static_bytes = 0;
  const bool known = key_of(spec) == key_;
  if (!known || !is_remote(spec)) {
    HR_TRY(lake::TableFiles files, table_files(spec));
    if (!known || !same_files(files, files_)) {
      HR_TRY(static_bytes, open(spec, std::move(files)));
    }
  }
  HR_TRY(SeriesTable out, read(item));
  out.bytes_read += static_bytes;
  return out;
}

Result<SeriesTable> SeriesCache::read(const std::string& item) {
  if (whole_) {
    return part_of(item);
  }
  if (worth_keeping()) {
    return load_whole(item);
  }
  HR_TRY(SeriesTable one, load_series(*opened_, {item}));
  if (one.row_groups_total > 0) {
    tables_read_ +=
        static_cast<double>(one.row_groups_read) / static_cast<double>(one.row_groups_total);
  }
  return one;
}

Result<int64_t> SeriesCache::open(const TableSpec& spec, lake::TableFiles files) {
  key_.clear();
  whole_.reset();
  places_.clear();
  tables_read_ = 0.0;
  keep_ = true;
  HR_TRY(opened_, open_series_table(spec));
  if (opened_->spec.frequency.empty()) {
    HR_TRY(const auto frequency, table_frequency(*opened_));
    opened_->spec.frequency = frequency.name();
  }
  HR_TRY(const int64_t static_bytes, keep_static(&*opened_, bytes_max_));
  HR_TRY(keep_snapshot(&*opened_));
  files_ = std::move(files);
  key_ = key_of(spec);
  return static_bytes;
}

bool SeriesCache::worth_keeping() const {
  const auto& [table, spec, second, snapshot] = *opened_;
  if (!keep_ || table.format() != lake::Format::parquet) {
    return keep_;
  }
  // What a row takes while series are built: its columns, then the series.
  const auto reals = std::ssize(spec.static_reals) + std::ssize(spec.dynamic_reals) + 1;
  const auto row_bytes = static_cast<int64_t>(sizeof(double)) * (2 * reals + 1) +
                         static_cast<int64_t>(sizeof(int32_t)) * (std::ssize(spec.categories) + 1);
  return tables_read_ >= kTablesReadMax && table.rows() <= bytes_max_ / row_bytes;
}

Result<SeriesTable> SeriesCache::load_whole(const std::string& item) {
  auto whole = load_series(*opened_);
  if (!whole.ok()) {
    keep_ = false;  // of Parquet this item may be readable all the same; text gives the same error
    return load_series(*opened_, {item});
  }
  whole_ = std::move(*whole);
  for (size_t i = 0; i < whole_->set.series.size(); ++i) {
    places_.emplace(whole_->set.series[i].id, i);
  }
  auto part = part_of(item);
  if (part.ok()) {
    part->bytes_read = whole_->bytes_read;
  }
  if (bytes_of(whole_->set) > bytes_max_) {
    keep_ = false;
    whole_.reset();
    places_.clear();
  } else {
    opened_->second.reset();  // its values stand in the series now
  }
  return part;
}

Result<SeriesTable> SeriesCache::part_of(const std::string& item) const {
  SeriesTable out;
  out.snapshot = whole_->snapshot;
  out.set.frequency = whole_->set.frequency;
  out.set.columns = whole_->set.columns;
  if (const auto place = places_.find(item); place != places_.end()) {
    out.set.series.push_back(whole_->set.series[place->second]);
    return out;
  }
  for (const forecast::ItemError& error : whole_->set.errors) {
    if (error.item == item) {
      out.set.errors.push_back(error);
      return out;
    }
  }
  return Error{Errc::not_found, opened_->spec.url + " has no item \"" + item + "\""};
}

}  // namespace headrace::jobs
