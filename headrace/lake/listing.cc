// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>

#include "headrace/lake/listing_internal.h"
#include "headrace/lake/text_internal.h"

namespace headrace::lake {

namespace {

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

/// Spark, Delta and others keep what is no data under names with _ or . in front.
bool is_hidden(std::string_view name) {
  while (!name.empty()) {
    const bool key = name.substr(0, name.find('/')).find('=') != std::string_view::npos;
    if (name.front() == '.' || (name.front() == '_' && !key)) {
      return true;
    }
    const size_t slash = name.find('/');
    if (slash == std::string_view::npos) {
      return false;
    }
    name.remove_prefix(slash + 1);
  }
  return false;
}

std::string url_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto hex = [&text](size_t at) {
      const char c = at < text.size() ? text[at] : 'x';
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                    : -1;
    };
    if (text[i] == '%' && hex(i + 1) >= 0 && hex(i + 2) >= 0) {
      out.push_back(static_cast<char>(hex(i + 1) * 16 + hex(i + 2)));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

/// Match one [...] at the front of `pattern`; nullopt when it is never closed.
std::optional<bool> match_set(std::string_view* pattern, char c) {
  const size_t end = pattern->find(']', 2);
  if (end == std::string_view::npos) {
    return std::nullopt;
  }
  std::string_view set = pattern->substr(1, end - 1);
  pattern->remove_prefix(end + 1);
  const bool negated = set.front() == '!' || set.front() == '^';
  if (negated) {
    set.remove_prefix(1);
  }
  bool found = false;
  for (size_t i = 0; i < set.size(); ++i) {
    if (i + 2 < set.size() && set[i + 1] == '-') {
      found = found || (c >= set[i] && c <= set[i + 2]);
      i += 2;
    } else {
      found = found || c == set[i];
    }
  }
  return found != negated && c != '/';
}

size_t first_wildcard(std::string_view path) { return path.find_first_of("*?["); }

Error nothing_found(const std::string& url, const std::vector<std::string>& others) {
  std::string found;
  for (size_t i = 0; i < others.size() && i < 5; ++i) {
    found += (i == 0 ? "" : ", ") + others[i];
  }
  if (others.size() > 5) {
    found += fmt::format(" and {} more", others.size() - 5);
  }
  return Error{Errc::not_found, url + ": no Parquet, CSV or JSON lines file is there; found: " +
                                    (found.empty() ? "nothing" : found)};
}

/// The format of most use among the files: a folder may hold notes beside its Parquet files.
Format choose_format(const std::vector<FileInfo>& files) {
  for (const Format format : {Format::parquet, Format::csv, Format::json_lines}) {
    if (std::any_of(files.begin(), files.end(),
                    [format](const FileInfo& file) { return format_of(file.name) == format; })) {
      return format;
    }
  }
  return Format::automatic;
}

bool fits(Format wanted, const FileInfo& file) {
  const Format own = format_of(file.name);
  return own == wanted || (wanted == Format::wide_csv && own == Format::csv);
}

Result<void> find_partitions(const std::string& url, Listing* listing) {
  for (const FileInfo& file : listing->files) {
    listing->partitions.push_back(parse_partition(file.name));
    const Partition& first = listing->partitions.front();
    const Partition& own = listing->partitions.back();
    const bool same = std::equal(first.begin(), first.end(), own.begin(), own.end(),
                                 [](const auto& a, const auto& b) { return a.first == b.first; });
    if (!same) {
      return Error{Errc::mismatch,
                   fmt::format("{}: the folders of {} and {} name different partition keys", url,
                               listing->files.front().name, file.name)};
    }
  }
  return {};
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view name) {
  while (!pattern.empty()) {
    if (pattern.substr(0, 3) == "**/" && glob_match(pattern.substr(3), name)) {
      return true;  // no folder at all
    }
    if (pattern.front() == '*') {
      const bool deep = pattern.substr(0, 2) == "**";
      const std::string_view rest = pattern.substr(deep ? 2 : 1);
      for (size_t skip = 0; skip <= name.size(); ++skip) {
        if (glob_match(rest, name.substr(skip))) {
          return true;
        }
        if (!deep && skip < name.size() && name[skip] == '/') {
          return false;
        }
      }
      return false;
    }
    if (name.empty()) {
      return false;
    }
    if (pattern.front() == '[') {
      const auto fit = match_set(&pattern, name.front());
      if (!fit) {
        return false;
      }
      if (!*fit) {
        return false;
      }
    } else if (pattern.front() == name.front() || (pattern.front() == '?' && name.front() != '/')) {
      pattern.remove_prefix(1);
    } else {
      return false;
    }
    name.remove_prefix(1);
  }
  return name.empty();
}

Partition parse_partition(std::string_view name) {
  Partition out;
  for (size_t slash = name.find('/'); slash != std::string_view::npos; slash = name.find('/')) {
    const std::string_view part = name.substr(0, slash);
    const size_t equals = part.find('=');
    if (equals != std::string_view::npos && equals > 0) {
      const std::string value = url_decoded(part.substr(equals + 1));
      out.emplace_back(url_decoded(part.substr(0, equals)),
                       value == "__HIVE_DEFAULT_PARTITION__" ? Value() : Value(value));
    }
    name.remove_prefix(slash + 1);
  }
  return out;
}

bool is_packed(std::string_view name) { return ends_with(lower(name), ".gz"); }

Format format_of(std::string_view name) {
  std::string text = lower(name);
  if (ends_with(text, ".gz")) {
    text.resize(text.size() - 3);
  }
  for (const std::string_view end : {".parquet", ".pq", ".parq"}) {
    if (ends_with(text, end)) {
      return Format::parquet;
    }
  }
  for (const std::string_view end : {".csv", ".tsv"}) {
    if (ends_with(text, end)) {
      return Format::csv;
    }
  }
  for (const std::string_view end : {".jsonl", ".json", ".ndjson"}) {
    if (ends_with(text, end)) {
      return Format::json_lines;
    }
  }
  return Format::automatic;
}

namespace {

/// Its first bytes say so.
bool is_parquet(const scan::Storage& storage, const std::string& path) {
  std::array<char, 5> begin{};
  const auto stream = storage.stream(path, false, std::make_shared<std::atomic<int64_t>>(0));
  return stream.ok() && (*stream)->read(begin).ok() &&
         looks_like_parquet(std::string_view(begin.data(), begin.size()));
}

Result<Listing> list_file(const scan::Storage& storage, const std::string& url,
                          const scan::Entry& entry, Format wanted) {
  Listing out;
  const std::string name = entry.path.substr(entry.path.rfind('/') + 1);
  out.format = wanted == Format::automatic ? format_of(name) : wanted;
  // Who says a format means the text files beside it, or the table whose past a Parquet file is.
  if (wanted != Format::automatic && wanted != Format::parquet && is_parquet(storage, entry.path)) {
    out.format = Format::parquet;
  }
  if (out.format == Format::automatic) {
    return Error{Errc::unsupported,
                 url +
                     ": its name does not tell what it holds; expected .parquet, .csv or .jsonl "
                     "(text also with .gz), or name the format"};
  }
  out.files.push_back(
      {.path = entry.path, .name = name, .bytes = entry.bytes, .modified_us = entry.modified_us});
  out.partitions.emplace_back();
  return out;
}

/// Files below `root` whose relative name fits `pattern` (empty: any).
Result<Listing> list_files(const scan::Storage& storage, const std::string& url,
                           const std::string& root, const std::string& pattern, Format wanted) {
  HR_TRY(const auto entries, storage.list(root), url);
  std::vector<std::string> others;
  std::vector<FileInfo> found;
  const size_t skip = root.empty() || root == "/" ? root.size() : root.size() + 1;
  for (const scan::Entry& entry : entries) {
    const std::string name = entry.path.substr(std::min(skip, entry.path.size()));
    if (entry.folder || is_hidden(name) || (!pattern.empty() && !glob_match(pattern, name))) {
      continue;
    }
    FileInfo file{
        .path = entry.path, .name = name, .bytes = entry.bytes, .modified_us = entry.modified_us};
    const bool data =
        wanted == Format::automatic ? format_of(name) != Format::automatic : fits(wanted, file);
    if (data) {
      found.push_back(std::move(file));
    } else {
      others.push_back(name);
    }
  }
  Listing out;
  out.format = wanted == Format::automatic ? choose_format(found) : wanted;
  std::copy_if(std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()),
               std::back_inserter(out.files),
               [&out](const FileInfo& file) { return fits(out.format, file); });
  if (out.files.empty()) {
    std::sort(others.begin(), others.end());
    return nothing_found(url, others);
  }
  std::sort(out.files.begin(), out.files.end(),
            [](const FileInfo& a, const FileInfo& b) { return a.name < b.name; });
  HR_TRY(find_partitions(url, &out));
  return out;
}

/// Where a folder or a glob looks for files: below `root`, by `pattern` (empty: any).
struct Search {
  std::string root;
  std::string pattern;
};

std::optional<Search> search_of(const scan::Storage& storage) {
  const std::string& path = storage.path();
  const auto exact = storage.find(path);
  if (exact.ok() && *exact) {
    return (*exact)->folder ? std::optional(Search{path, ""}) : std::nullopt;
  }
  const size_t wild = first_wildcard(path);
  if (wild == std::string::npos) {
    return std::nullopt;
  }
  const size_t slash = path.rfind('/', wild);
  const size_t name = slash == std::string::npos ? 0 : slash + 1;
  const std::string root =
      slash == std::string::npos ? "" : path.substr(0, std::max<size_t>(slash, 1));
  return Search{root, path.substr(name)};
}

/// Whether a listing would find a file at `path`, which need not be there yet.
bool would_find(const Search& search, const std::vector<FileInfo>& files, Format wanted,
                const std::filesystem::path& path) {
  std::error_code code;
  const auto root =
      std::filesystem::weakly_canonical(search.root.empty() ? "." : search.root, code);
  const auto place = std::filesystem::weakly_canonical(path, code);
  FileInfo one;
  one.name = place.lexically_relative(root).generic_string();
  if (code || one.name.empty() || one.name == "." || one.name == ".." ||
      one.name.starts_with("../") || is_hidden(one.name) ||
      (!search.pattern.empty() && !glob_match(search.pattern, one.name))) {
    return false;
  }
  std::vector<FileInfo> all = files;
  all.push_back(one);
  const Format format = wanted == Format::automatic ? choose_format(all) : wanted;
  return format != Format::automatic && fits(format, one);
}

}  // namespace

TablePart part_of_table(const std::string& url, Format format, const std::filesystem::path& path) {
  if (url.empty() || (url.find("://") != std::string::npos && !url.starts_with("file://"))) {
    return TablePart::none;
  }
  const auto storage = scan::Storage::open(url);
  if (!storage.ok()) {
    return TablePart::none;
  }
  std::vector<FileInfo> files;
  if (auto listing = list_table(*storage, url, format); listing.ok()) {
    files = std::move(listing->files);
  }
  std::error_code code;
  for (const FileInfo& file : files) {
    if (std::filesystem::equivalent(file.path, path, code)) {
      return TablePart::same_file;
    }
  }
  if (std::filesystem::equivalent(storage->path(), path, code)) {
    return TablePart::same_file;  // of a format that nobody told yet
  }
  const auto search = search_of(*storage);
  return search && would_find(*search, files, format, path) ? TablePart::one_more : TablePart::none;
}

Result<Listing> list_table(const scan::Storage& storage, const std::string& url, Format wanted) {
  const std::string& path = storage.path();
  HR_TRY(const auto exact, storage.find(path));
  if (exact && !exact->folder) {
    return list_file(storage, url, *exact, wanted);
  }
  if (exact) {
    return list_files(storage, url, path, "", wanted);
  }
  const size_t wild = first_wildcard(path);
  if (wild == std::string::npos) {
    return Error{Errc::not_found, url + ": there is no such file or folder"};
  }
  const size_t slash = path.rfind('/', wild);
  const std::string root =
      slash == std::string::npos ? "" : path.substr(0, std::max<size_t>(slash, 1));
  HR_TRY(const auto root_entry, storage.find(root));
  if (!root_entry || !root_entry->folder) {
    return Error{Errc::not_found, url + ": there is no folder " + root};
  }
  return list_files(storage, url, root, path.substr(slash + 1), wanted);
}

}  // namespace headrace::lake
