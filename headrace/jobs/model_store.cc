// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/model_store.h"

#include <sys/utsname.h>

#include <cstdint>
#include <iterator>
#include <utility>

#include "headrace/base/checksum.h"
#include "headrace/forecast/network.h"
#include "headrace/forecast/seen.h"
#include "headrace/forecast/series.h"
#include "headrace/lake/table.h"

namespace headrace::jobs {

namespace {

constexpr std::string_view kModelKind = "deepar";

/// Sizes go in too: neighbouring fields must not run into one another.
void hash_values(std::span<const double> values, base::Xxh3Stream128* hash) {
  const uint64_t count = values.size();
  hash->update(std::as_bytes(std::span(&count, 1)));
  hash->update(std::as_bytes(values));
}

void hash_text(std::string_view text, base::Xxh3Stream128* hash) {
  const uint64_t count = text.size();
  hash->update(std::as_bytes(std::span(&count, 1)));
  hash->update(std::as_bytes(std::span(text)));
}

}  // namespace

Json training_environment() {
  utsname system = {};
  const bool known = ::uname(&system) == 0;
  return Json::object(
      {{"headrace", HEADRACE_VERSION},
       {"arrow", lake::arrow_version()},
       {"os", known ? std::string(system.sysname) + " " + system.release : std::string("unknown")},
       {"machine", known ? std::string(system.machine) : std::string("unknown")},
       {"cpu", forecast::instruction_set()}});
}

std::string data_hash_of(std::span<const forecast::Series> series) {
  base::Xxh3Stream128 hash;
  for (const forecast::Series& one : series) {
    hash_text(one.id, &hash);
    hash_text(one.frequency.name(), &hash);
    hash.update(std::as_bytes(std::span(&one.start_us, 1)));
    hash_values(one.target, &hash);
    for (const std::string& category : one.categories) {
      hash_text(category, &hash);
    }
    hash_values(one.static_reals, &hash);
    for (const std::vector<double>& reals : one.dynamic_reals) {
      hash_values(reals, &hash);
    }
  }
  return base::hex(hash.finish());
}

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
    forecast::join_seen(models[i], &joined);
  }
  return joined;
}

}  // namespace headrace::jobs
