// SPDX-License-Identifier: Apache-2.0
// The layout that model hubs use: model.safetensors, config.json, README.md. No network code.
#include <fcntl.h>

#include "headrace/registry/mapping.h"
#include "headrace/registry/registry_internal.h"

namespace headrace::registry {

namespace {

std::string readme(const Version& version) {
  std::string text = "# " + version.reference() + "\n\nA model of kind `" + version.kind +
                     "`, made " + base::utc_text(version.created) + ".\n";
  if (!version.metrics.empty()) {
    text += "\n| metric | value |\n|---|---|\n";
    for (const Metric& metric : version.metrics) {
      const std::string value = Json(metric.value).dump();
      text += "| " + metric.name + " | " + value + " |\n";
    }
  }
  if (version.lineage.table) {
    text += "\nTrained on `" + version.lineage.table->url + "`.\n";
  }
  return text +
         "\n`model.safetensors` opens with any safetensors reader; `config.json` is its "
         "header.\n";
}

/// A model file of its own: for an item of a bundle it is written anew.
Result<void> write_model(const ModelFile& file, const Json& header, const Path& target) {
  std::vector<Tensor> tensors;
  for (const TensorView& view : file.tensors()) {
    tensors.push_back({view.name, view.dtype, view.shape, view.data});
  }
  std::vector<size_t> order;
  HR_TRY(std::string bytes, model_file_head(header, tensors, &order));
  for (const size_t index : order) {
    bytes.append(reinterpret_cast<const char*>(tensors[index].data.data()),
                 tensors[index].data.size());
  }
  return base::replace_file(target, bytes);
}

}  // namespace

Result<void> check_target(const Path& registry, const Path& target, bool overwrite) {
  std::error_code code;
  const Path home = std::filesystem::weakly_canonical(registry, code);
  const Path place = std::filesystem::weakly_canonical(target, code);
  const std::string inside = place.lexically_relative(home).string();
  if (!inside.empty() && inside != ".." && !inside.starts_with("../")) {
    return Error{Errc::invalid_argument, "registry: " + target.string() +
                                             " lies in the registry's own folder " +
                                             registry.string() + "; name a place outside of it"};
  }
  if (!overwrite && std::filesystem::exists(target, code)) {
    return Error{Errc::already_exists, "registry: " + target.string() +
                                           " is there already; name another place, or overwrite "
                                           "it (--force; in Python force=True)"};
  }
  return {};
}

Result<void> Registry::export_folder(const Version& version, const Path& folder,
                                     bool overwrite) const {
  for (const char* name : {"model.safetensors", "config.json", "README.md"}) {
    HR_TRY(check_target(state_->folder, folder / name, overwrite));
  }
  HR_TRY(auto file, load(version));
  HR_TRY(base::make_folders(folder));
  Json header = file.header().is_null() ? Json::object({{"kind", version.kind}}) : file.header();
  header.set("created", base::utc_text(version.created));
  HR_TRY(write_model(file, header, folder / "model.safetensors"));
  HR_TRY(base::replace_file(folder / "config.json", header.dump(2, true) + "\n"));
  return base::replace_file(folder / "README.md", readme(version));
}

Result<std::vector<Path>> Registry::get(const Version& version, const Path& folder,
                                        bool overwrite) const {
  std::vector<Path> written;
  for (const StoredArtifact& artifact : version.artifacts) {
    HR_TRY(check_artifact_path(artifact.path));
    std::error_code code;
    if (!overwrite && std::filesystem::exists(folder / artifact.path, code)) {
      return Error{Errc::already_exists, "registry: " + (folder / artifact.path).string() +
                                             " is there already; name another folder, or "
                                             "overwrite it (--force)"};
    }
  }
  HR_TRY(base::make_folders(folder));
  for (const StoredArtifact& artifact : version.artifacts) {
    const Path target = folder / artifact.path;
    HR_TRY(base::make_folders(target.parent_path()));
    if (artifact.slot) {
      HR_TRY(const ModelFile file, load(version));
      HR_TRY(write_model(file, file.header(), target));
    } else {
      HR_TRY(const Path source, artifact_path(version, artifact.path));
      HR_TRY(const auto mapping, Mapping::open(source, false));
      const auto bytes = mapping->bytes();
      HR_TRY(base::replace_file(
          target, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
    }
    written.push_back(target);
  }
  return written;
}

}  // namespace headrace::registry
