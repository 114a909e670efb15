// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/forecast_properties.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "headrace/registry/name.h"
#include "headrace/registry/registry.h"

namespace headrace::jobs {

namespace {

Error wrong(std::string_view name, const Json& value, std::string_view wanted) {
  std::string text = value.dump();
  if (text.size() > 80) {
    text = text.substr(0, 77) + "...";
  }
  return Error{Errc::invalid_argument, "HeadraceForecast: " + std::string(name) + " is " + text +
                                           "; " + std::string(wanted) + " is needed"};
}

Result<void> read_text(std::string_view name, const Json& value, std::string* out) {
  if (!value.is_string()) {
    return wrong(name, value, "a text");
  }
  *out = value.string();
  return {};
}

Result<void> read_texts(std::string_view name, const Json& value, std::vector<std::string>* out) {
  out->clear();
  if (value.is_string()) {
    out->push_back(value.string());
    return {};
  }
  if (!value.is_array()) {
    return wrong(name, value, "a text or an array of texts");
  }
  for (const Json& entry : value.items()) {
    if (!entry.is_string()) {
      return wrong(name, value, "an array of texts");
    }
    out->push_back(entry.string());
  }
  return {};
}

Result<void> read_bool(std::string_view name, const Json& value, bool* out) {
  if (!value.is_bool()) {
    return wrong(name, value, "true or false");
  }
  *out = value.boolean();
  return {};
}

Result<void> read_int(std::string_view name, const Json& value, int low, int high, int* out) {
  if (!value.is_integer() || value.integer() < low || value.integer() > high) {
    return wrong(name, value,
                 "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  }
  *out = static_cast<int>(value.integer());
  return {};
}

Result<void> read_select(const Json& value, forecast::SelectOptions* out) {
  if (!value.is_object()) {
    return wrong("select", value, "an object");
  }
  for (const auto& [name, entry] : value.members()) {
    if (name == "windows") {
      HR_TRY(read_int("select.windows", entry, 1, 1000, &out->windows));
    } else if (name == "criterion") {
      HR_TRY(read_text("select.criterion", entry, &out->criterion));
    } else if (name == "margin" && entry.is_number()) {
      out->margin = entry.number();
    } else if (name == "combine" && entry.kind() == Json::Kind::boolean) {
      out->combine = entry.boolean();
    } else {
      return wrong("select." + name, entry,
                   "windows, criterion, a number for margin, or true or false for combine");
    }
  }
  return {};
}

/// State while properties are read: the result, and parts that only make sense together.
struct Reading {
  ForecastProperties out;
  std::string operation;
  std::string scope;
};

using Reader = std::function<Result<void>(std::string_view, const Json&, Reading*)>;

Reader text_reader(std::string TableSpec::* field) {
  return [field](std::string_view name, const Json& value, Reading* r) {
    return read_text(name, value, &(r->out.table.*field));
  };
}

Reader text_reader(std::string ForecastProperties::* field) {
  return [field](std::string_view name, const Json& value, Reading* r) {
    return read_text(name, value, &(r->out.*field));
  };
}

Result<void> check_registry(const std::string& told) {
  HR_TRY(registry::registry_path(told));
  return {};
}

using Readers = std::map<std::string, Reader, std::less<>>;

Readers make_readers() {
  Readers table = {
      {"operation", [](std::string_view n, const Json& v,
                       Reading* r) { return read_text(n, v, &r->operation); }},
      {"scope",
       [](std::string_view n, const Json& v, Reading* r) { return read_text(n, v, &r->scope); }},
      {"table", text_reader(&TableSpec::url)},
      {"allow_missing_columns",
       [](std::string_view n, const Json& v, Reading* r) {
         return read_bool(n, v, &r->out.table.allow_missing_columns);
       }},
      {"item", text_reader(&ForecastProperties::item)},
      {"model",
       [](std::string_view n, const Json& v, Reading* r) -> Result<void> {
         HR_TRY(read_text(n, v, &r->out.model));
         return r->out.model.empty() ? Result<void>() : registry::check_name(r->out.model);
       }},
      {"registry",
       [](std::string_view n, const Json& v, Reading* r) -> Result<void> {
         HR_TRY(read_text(n, v, &r->out.registry));
         // As it was told: once it is absolute, "mlflow:" is a folder like another.
         return r->out.registry.empty() ? Result<void>() : check_registry(r->out.registry);
       }},
      {"actuals", [](std::string_view n, const Json& v,
                     Reading* r) { return read_text(n, v, &r->out.actuals.url); }},
      {"actuals_start", [](std::string_view n, const Json& v,
                           Reading* r) { return read_text(n, v, &r->out.actuals.start); }},
      {"warm_start", [](std::string_view n, const Json& v,
                        Reading* r) { return read_texts(n, v, &r->out.warm_start); }},
      {"start_warm", [](std::string_view n, const Json& v,
                        Reading* r) { return read_bool(n, v, &r->out.start_warm); }},
      {"choose", [](std::string_view n, const Json& v,
                    Reading* r) { return read_bool(n, v, &r->out.choose); }},
      {"threads", [](std::string_view n, const Json& v,
                     Reading* r) { return read_int(n, v, 1, 1024, &r->out.threads); }},
      {"train", [](std::string_view, const Json& v,
                   Reading* r) { return forecast::set_options(&r->out.train, v); }},
      {"train_warm",
       [](std::string_view, const Json& v, Reading* r) -> Result<void> {
         forecast::TrainOptions checked;
         HR_TRY(forecast::set_options(&checked, v));
         r->out.train_warm = v;
         return {};
       }},
      {"predict", [](std::string_view, const Json& v,
                     Reading* r) { return forecast::set_options(&r->out.predict, v); }},
      {"select",
       [](std::string_view, const Json& v, Reading* r) { return read_select(v, &r->out.select); }},
  };
  for (const TableText& text : table_texts()) {
    table.emplace(text.name, text_reader(text.field));
  }
  return table;
}

const Readers& readers() {
  static const Readers table = make_readers();
  return table;
}

Result<void> settle_operation(Reading* reading) {
  const std::string& name = reading->operation;
  ForecastProperties& out = reading->out;
  if (name == "items") {
    out.operation = ForecastOperation::items;
  } else if (name == "evaluate") {
    out.operation = ForecastOperation::evaluate;
  } else if (name == "train" && reading->scope == "global") {
    out.operation = ForecastOperation::train_global;
  } else if (name == "train" && reading->scope == "local") {
    out.operation = ForecastOperation::train_local;
  } else if (name == "train") {
    return wrong("scope", reading->scope, "\"local\" or \"global\"");
  } else {
    return wrong("operation", name, "\"items\", \"train\" or \"evaluate\"");
  }
  return {};
}

Result<Reading> read_all(const Json& properties) {
  Reading reading;
  if (!properties.is_object()) {
    return wrong("typeProperties", properties, "an object");
  }
  for (const auto& [name, value] : properties.members()) {
    const auto reader = readers().find(name);
    if (reader == readers().end()) {
      std::vector<std::string_view> known;
      for (const auto& [other, unused] : readers()) {
        known.push_back(other);
      }
      const std::string near = forecast::nearest_name(name, known);
      return Error{Errc::invalid_argument,
                   "HeadraceForecast: unknown property \"" + name + "\"" +
                       (near.empty() ? "" : "; did you mean \"" + near + "\"?")};
    }
    HR_TRY(reader->second(name, value, &reading));
  }
  return reading;
}

std::string absolute(const std::string& url, const base::Path& folder) {
  const bool remote = url.find("://") != std::string::npos;
  return url.empty() || remote || base::Path(url).is_absolute() ? url : (folder / url).string();
}

}  // namespace

Result<ForecastProperties> read_forecast_properties(const Json& properties,
                                                    const base::Path& folder) {
  HR_TRY(Reading reading, read_all(properties));
  HR_TRY(settle_operation(&reading));
  ForecastProperties& out = reading.out;
  if (out.table.url.empty()) {
    return wrong("table", Json(""), "a file, folder or glob");
  }
  out.table.url = absolute(out.table.url, folder);
  out.table.metadata = absolute(out.table.metadata, folder);
  out.table.static_table = absolute(out.table.static_table, folder);
  out.table.categories = out.train.categories;
  out.table.static_reals = out.train.static_reals;
  out.table.dynamic_reals = out.train.dynamic_reals;
  const TableSpec actuals = out.actuals;
  out.actuals = out.table;
  out.actuals.url = absolute(actuals.url, folder);
  out.actuals.start = actuals.start;
  out.registry = absolute(out.registry, folder);
  const bool trains = out.operation == ForecastOperation::train_local ||
                      out.operation == ForecastOperation::train_global;
  if (trains && out.model.empty()) {
    return wrong("model", Json(""), "a name for the registry");
  }
  if (out.operation == ForecastOperation::train_local && out.item.empty()) {
    return wrong("item", Json(""), "the id of one series");
  }
  if (trains) {
    HR_TRY(check_static_named(out.table));
    const auto scope = out.operation == ForecastOperation::train_local ? forecast::Scope::local
                                                                       : forecast::Scope::global;
    // Checked here, settled in training: what stays `auto` follows the model it starts from.
    HR_TRY([[maybe_unused]] const auto settled, forecast::resolve(out.train, scope),
           "HeadraceForecast: train");
  }
  return std::move(reading).out;
}

Result<void> check_forecast_properties(const Json& properties) {
  HR_TRY(Reading reading, read_all(properties));
  return reading.operation.empty() || (reading.operation == "train" && reading.scope.empty())
             ? Result<void>()
             : settle_operation(&reading);
}

std::vector<std::string> forecast_property_names() {
  std::vector<std::string> names;
  for (const auto& [name, unused] : readers()) {
    if (name != "operation" && name != "table") {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace headrace::jobs
