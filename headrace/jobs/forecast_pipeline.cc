// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/forecast_pipeline.h"

#include <algorithm>
#include <utility>

#include "headrace/base/pool.h"
#include "headrace/forecast/options.h"
#include "headrace/forecast/selection.h"

namespace headrace::jobs {

namespace {

bool trains_global(const ForecastPipeline& spec) {
  return spec.warm_start.empty() && spec.global_members > 0;
}

bool starts_warm(const ForecastPipeline& spec) {
  return !spec.warm_start.empty() || spec.global_members > 0;
}

/// Properties that every activity on the table shares.
Json table_properties(const ForecastPipeline& spec, std::string_view operation) {
  Json out = Json::object({{"operation", operation}, {"table", spec.table.url}});
  const TableSpec defaults;
  for (const TableText& text : table_texts()) {
    const std::string& value = spec.table.*text.field;
    if (value != defaults.*text.field) {
      out.set(text.name, value);
    }
  }
  if (spec.table.allow_missing_columns) {
    out.set("allow_missing_columns", true);
  }
  return out;
}

Json forecast_activity(std::string_view name, Json properties) {
  return Json::object({{"name", name},
                       {"type", "HeadraceForecast"},
                       {"policy", Json::object({{"timeout", "1.00:00:00"}, {"retry", 1}})},
                       {"typeProperties", std::move(properties)}});
}

Json depends_on(std::initializer_list<std::pair<const char*, const char*>> list) {
  Json out = Json::array();
  for (const auto& [activity, condition] : list) {
    Json conditions = Json::array();
    conditions.push_back(condition);
    out.push_back(
        Json::object({{"activity", activity}, {"dependencyConditions", std::move(conditions)}}));
  }
  return out;
}

Json for_each(std::string_view name, std::string_view items, int batch_count, Json activities) {
  return Json::object({{"name", name},
                       {"type", "ForEach"},
                       {"typeProperties", Json::object({{"items", items},
                                                        {"batchCount", batch_count},
                                                        {"activities", std::move(activities)}})}});
}

bool is_parity(const ForecastPipeline& spec) {
  forecast::TrainOptions given;
  return forecast::set_options(&given, spec.train).ok() && given.parity;
}

/// The options of the global stage: those that were given, but for how a local model ends its
/// training. It leaves out the windows on which it is compared with the others later.
Json global_options(const ForecastPipeline& spec) {
  Json out = Json::object();
  if (!is_parity(spec)) {
    out.set("validation_windows", forecast::SelectOptions().windows);
  }
  for (const auto& [name, value] : spec.train.members()) {
    if (name != "refit" && name != "monitor" && name != "patience") {
      out.set(name, value);
    }
  }
  return out;
}

/// Shorter training from other weights, where a few steps go a long way and many overfit: what was
/// not given otherwise.
Json warm_options(const ForecastPipeline& spec) {
  Json out = Json::object();
  for (const auto& [name, value] :
       {std::pair("epochs", 3), std::pair("batches_per_epoch", 10), std::pair("patience", 1)}) {
    if (!is_parity(spec) && spec.train.find(name) == nullptr) {
      out.set(name, int64_t{value});
    }
  }
  return out;
}

/// Seeds of the members: `first`, `first` + 1, ... apart from those of the next seed.
int64_t first_member_seed(int64_t seed) {
  constexpr uint64_t kApart = 1000;
  constexpr uint64_t kSeeds = 1'000'000'000'000;
  return static_cast<int64_t>(static_cast<uint64_t>(seed) % kSeeds * kApart);
}

Result<forecast::TrainOptions> checked(const Json& given, forecast::Scope scope) {
  forecast::TrainOptions options;
  HR_TRY(forecast::set_options(&options, given));
  HR_TRY(auto resolved, forecast::resolve(options, scope),
         std::string(forecast::scope_name(scope)) + " stage");
  return resolved;
}

/// One global model per member, their references kept in a variable in the order of members.
Json train_global(const ForecastPipeline& spec, const forecast::TrainOptions& options,
                  int batch_count) {
  std::string prefix;  // a text of the expression language
  for (const char c : spec.name) {
    prefix += c == '\'' ? "''" : std::string(1, c);
  }
  Json properties = table_properties(spec, "train");
  properties.set("scope", "global");
  properties.set("model", "@concat('" + prefix + "-global/member-', string(item()))");
  properties.set("registry", spec.registry);
  Json train = global_options(spec);
  train.set("seed", "@add(" + std::to_string(first_member_seed(options.seed)) + ", item())");
  properties.set("train", std::move(train));
  Json keep = Json::object(
      {{"name", "KeepMember"},
       {"type", "AppendVariable"},
       {"dependsOn", depends_on({{"Member", "Succeeded"}})},
       {"typeProperties", Json::object({{"variableName", "globalModels"},
                                        {"value", "@activity('Member').output.model"}})}});
  Json activities = Json::array();
  activities.push_back(forecast_activity("Member", std::move(properties)));
  activities.push_back(std::move(keep));
  return for_each("TrainGlobal", "@range(0, " + std::to_string(spec.global_members) + ")",
                  batch_count, std::move(activities));
}

Json train_each(const ForecastPipeline& spec, int batch_count) {
  Json properties = table_properties(spec, "train");
  properties.set("scope", "local");
  properties.set("item", "@item()");
  properties.set("model", spec.name);
  properties.set("registry", spec.registry);
  if (!spec.warm_start.empty()) {
    Json references = Json::array();
    references.push_back(spec.warm_start);
    properties.set("warm_start", std::move(references));
  } else if (trains_global(spec)) {
    properties.set("warm_start", "@variables('globalModels')");
  }
  properties.set("train", spec.train);
  Json warm = warm_options(spec);
  if (starts_warm(spec) && !warm.members().empty()) {
    properties.set("train_warm", std::move(warm));
  }
  Json predict = spec.predict;
  if (predict.find("quantiles") == nullptr) {
    const std::vector<double> usual = forecast::PredictOptions().quantiles;
    predict.set("quantiles", Json(Json::Array(usual.begin(), usual.end())));
  }
  properties.set("predict", std::move(predict));
  Json activities = Json::array();
  activities.push_back(forecast_activity("Train", std::move(properties)));
  Json loop =
      for_each("TrainEach", "@activity('Items').output.items", batch_count, std::move(activities));
  loop.set("dependsOn", trains_global(spec)
                            ? depends_on({{"Items", "Succeeded"}, {"TrainGlobal", "Succeeded"}})
                            : depends_on({{"Items", "Succeeded"}}));
  return loop;
}

}  // namespace

Result<Json> forecast_pipeline(const ForecastPipeline& spec) {
  HR_TRY(checked(spec.train, forecast::Scope::local));
  const int batch_count = spec.slots > 0 ? spec.slots : base::usable_cores();
  Json activities = Json::array();
  activities.push_back(forecast_activity("Items", table_properties(spec, "items")));
  if (trains_global(spec)) {
    HR_TRY(const auto options, checked(global_options(spec), forecast::Scope::global));
    activities.push_back(train_global(spec, options, batch_count));
  }
  activities.push_back(train_each(spec, batch_count));
  Json judged = table_properties(spec, "evaluate");
  if (!spec.actuals.empty()) {
    judged.set("actuals", spec.actuals);
    if (!spec.actuals_format.empty()) {
      judged.set("actuals_format", spec.actuals_format);
    }
    if (!spec.actuals_start.empty()) {
      judged.set("actuals_start", spec.actuals_start);
    }
  }
  Json evaluate = forecast_activity("Evaluate", std::move(judged));
  evaluate.set("dependsOn", depends_on({{"TrainEach", "Completed"}}));
  activities.push_back(std::move(evaluate));
  // A leaf that a failed item or evaluation leaves out: the run ends as Failed then, after the
  // evaluation.
  activities.push_back(Json::object(
      {{"name", "AllTrained"},
       {"type", "Wait"},
       {"dependsOn", depends_on({{"TrainEach", "Succeeded"}, {"Evaluate", "Succeeded"}})},
       {"typeProperties", Json::object({{"waitTimeInSeconds", 0}})}}));

  Json variables = Json::object(
      {{"globalModels", Json::object({{"type", "Array"}, {"defaultValue", Json::array()}})}});
  return Json::object(
      {{"name", spec.name},
       {"properties", Json::object({{"description", "made by headrace forecast train"},
                                    {"variables", std::move(variables)},
                                    {"activities", std::move(activities)}})}});
}

}  // namespace headrace::jobs
