// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/predict_many.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/jobs/model_store.h"
#include "headrace/registry/name.h"

namespace headrace::jobs {

namespace {

/// "sales", "sales/*", "sales@champion" or "sales/*@champion" as a prefix and its mark.
ModelSet prefix_of(std::string_view model) {
  ModelSet out;
  const size_t at = std::min(model.rfind('@'), model.size());
  std::string_view prefix = model.substr(0, at);
  out.mark = model.substr(at) == "@latest" ? "" : model.substr(at);
  if (prefix.ends_with("/*")) {
    prefix.remove_suffix(2);
  }
  out.prefix = prefix;
  return out;
}

/// One of the per-item models below the prefix that have its alias, or nothing.
std::optional<registry::Version> any_below(const registry::Registry& registry,
                                           const ModelSet& chosen) {
  registry::Query query;
  query.pattern = chosen.prefix + "/*";
  query.alias = chosen.mark.empty() ? "" : chosen.mark.substr(1);
  query.limit = 1;
  for (const std::string_view kind : {forecast::method_name(forecast::Method::deepar), {}}) {
    query.kind = kind;  // one with weights, else any
    auto page = registry.list(query);
    if (page.ok() && !page->versions.empty()) {
      return std::move(page->versions.front());
    }
  }
  return std::nullopt;
}

}  // namespace

Result<ModelSet> find_models(const registry::Registry& registry, const std::string& model) {
  ModelSet chosen = prefix_of(model);
  const bool pattern = model.find("/*") != std::string::npos;
  auto found = pattern ? Result<registry::Version>(Error{
                             Errc::not_found, "registry: no model is named by \"" + model + "\""})
                       : registry.find(model);
  if (found.ok()) {
    chosen.shared = std::move(*found);
    return chosen;
  }
  if (found.error().code() != Errc::not_found) {
    return std::move(found).error();
  }
  if (any_below(registry, chosen)) {
    return chosen;
  }
  return std::move(found).error().add_note(
      "nor is there a model below \"" + chosen.prefix + "/\"" +
      (chosen.mark.empty() ? "" : " with the alias " + chosen.mark.substr(1)));
}

std::string ModelSet::reference(const std::string& item) const {
  return prefix + "/" + registry::encode_segment(item) + mark;
}

namespace {

Result<forecast::Forecast> predict_one(const registry::Registry& registry,
                                       const forecast::Model* shared, const ModelSet& chosen,
                                       const forecast::Series& series,
                                       const forecast::PredictOptions& options,
                                       const std::function<bool()>& stop) {
  std::optional<forecast::Model> own;
  const bool is_own = shared == nullptr || !chosen.shared->lineage.item.empty();
  if (shared == nullptr) {
    HR_TRY(own, load_model(registry, chosen.reference(series.id)));
    shared = &*own;
  }
  HR_TRY(auto forecasts, forecast::predict(*shared, std::span(&series, 1), options, stop));
  if (!forecasts.errors.empty()) {
    return std::move(forecasts.errors.front().error);
  }
  if (is_own) {
    forecast::mark_global(*shared, &forecasts.items.front());
  }
  return std::move(forecasts.items.front());
}

}  // namespace

Result<ModelFacts> facts_of_models(const registry::Registry& registry, const std::string& model) {
  HR_TRY(const ModelSet chosen, find_models(registry, model));
  const auto version = chosen.shared ? chosen.shared : any_below(registry, chosen);
  if (!version) {
    return Error{Errc::not_found,
                 "registry: the models below \"" + chosen.prefix + "/\" were deleted just now"};
  }
  HR_TRY(const forecast::Model one, load_model(registry, version->reference()));
  return ModelFacts{one.spec, one.columns, version->reference(),
                    chosen.shared ? version->lineage.item : ""};
}

Result<forecast::Forecasts> predict_many(const registry::Registry& registry,
                                         const std::string& model,
                                         std::span<const forecast::Series> series,
                                         const forecast::PredictOptions& options,
                                         const PredictManyContext& context) {
  HR_TRY(const ModelSet chosen, find_models(registry, model));
  std::optional<forecast::Model> shared;
  if (chosen.shared) {
    HR_TRY(shared, load_model(registry, chosen.shared->reference()));
  }
  const forecast::Model* common = shared ? &*shared : nullptr;
  std::vector<std::optional<Result<forecast::Forecast>>> results(series.size());
  std::atomic<int64_t> done = 0;
  std::atomic<int64_t> failed = 0;
  const auto body = [&](int64_t i) {
    const auto index = static_cast<size_t>(i);
    results[index] = predict_one(registry, common, chosen, series[index], options, context.stop);
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
