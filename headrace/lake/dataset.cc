// SPDX-License-Identifier: Apache-2.0
#include "headrace/lake/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "headrace/base/json.h"
#include "headrace/lake/json_series_internal.h"
#include "headrace/lake/scan/storage_internal.h"
#include "headrace/lake/table.h"

namespace headrace::lake {

namespace {

constexpr size_t kMetadataBytesMax = size_t{16} << 20;
constexpr const char* kMetadataNames[] = {"/metadata.json", "/metadata/metadata.json", "/metadata"};

/// A place as its file system names it, and as a table's url.
struct Place {
  std::string path;
  std::string url;

  Place child(const std::string& name) const { return {path + name, url + name}; }
  Place parent() const {
    const auto up = [](const std::string& text) { return text.substr(0, text.rfind('/')); };
    return {up(path), up(url)};
  }
  std::string name() const { return path.substr(path.rfind('/') + 1); }
  bool is_part() const { return name() == "train" || name() == "test"; }
};

Place place_of(const scan::Storage& storage, std::string url) {
  while (url.size() > 1 && url.back() == '/') {
    url.pop_back();
  }
  const bool remote = url.find("://") != std::string::npos;
  return {storage.path(), remote ? url : storage.path()};
}

bool is_folder(const scan::Storage& storage, const Place& place) {
  const auto entry = storage.find(place.path);
  return entry.ok() && *entry && (*entry)->folder;
}

std::optional<Place> metadata_in(const scan::Storage& storage, const Place& folder) {
  for (const char* name : kMetadataNames) {
    const Place place = folder.child(name);
    const auto entry = storage.find(place.path);
    if (entry.ok() && *entry && !(*entry)->folder) {
      return place;
    }
  }
  return std::nullopt;
}

Result<std::string> read_text(const scan::Storage& storage, const Place& place) {
  HR_TRY(const auto stream,
         storage.stream(place.path, false, std::make_shared<std::atomic<int64_t>>(0)));
  std::string text;
  std::array<char, 65536> buffer{};
  for (;;) {
    HR_TRY(const int64_t count, stream->read(buffer));
    if (count == 0) {
      return text;
    }
    text.append(buffer.data(), static_cast<size_t>(count));
    if (text.size() > kMetadataBytesMax) {
      return Error{Errc::invalid_argument,
                   fmt::format("{}: longer than {} MiB; a data set's metadata is one small object",
                               place.url, kMetadataBytesMax >> 20)};
    }
  }
}

Error wrong_member(const std::string& where, const std::string& member, const Json& value,
                   const char* wanted) {
  constexpr size_t kShownMax = 80;
  std::string text = value.dump();
  if (text.size() > kShownMax) {
    text.resize(kShownMax - 3);
    text += "...";
  }
  return Error{Errc::invalid_argument,
               fmt::format("{}: \"{}\" is {}; {} is needed", where, member, text, wanted)};
}

/// GluonTS writes a cardinality as text.
std::optional<int64_t> whole_number(const Json& value) {
  if (value.is_integer()) {
    return value.integer();
  }
  int64_t number = 0;
  const std::string text = value.is_string() ? value.string() : "";
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  return code == std::errc() && !text.empty() && end == text.data() + text.size()
             ? std::optional(number)
             : std::nullopt;
}

Result<void> read_cardinalities(const Json& categories, const std::string& where, Dataset* out) {
  if (!categories.is_array()) {
    return wrong_member(where, "feat_static_cat", categories, "an array");
  }
  for (size_t i = 0; i < categories.items().size(); ++i) {
    const Json& category = categories.items()[i];
    const Json* value = category.is_object() ? category.find("cardinality") : nullptr;
    const auto cardinality = value == nullptr ? std::nullopt : whole_number(*value);
    if (!cardinality || *cardinality < 1) {
      return wrong_member(where, fmt::format("feat_static_cat[{}]", i), category,
                          "an object with a \"cardinality\" from 1");
    }
    out->cardinalities.push_back(*cardinality);
  }
  return {};
}

Result<Dataset> read_metadata(const scan::Storage& storage, const Place& place) {
  HR_TRY(const std::string text, read_text(storage, place));
  return parse_dataset(text, place.url);
}

/// Whether a text is an object with a text "freq", right or wrong in the rest.
bool tells_frequency(std::string_view text) {
  const auto json = parse_json(text, "");
  const Json* frequency = json.ok() && json->is_object() ? json->find("freq") : nullptr;
  return frequency != nullptr && frequency->is_string();
}

/// Whether `url` names a table even if `metadata` below it is no description of it.
bool is_table_without(const std::string& url, const Place& metadata) {
  const auto table = list_table_files(url);
  return table.ok() &&
         std::none_of(table->files.begin(), table->files.end(),
                      [&](const FileInfo& file) { return file.path == metadata.path; });
}

/// What a file that nobody named says, where it is the metadata of a data set. `root`: the name
/// that was given, when it can only mean the data set; else "".
Result<std::optional<Dataset>> implied(const scan::Storage& storage, const Place& place,
                                       const std::string& root) {
  const auto text = read_text(storage, place);
  // What the storage refuses may well be the metadata: to go on could change the frequency.
  const bool unlike = text.ok() ? !tells_frequency(*text)
                                : text.error().code() == Errc::invalid_argument;  // far too long
  if (unlike && (root.empty() || is_table_without(root, place))) {
    return std::optional<Dataset>();
  }
  HR_TRY(const std::string known, text);
  HR_TRY(Dataset out, parse_dataset(known, place.url));
  return std::optional(std::move(out));
}

}  // namespace

Result<Dataset> parse_dataset(std::string_view text, const std::string& where) {
  HR_TRY(const Json json, parse_json(text, where));
  const Json* frequency = json.is_object() ? json.find("freq") : nullptr;
  if (frequency == nullptr || !frequency->is_string() || frequency->string().empty()) {
    return Error{Errc::invalid_argument,
                 where +
                     ": no text \"freq\" is in it; the metadata of a GluonTS data set is an "
                     "object such as {\"freq\": \"H\", \"prediction_length\": 48}"};
  }
  Dataset out;
  out.metadata = where;
  out.frequency = frequency->string();
  const Json* horizon = json.find("prediction_length");
  if (horizon != nullptr && !horizon->is_null()) {
    if (!horizon->is_integer() || horizon->integer() < 1) {
      return wrong_member(where, "prediction_length", *horizon, "a whole number from 1");
    }
    out.horizon = horizon->integer();
  }
  const Json* categories = json.find("feat_static_cat");
  if (categories != nullptr && !categories->is_null()) {
    HR_TRY(read_cardinalities(*categories, where, &out));
  }
  return out;
}

Result<std::optional<Dataset>> find_dataset(const std::string& url, const std::string& metadata) {
  HR_TRY(const auto storage, scan::Storage::open(url));
  const Place given = place_of(storage, url);
  Place root = given;
  if (given.is_part()) {
    root = given.parent();
  } else if (given.parent().is_part()) {
    root = given.parent().parent();
  }
  const Place train = root.child("/train");
  const auto beside = is_folder(storage, train) ? metadata_in(storage, root) : std::nullopt;
  std::optional<Dataset> out;
  if (!metadata.empty()) {
    HR_TRY(out, read_dataset(metadata));
  } else if (beside) {
    HR_TRY(out, implied(storage, *beside, root.path == given.path ? url : ""));
  }
  if (!out || !beside) {
    return out;
  }
  out->at_root = root.path == given.path;
  out->train = train.url;
  if (const Place test = root.child("/test"); is_folder(storage, test)) {
    out->test = test.url;
  }
  return out;
}

Result<Dataset> read_dataset(const std::string& url) {
  HR_TRY(const auto storage, scan::Storage::open(url));
  const Place given = place_of(storage, url);
  if (is_folder(storage, given)) {
    if (const auto inside = metadata_in(storage, given)) {
      return read_metadata(storage, *inside);
    }
    return Error{Errc::not_found, url + ": the folder holds no metadata.json"};
  }
  return read_metadata(storage, given);
}

}  // namespace headrace::lake
