// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/predict_many.h"

#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/jobs/model_store.h"
#include "headrace/registry/name.h"

namespace headrace::jobs {

namespace {

/// One of the per-item models below the prefix, or nothing.
std::optional<registry::Version> any_below(const registry::Registry& registry,
                                           const std::string& prefix) {
  registry::Query query;
  query.pattern = prefix + "/*";
  query.limit = 1;
  query.with_details = false;
  auto page = registry.list(query);
  if (!page.ok() || page->versions.empty()) {
    return std::nullopt;
  }
  return std::move(page->versions.front());
}

/// The model of all series, or nothing when `model` is a prefix of per-item models.
Result<std::optional<forecast::Model>> shared_model(const registry::Registry& registry,
                                                    const std::string& model) {
  auto loaded = load_model(registry, model);
  if (loaded.ok()) {
    return std::optional(std::move(*loaded));
  }
  if (loaded.error().code() != Errc::not_found) {
    return std::move(loaded).error();
  }
  if (!any_below(registry, model)) {
    return std::move(loaded).error().add_note("nor is there a model below \"" + model + "/\"");
  }
  return std::optional<forecast::Model>();
}

Result<forecast::Forecast> predict_one(const registry::Registry& registry,
                                       const forecast::Model* shared, const std::string& prefix,
                                       const forecast::Series& series,
                                       const forecast::PredictOptions& options,
                                       const std::function<bool()>& stop) {
  std::optional<forecast::Model> own;
  if (shared == nullptr) {
    HR_TRY(own, load_model(registry, prefix + "/" + registry::encode_segment(series.id)));
    shared = &*own;
  }
  HR_TRY(auto forecasts, forecast::predict(*shared, std::span(&series, 1), options, stop));
  if (!forecasts.errors.empty()) {
    return std::move(forecasts.errors.front().error);
  }
  return std::move(forecasts.items.front());
}

}  // namespace

Result<forecast::ModelSpec> spec_of_models(const registry::Registry& registry,
                                           const std::string& model) {
  HR_TRY(const auto shared, shared_model(registry, model));
  if (shared) {
    return shared->spec;
  }
  const auto below = any_below(registry, model);
  if (!below) {
    return Error{Errc::not_found,
                 "registry: the models below \"" + model + "/\" were deleted just now"};
  }
  HR_TRY(const forecast::Model one, load_model(registry, below->reference()));
  return one.spec;
}

Result<forecast::Forecasts> predict_many(const registry::Registry& registry,
                                         const std::string& model,
                                         std::span<const forecast::Series> series,
                                         const forecast::PredictOptions& options,
                                         const PredictManyContext& context) {
  HR_TRY(const auto shared, shared_model(registry, model));
  const forecast::Model* common = shared ? &*shared : nullptr;
  std::vector<std::optional<Result<forecast::Forecast>>> results(series.size());
  std::atomic<int64_t> done = 0;
  std::atomic<int64_t> failed = 0;
  const auto body = [&](int64_t i) {
    const auto index = static_cast<size_t>(i);
    results[index] = predict_one(registry, common, model, series[index], options, context.stop);
    if (!results[index]->ok() && results[index]->error().code() == Errc::cancelled) {
      return;  // stopped in its midst: not done
    }
    failed += results[index]->ok() ? 0 : 1;
    const int64_t count = ++done;
    if (context.progress) {
      context.progress(count, failed);
    }
  };
  const auto total = static_cast<int64_t>(series.size());
  if (context.pool != nullptr) {
    context.pool->for_each(total, body, context.stop);
  } else {
    for (int64_t i = 0; i < total && !(context.stop && context.stop()); ++i) {
      body(i);
    }
  }
  if (done < total) {
    return Error{Errc::cancelled, "forecast: stopped after " + std::to_string(done) + " of " +
                                      std::to_string(total) + " items"};
  }
  forecast::Forecasts out;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i]->ok()) {
      out.items.push_back(**std::move(results[i]));
    } else {
      out.errors.push_back({series[i].id, std::move(*results[i]).error()});
    }
  }
  return out;
}

}  // namespace headrace::jobs
