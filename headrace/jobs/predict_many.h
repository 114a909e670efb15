// SPDX-License-Identifier: Apache-2.0
// Forecast many series with registered models: one model for all of them, or one per item.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "headrace/base/export.h"
#include "headrace/base/pool.h"
#include "headrace/base/result.h"
#include "headrace/forecast/forecaster.h"
#include "headrace/registry/registry.h"

namespace headrace::jobs {

/// What a name stands for: one model of all series (NAME, NAME:7, NAME@alias), or a set of one per
/// item (PREFIX, PREFIX/*, PREFIX@alias, PREFIX/*@alias).
struct ModelSet {
  std::optional<registry::Version> shared;
  std::string prefix;
  std::string mark;  ///< "" or "@alias", behind each item's name

  /// Of an item's own model: PREFIX/encode_segment(id), with the mark.
  HR_API std::string reference(const std::string& item) const;
};
/// `not_found`: neither exists.
HR_API Result<ModelSet> find_models(const registry::Registry& registry, const std::string& model);

struct PredictManyContext {
  base::Pool* pool = nullptr;                                  ///< null: on the calling thread
  std::function<bool()> stop;                                  ///< true ends early with `cancelled`
  std::function<void(int64_t done, int64_t failed)> progress;  ///< from any thread
};

/// What is to be known of models before a table is read for them.
struct ModelFacts {
  forecast::ModelSpec spec;       ///< covariates, frequency
  forecast::ColumnNames columns;  ///< of the table they were trained on
  std::string reference;          ///< "NAME:7" of the model that these facts are of
  bool shared = false;            ///< it is for all items, not one of a set
  std::string item;               ///< that `reference` alone was trained on; "" = of all series
};

/// `model` as for `find_models`; of a set any one model speaks for all, one with weights if there
/// is any.
HR_API Result<ModelFacts> facts_of_models(const registry::Registry& registry,
                                          const std::string& model);

/// `model` as for `find_models`. Of a set item i is forecast by its own model, and an item without
/// one, or without the alias, is in `errors`.
/// Results do not depend on the pool. `not_found`: neither exists.
HR_API Result<forecast::Forecasts> predict_many(const registry::Registry& registry,
                                                const std::string& model,
                                                std::span<const forecast::Series> series,
                                                const forecast::PredictOptions& options,
                                                const PredictManyContext& context = {});

}  // namespace headrace::jobs
