// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/prepare.h"

#include <algorithm>

#include "headrace/base/random.h"
#include "headrace/registry/limits.h"
#include "headrace/registry/model_file.h"
#include "headrace/registry/name.h"
#include "headrace/registry/reference.h"

namespace headrace::registry {

namespace {

constexpr std::string_view kLibrary = "headrace " HEADRACE_VERSION;

Error bad(const NewVersion& version, const std::string& what) {
  return Error{Errc::invalid_argument, "registry: adding " + version.name + ": " + what};
}

Result<void> check_count(const NewVersion& version, std::string_view what, size_t count,
                         int64_t most) {
  if (static_cast<int64_t>(count) > most) {
    return bad(version, std::to_string(count) + " " + std::string(what) + "; at most " +
                            std::to_string(most) + " are allowed per version");
  }
  return {};
}

template <typename Rows>
Result<void> check_unique(const NewVersion& version, std::string_view what, const Rows& rows) {
  std::set<std::string_view> names;
  for (const auto& row : rows) {
    HR_TRY(check_key(row.name, what));
    if (!names.insert(row.name).second) {
      return bad(version, std::string(what) + " " + json_quote(row.name) + " is given twice");
    }
  }
  return {};
}

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Result<void> check_lineage(const NewVersion& version) {
  const Lineage& lineage = version.lineage;
  const std::pair<const char*, const std::string*> texts[] = {
      {"run", &lineage.run},
      {"run kind", &lineage.run_kind},
      {"parent run", &lineage.parent_run},
      {"code version", &lineage.code_version},
      {"item", &lineage.item}};
  for (const auto& [what, text] : texts) {
    HR_TRY(check_text(*text, what, kTextBytesMax));
  }
  if (lineage.run.find('/') != std::string::npos) {
    return bad(version, "the run's uid " + json_quote(lineage.run) + " must not hold '/'");
  }
  if (!lineage.environment.is_null() && !lineage.environment.is_object()) {
    return bad(version, "lineage.environment must be an object");
  }
  if (!is_hex(lineage.pipeline_digest) || lineage.pipeline_digest.size() % 2 != 0) {
    return bad(version, "pipeline_digest must be lower-case hex");
  }
  if (!lineage.data_hash.empty() &&
      (lineage.data_hash.size() != 32 || !is_hex(lineage.data_hash))) {
    return bad(version, "data_hash must be 32 lower-case hex digits (XXH3-128)");
  }
  if (lineage.table) {
    for (const std::string* text :
         {&lineage.table->url, &lineage.table->format, &lineage.table->version}) {
      HR_TRY(check_text(*text, "table", kTextBytesMax));
    }
    if (!is_hex(lineage.table->digest) || lineage.table->digest.size() % 2 != 0) {
      return bad(version, "the table's digest must be lower-case hex");
    }
  }
  return {};
}

Json lineage_json(const NewVersion& version) {
  const Lineage& lineage = version.lineage;
  Json out = Json::object();
  const auto put = [&out](const char* name, const std::string& text) {
    if (!text.empty()) {
      out.set(name, text);
    }
  };
  // Not the attempt: a repeated item must give the same bytes.
  put("run", lineage.run);
  put("item", lineage.item);
  put("data_hash", lineage.data_hash);
  put("code_version", lineage.code_version);
  put("parent", version.parent.value_or(""));
  if (lineage.table) {
    put("table", lineage.table->url);
    put("snapshot",
        lineage.table->version.empty() ? lineage.table->digest : lineage.table->version);
  }
  return out;
}

Json filled_header(const NewVersion& version) {
  Json header = version.header;
  header.set("kind", version.kind);
  if (header.find("library") == nullptr) {
    header.set("library", kLibrary);
  }
  if (header.find("metrics") == nullptr && !version.metrics.empty()) {
    Json metrics = Json::object();
    for (const Metric& metric : version.metrics) {
      metrics.set(metric.name, metric.value);
    }
    header.set("metrics", std::move(metrics));
  }
  if (header.find("lineage") == nullptr) {
    if (Json lineage = lineage_json(version); !lineage.members().empty()) {
      header.set("lineage", std::move(lineage));
    }
  }
  return header;
}

}  // namespace

std::string new_uid() {
  std::array<std::byte, 16> bytes = {};
  base::random_bytes(bytes);
  return base::hex(bytes);
}

Result<void> check_text(std::string_view text, std::string_view what, int64_t bytes_max) {
  if (static_cast<int64_t>(text.size()) > bytes_max) {
    return Error{Errc::invalid_argument, "registry: the " + std::string(what) + " has " +
                                             std::to_string(text.size()) + " bytes; at most " +
                                             std::to_string(bytes_max) + " are allowed"};
  }
  if (!is_utf8(text) || text.find('\0') != std::string_view::npos) {
    return Error{Errc::invalid_argument,
                 "registry: the " + std::string(what) + " is not UTF-8 text without NUL"};
  }
  return {};
}

Result<void> check_artifact_path(std::string_view path) {
  HR_TRY(check_text(path, "artifact path", kArtifactPathBytesMax));
  bool good = !path.empty() && path.front() != '/' && path.back() != '/';
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    good = good && !part.empty() && part != "." && part != "..";
    begin = end + 1;
  }
  if (!good || path.find('\\') != std::string_view::npos) {
    return Error{Errc::invalid_argument, "registry: artifact path " + json_quote(path) +
                                             " must be relative, without empty parts, \".\", "
                                             "\"..\" and backslashes"};
  }
  return {};
}

Result<void> check_version(const NewVersion& version) {
  HR_TRY(check_name(version.name));
  HR_TRY(check_key(version.kind, "kind"));
  if (!version.header.is_object()) {
    return bad(version, "the header must be a JSON object");
  }
  if (version.header.find("kind") != nullptr && version.header.get_string("kind") != version.kind) {
    return bad(version, "header.kind is " + version.header.at("kind").dump() + ", kind is " +
                            json_quote(version.kind));
  }
  HR_TRY(check_count(version, "metrics", version.metrics.size(), kMetricsMax));
  HR_TRY(check_count(version, "params", version.params.size(), kParamsMax));
  HR_TRY(check_count(version, "tags", version.tags.size(), kTagsMax));
  HR_TRY(check_count(version, "artifacts", version.artifacts.size(), kArtifactsMax - 1));
  HR_TRY(check_unique(version, "metric", version.metrics));
  HR_TRY(check_unique(version, "param", version.params));
  HR_TRY(check_unique(version, "tag", version.tags));
  for (const Pair& param : version.params) {
    HR_TRY(check_text(param.value, "value of param " + param.name, kParamValueBytesMax));
  }
  for (const Pair& tag : version.tags) {
    HR_TRY(check_text(tag.value, "value of tag " + tag.name, kTagValueBytesMax));
  }
  std::set<std::string_view> paths;
  if (!version.tensors.empty()) {
    paths.insert(kModelPath);
  }
  for (const Artifact& artifact : version.artifacts) {
    HR_TRY(check_artifact_path(artifact.path));
    HR_TRY(check_key(artifact.kind, "artifact kind"));
    if (!paths.insert(artifact.path).second) {
      return bad(version, "artifact " + json_quote(artifact.path) + " is given twice");
    }
  }
  if (version.once) {
    HR_TRY(check_text(*version.once, "once key", kOnceBytesMax));
    if (version.once->empty()) {
      return bad(version, "the once key is empty; leave it out to add a new version every time");
    }
  }
  if (version.parent) {
    HR_TRY(parse_reference(*version.parent));
  }
  return check_lineage(version);
}

Result<PreparedVersion> prepare_version(const NewVersion& version) {
  HR_TRY(check_version(version));
  PreparedVersion prepared;
  prepared.source = &version;
  prepared.uid = new_uid();
  prepared.header = filled_header(version).dump(0, true);
  prepared.created = base::system_clock().wall();
  if (static_cast<int64_t>(prepared.header.size()) > kHeaderBytesMax) {
    return bad(version, "the header has " + std::to_string(prepared.header.size()) +
                            " bytes; at most " + std::to_string(kHeaderBytesMax) + " are allowed");
  }
  return prepared;
}

Result<std::vector<PendingFile>> write_files(const NewVersion& version, const std::string& header,
                                             const Path& tmp_folder) {
  std::vector<PendingFile> files;
  if (!version.tensors.empty()) {
    HR_TRY(const Json json, parse_json(header));
    std::vector<size_t> order;
    HR_TRY(const std::string head, model_file_head(json, version.tensors, &order));
    HR_TRY(auto file, TempFile::create(tmp_folder));
    HR_TRY(file.write(std::as_bytes(std::span(head))));
    for (const size_t index : order) {
      HR_TRY(file.write(version.tensors[index].data));
    }
    files.push_back({std::move(file), std::string(kModelPath), "model"});
  }
  for (const Artifact& artifact : version.artifacts) {
    HR_TRY(auto file, TempFile::create(tmp_folder));
    if (artifact.file.empty()) {
      HR_TRY(file.write(artifact.bytes));
    } else {
      HR_TRY(in_context(file.copy_from(artifact.file), "storing artifact " + artifact.path));
    }
    files.push_back({std::move(file), artifact.path, artifact.kind});
  }
  return files;
}

Result<void> publish_files(std::span<PendingFile> files, const ObjectStore& store,
                           PreparedVersion* prepared, std::set<Path>* folders) {
  prepared->artifacts.clear();
  for (PendingFile& pending : files) {
    HR_TRY(pending.object, pending.file.finish());
    HR_TRY(store.publish(pending.file.path(), pending.object, folders));
    prepared->artifacts.push_back(
        {pending.path, pending.object.hash, pending.object.bytes, pending.kind, std::nullopt});
  }
  return {};
}

Result<void> publish_missing(std::span<const PendingFile> files, const ObjectStore& store) {
  std::set<Path> folders;
  for (const PendingFile& pending : files) {
    if (!store.size_of(pending.object.hash)) {
      HR_TRY(store.publish(pending.file.path(), pending.object, &folders));
    }
  }
  return sync_all(folders);
}

Result<void> sync_all(const std::set<Path>& folders) {
  for (const Path& folder : folders) {
    HR_TRY(base::sync_folder(folder));
  }
  return {};
}

}  // namespace headrace::registry
