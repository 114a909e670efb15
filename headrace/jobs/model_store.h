// SPDX-License-Identifier: Apache-2.0
// Forecasting models in the registry: weights and header out of a model, and a model out of them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/forecast/model.h"
#include "headrace/forecast/series.h"
#include "headrace/registry/registry.h"

namespace headrace::jobs {

/// What is registered beside the weights.
struct ModelRecord {
  std::string name;                 ///< "m4_hourly/H1"
  std::optional<std::string> once;  ///< "RUN/ITEM": the same key again gives the version there is
  registry::Lineage lineage;
  std::vector<registry::Metric> metrics;
  std::vector<registry::Pair> params;
  std::vector<registry::Pair> tags;
  std::optional<std::string> parent;
};

/// Where a model is trained, for its lineage: {"headrace", "arrow", "os", "cpu"}.
HR_API Json training_environment();

/// XXH3-128 of what a model learns from: stamps, values, covariates, in the order of the series. 32
/// hex digits.
HR_API std::string data_hash_of(std::span<const forecast::Series> series);

/// Add a model; durable on return. Errors are `Registry::add`'s.
HR_API Result<registry::Version> add_model(registry::Registry* registry,
                                           const forecast::Model& model, ModelRecord record);

/// Model of a reference (NAME, NAME:7, NAME@alias, ...). `mismatch`: it is of another kind.
HR_API Result<forecast::Model> load_model(const registry::Registry& registry,
                                          std::string_view reference);

/// Model out of an open file.
HR_API Result<forecast::Model> read_model(const registry::ModelFile& file);

/// One ensemble out of several models with the same inputs and shapes (`mismatch` names the field
/// that differs). Their members are taken in the order given.
HR_API Result<forecast::Model> join_members(std::vector<forecast::Model> models);

}  // namespace headrace::jobs
