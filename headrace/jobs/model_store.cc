// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/model_store.h"

#include <iterator>
#include <utility>

namespace headrace::jobs {

namespace {

constexpr std::string_view kModelKind = "deepar";

}  // namespace

Result<registry::Version> add_model(registry::Registry* registry, const forecast::Model& model,
                                    ModelRecord record) {
  const forecast::ModelData data = forecast::to_data(model);
  registry::NewVersion version;
  version.name = std::move(record.name);
  version.kind = data.header.get_string("kind", kModelKind);
  version.header = data.header;
  for (const forecast::Tensor& tensor : data.tensors) {
    version.tensors.push_back({.name = tensor.name,
                               .dtype = registry::Dtype::f32,
                               .shape = tensor.shape,
                               .data = std::as_bytes(std::span(tensor.data))});
  }
  version.once = std::move(record.once);
  version.lineage = std::move(record.lineage);
  version.metrics = std::move(record.metrics);
  version.params = std::move(record.params);
  version.tags = std::move(record.tags);
  version.parent = std::move(record.parent);
  return registry->add(version);
}

Result<forecast::Model> read_model(const registry::ModelFile& file) {
  forecast::ModelData data;
  data.header = file.header();
  for (const registry::TensorView& view : file.tensors()) {
    HR_TRY(const std::span<const float> values, view.floats());
    data.tensors.push_back(
        {view.name, view.shape, std::vector<float>(values.begin(), values.end())});
  }
  return forecast::from_data(data);
}

Result<forecast::Model> load_model(const registry::Registry& registry, std::string_view reference) {
  HR_TRY(const registry::Version version, registry.find(reference));
  // Methods without parameters (seasonal naive, ...) have no file: their header is all there is.
  const auto method = forecast::parse_method(version.kind);
  if (version.artifacts.empty() && method.ok() && *method != forecast::Method::deepar) {
    HR_TRY(forecast::Model model, forecast::from_data({version.header, {}}),
           "registry: " + version.reference());
    return model;
  }
  HR_TRY(const registry::ModelFile file, registry.load(version));
  HR_TRY(forecast::Model model, read_model(file), "registry: " + version.reference());
  return model;
}

Result<forecast::Model> join_members(std::vector<forecast::Model> models) {
  if (models.empty()) {
    return Error{Errc::invalid_argument, "forecast: an ensemble needs one model at least"};
  }
  forecast::Model joined = std::move(models.front());
  for (size_t i = 1; i < models.size(); ++i) {
    const std::string difference = forecast::spec_difference(joined.spec, models[i].spec);
    if (!difference.empty()) {
      return Error{Errc::mismatch,
                   "forecast: model " + std::to_string(i + 1) + " cannot join the ensemble: " +
                       difference + "; train its members with the same options on the same table"};
    }
    std::move(models[i].members.begin(), models[i].members.end(),
              std::back_inserter(joined.members));
  }
  return joined;
}

}  // namespace headrace::jobs
