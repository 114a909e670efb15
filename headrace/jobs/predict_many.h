// SPDX-License-Identifier: Apache-2.0
// Forecast many series with registered models: one model for all of them, or one per item.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "headrace/base/export.h"
#include "headrace/base/pool.h"
#include "headrace/base/result.h"
#include "headrace/forecast/forecaster.h"
#include "headrace/registry/registry.h"

namespace headrace::jobs {

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
  std::string item;               ///< that `reference` alone was trained on; "" = of all series
};

/// `model` as for `predict_many`; of a prefix any one model speaks for all.
HR_API Result<ModelFacts> facts_of_models(const registry::Registry& registry,
                                          const std::string& model);

/// `model` is a reference (NAME, NAME:7, NAME@alias) of one model for all series, or a prefix
/// (PREFIX, PREFIX/*, PREFIX@alias, PREFIX/*@alias): then item i is forecast by
/// PREFIX/encode_segment(id), and an item without a model, or without that alias, is in `errors`.
/// Results do not depend on the pool. `not_found`: neither exists.
HR_API Result<forecast::Forecasts> predict_many(const registry::Registry& registry,
                                                const std::string& model,
                                                std::span<const forecast::Series> series,
                                                const forecast::PredictOptions& options,
                                                const PredictManyContext& context = {});

}  // namespace headrace::jobs
