// SPDX-License-Identifier: Apache-2.0
// headrace.forecast: tables in, models and tables out.
#include "python/src/arrow.h"
#include "python/src/border.h"
#include "python/src/waiting.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "headrace/base/pool.h"
#include "headrace/forecast/backtest.h"
#include "headrace/forecast/forecaster.h"
#include "headrace/forecast/onnx.h"
#include "headrace/forecast/options.h"
#include "headrace/jobs/actuals.h"
#include "headrace/jobs/evaluation.h"
#include "headrace/jobs/forecast_table.h"
#include "headrace/jobs/score_table.h"
#include "headrace/jobs/series_table.h"

namespace headrace::python {

namespace {

using forecast::Model;
using forecast::Scope;
using forecast::Series;

/// id, code, message: one failed item.
using Failure = std::tuple<std::string, std::string, std::string>;

std::vector<Failure> failures_of(const std::vector<forecast::ItemError>& errors) {
  std::vector<Failure> out;
  for (const forecast::ItemError& error : errors) {
    out.emplace_back(error.item, std::string(errc_name(error.error.code())), error.error.message());
  }
  return out;
}

/// Rows in memory that become an Arrow stream as often as asked.
struct TableRows {
  std::shared_ptr<const lake::Batch> batch;
};

TableRows rows_of(lake::Batch batch) {
  return {std::make_shared<const lake::Batch>(std::move(batch))};
}

/// Series of a table, read once.
struct SeriesHandle {
  forecast::SeriesSet set;
  bool without_start = false;  ///< as jobs::SeriesTable's
};

jobs::TableSpec spec_of(const std::string& json) {
  return jobs::table_spec_of(or_throw(parse_json(json, "table")));
}

/// A second table in memory; null without one.
std::unique_ptr<lake::BatchReader> static_rows_of(const nb::object& table) {
  return table.is_none() ? nullptr : reader_of_object(table);
}

SeriesHandle load_path(const std::string& json, const std::vector<std::string>& items,
                       const nb::object& static_table) {
  const jobs::TableSpec spec = spec_of(json);
  const std::unique_ptr<lake::BatchReader> static_rows = static_rows_of(static_table);
  std::optional<Result<jobs::SeriesTable>> table;
  run_waiting(nb::none(),
              [&](Waiting*) { table = jobs::load_series(spec, items, static_rows.get()); });
  jobs::SeriesTable loaded = or_throw(*std::move(table));
  return {std::move(loaded.set), loaded.without_start};
}

SeriesHandle load_object(const nb::object& table, const std::string& json,
                         const nb::object& static_table) {
  const jobs::TableSpec spec = spec_of(json);
  const std::unique_ptr<lake::BatchReader> reader = reader_of_object(table);
  const std::unique_ptr<lake::BatchReader> static_rows = static_rows_of(static_table);
  const nb::gil_scoped_release release;
  return {or_throw(jobs::series_of(*reader, spec, static_rows.get()))};
}

/// The horizon that the metadata of a data set tells; 0: none.
int64_t horizon_of(const std::string& json) {
  const jobs::TableSpec spec = spec_of(json);
  const nb::gil_scoped_release release;
  return or_throw(jobs::settle_table(spec)).horizon;
}

/// Refuse a table of static covariates of which training would read no column.
void check_static(const std::string& json) { or_throw(jobs::check_static_named(spec_of(json))); }

/// Where the values that came lie when a table is named for them.
std::string actuals_of(const std::string& json) {
  const jobs::TableSpec spec = spec_of(json);
  const nb::gil_scoped_release release;
  return or_throw(jobs::actuals_url(spec.url, spec.metadata));
}

template <typename Options>
Options options_of(const std::string& json) {
  Options options;
  or_throw(forecast::set_options(&options, or_throw(parse_json(json, "options"))));
  return options;
}

std::span<const Series> all(const SeriesHandle& handle) { return handle.set.series; }

/// Train one model per series on a pool, longest first.
nb::tuple train_local(const SeriesHandle& series, const std::string& options_json,
                      const std::optional<Model>& warm, int threads, const nb::object& progress) {
  const auto options = options_of<forecast::TrainOptions>(options_json);
  static_cast<void>(or_throw(forecast::resolve(options, Scope::local)));
  const std::vector<Series>& all_series = series.set.series;
  std::vector<std::optional<Result<forecast::Trained>>> results(all_series.size());
  run_waiting(progress, [&](Waiting* waiting) {
    waiting->total = static_cast<int64_t>(all_series.size());
    std::vector<double> costs;
    for (const Series& one : all_series) {
      costs.push_back(static_cast<double>(one.length()));
    }
    base::Pool pool(threads);
    pool.for_each_by_cost(
        costs,
        [&](int64_t i) {
          forecast::TrainContext context;
          context.warm = warm ? &*warm : nullptr;
          context.stop = [waiting] { return waiting->stop.load(); };
          results[static_cast<size_t>(i)] =
              forecast::train_local(all_series[static_cast<size_t>(i)], options, context);
          ++waiting->done;
        },
        [waiting] { return waiting->stop.load(); });
  });
  std::vector<std::pair<std::string, Model>> models;
  std::vector<forecast::ItemError> errors = series.set.errors;
  std::vector<std::pair<std::string, std::string>> notes;
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string& id = all_series[i].id;
    Result<forecast::Trained>& result = *results[i];
    for (const std::string& note : all_series[i].notes) {
      notes.emplace_back(id, note);
    }
    // A series too short for a network of its own is forecast by the one that training was to start
    // from, else by a naive method, and says so.
    if (!result.ok() && result.error().code() == Errc::unsupported) {
      notes.emplace_back(id, result.error().message());
      models.emplace_back(id, warm ? *warm : forecast::fallback_model(all_series[i], options));
    } else if (!result.ok()) {
      errors.push_back({id, std::move(result).error()});
    } else {
      for (std::string& note : result->notes) {
        notes.emplace_back(id, std::move(note));
      }
      models.emplace_back(id, std::move(result->model));
    }
    if (!models.empty()) {
      models.back().second.columns = series.set.columns;
    }
  }
  return nb::make_tuple(std::move(models), failures_of(errors), std::move(notes));
}

nb::tuple train_global(const SeriesHandle& series, const std::string& options_json,
                       const std::optional<Model>& warm, int threads, const nb::object& progress) {
  const auto options = options_of<forecast::TrainOptions>(options_json);
  or_throw(forecast::need_series(series.set, "the table"));
  std::optional<Result<forecast::Trained>> result;
  run_waiting(progress, [&](Waiting* waiting) {
    forecast::TrainContext context;
    context.warm = warm ? &*warm : nullptr;
    context.threads = threads > 0 ? threads : base::usable_cores();
    context.progress = [waiting](const forecast::TrainProgress& at) {
      ++waiting->done;
      waiting->total = int64_t{at.members} * at.epochs;
      return true;
    };
    context.stop = [waiting] { return waiting->stop.load(); };
    result = forecast::train_global(all(series), options, context);
  });
  forecast::Trained trained = or_throw(*std::move(result));
  trained.model.columns = series.set.columns;
  std::vector<std::string> notes = series.set.notes;
  std::move(trained.notes.begin(), trained.notes.end(), std::back_inserter(notes));
  return nb::make_tuple(std::move(trained.model), failures_of(series.set.errors), std::move(notes));
}

/// Forecast with one model for all series, or with each item's own.
nb::tuple predict(const std::vector<std::pair<std::string, Model>>& models, bool is_local,
                  const SeriesHandle& series, const std::string& options_json, int threads,
                  const nb::object& progress) {
  const auto options = options_of<forecast::PredictOptions>(options_json);
  const std::vector<Series>& all_series = series.set.series;
  std::vector<forecast::Forecast> items;
  std::vector<forecast::ItemError> errors = series.set.errors;
  std::vector<std::optional<Result<forecast::Forecasts>>> results(all_series.size());
  std::map<std::string, const Model*> by_id;
  for (const auto& [id, model] : models) {
    by_id.emplace(id, &model);
  }
  run_waiting(progress, [&](Waiting* waiting) {
    waiting->total = static_cast<int64_t>(all_series.size());
    base::Pool pool(threads);
    pool.for_each(
        static_cast<int64_t>(all_series.size()),
        [&](int64_t i) {
          const Series& one = all_series[static_cast<size_t>(i)];
          const auto found = is_local ? by_id.find(one.id) : by_id.begin();
          if (found == by_id.end()) {
            results[static_cast<size_t>(i)] = Error{
                Errc::not_found, "forecast: item \"" + one.id + "\": there is no model of it"};
          } else {
            results[static_cast<size_t>(i)] = forecast::predict(*found->second, {&one, 1}, options);
          }
          ++waiting->done;
        },
        [waiting] { return waiting->stop.load(); });
  });
  for (size_t i = 0; i < results.size(); ++i) {
    Result<forecast::Forecasts>& result = *results[i];
    if (!result.ok() && result.error().code() != Errc::not_found) {
      throw Raised(std::move(result).error());
    }
    if (!result.ok()) {
      errors.push_back({all_series[i].id, std::move(result).error()});
      continue;
    }
    for (forecast::Forecast& item : result->items) {
      if (is_local) {
        forecast::mark_global(*by_id.at(item.id), &item);
      }
      items.push_back(std::move(item));
    }
    std::move(result->errors.begin(), result->errors.end(), std::back_inserter(errors));
  }
  nb::dict samples;
  for (forecast::Forecast& item : items) {
    if (item.samples.empty()) {
      continue;
    }
    auto* owned = new std::vector<float>(std::move(item.samples));
    const nb::capsule owner(owned,
                            [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
    const auto horizon = static_cast<size_t>(item.horizon);
    samples[item.id.c_str()] =
        nb::ndarray<nb::numpy, float>(owned->data(), {owned->size() / horizon, horizon}, owner);
  }
  return nb::make_tuple(rows_of(or_throw(jobs::forecast_batch(items, series.set.columns))),
                        std::move(samples), failures_of(errors));
}

/// `errors` are items that could not be read. Where nothing has a score this is an error, as the
/// commands' exit code is one.
nb::tuple scores_of(forecast::Comparison comparison, const SeriesHandle& series,
                    std::vector<forecast::ItemError> errors) {
  if (comparison.model.items().empty()) {
    comparison.errors.insert(comparison.errors.begin(), errors.begin(), errors.end());
    throw Raised(Error{Errc::mismatch, "forecast: " + jobs::unjudged_text(comparison)});
  }
  errors.insert(errors.end(), comparison.errors.begin(), comparison.errors.end());
  nb::dict totals;
  const forecast::Scoreboard& reference = comparison.naive2;
  totals["model"] = nb::cast(comparison.model.named_totals(reference));
  totals["seasonal_naive"] = nb::cast(comparison.seasonal_naive.named_totals(reference));
  totals["naive2"] = nb::cast(reference.named_totals(reference));
  return nb::make_tuple(
      totals, rows_of(jobs::item_scores(comparison, series.set.columns.integer_ids)),
      rows_of(jobs::step_scores(comparison.model)), failures_of(errors),
      forecast::group_notes(comparison.notes), comparison.model.constant_items(),
      comparison.model.unscaled_items(), comparison.judged_steps(), comparison.forecast_steps);
}

nb::tuple backtest(const SeriesHandle& series, bool is_local, const std::string& train_json,
                   const std::string& backtest_json, const std::string& predict_json, int threads,
                   const nb::object& progress) {
  const auto train = options_of<forecast::TrainOptions>(train_json);
  const auto options = options_of<forecast::BacktestOptions>(backtest_json);
  const auto predict_options = options_of<forecast::PredictOptions>(predict_json);
  const std::vector<Series>& all_series = series.set.series;
  std::vector<std::optional<Result<forecast::Comparison>>> results(is_local ? all_series.size()
                                                                            : 1);
  run_waiting(progress, [&](Waiting* waiting) {
    waiting->total = static_cast<int64_t>(results.size());
    forecast::TrainContext context;
    context.stop = [waiting] { return waiting->stop.load(); };
    context.threads = threads > 0 ? threads : base::usable_cores();
    base::Pool pool(threads);
    pool.for_each(
        static_cast<int64_t>(results.size()),
        [&](int64_t i) {
          const std::span<const Series> mine =
              is_local ? std::span(all_series).subspan(static_cast<size_t>(i), 1)
                       : std::span(all_series);
          results[static_cast<size_t>(i)] =
              forecast::backtest(mine, is_local ? Scope::local : Scope::global, train, options,
                                 predict_options, context);
          ++waiting->done;
        },
        [waiting] { return waiting->stop.load(); });
  });
  forecast::Comparison merged;
  for (auto& result : results) {
    merged.merge(or_throw(*std::move(result)));
  }
  return scores_of(merged, series, series.set.errors);
}

nb::tuple evaluate(const nb::object& forecasts, const SeriesHandle& training,
                   const SeriesHandle& actual, int season) {
  const std::unique_ptr<lake::BatchReader> reader = reader_of_object(forecasts);
  forecast::Comparison comparison;
  {
    const nb::gil_scoped_release release;
    const auto items = or_throw(
        jobs::forecasts_of(*reader, "forecasts", training.set.frequency, training.set.columns));
    forecast::SeriesSet came = actual.set;
    if (actual.without_start) {
      or_throw(jobs::continue_history(training.set, &came));
    }
    comparison = or_throw(jobs::judge(items, training.set, came, season));
  }
  return scores_of(comparison, training, {});
}

using TensorTuple = std::pair<std::string, nb::ndarray<nb::numpy, float>>;

std::vector<TensorTuple> tensors_of(const Model& model) {
  std::vector<TensorTuple> out;
  for (forecast::Tensor& tensor : forecast::to_data(model).tensors) {
    auto* owned = new std::vector<float>(std::move(tensor.data));
    const nb::capsule owner(owned,
                            [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
    const std::vector<size_t> shape(tensor.shape.begin(), tensor.shape.end());
    out.emplace_back(tensor.name, nb::ndarray<nb::numpy, float>(owned->data(), shape.size(),
                                                                shape.data(), owner));
  }
  return out;
}

using TensorInput = std::pair<std::string, nb::ndarray<const float, nb::c_contig, nb::device::cpu>>;

Model model_of(const std::string& header, const std::vector<TensorInput>& tensors) {
  forecast::ModelData data;
  data.header = or_throw(parse_json(header, "header"));
  for (const auto& [name, array] : tensors) {
    forecast::Tensor tensor;
    tensor.name = name;
    for (size_t i = 0; i < array.ndim(); ++i) {
      tensor.shape.push_back(static_cast<int64_t>(array.shape(i)));
    }
    tensor.data.assign(array.data(), array.data() + array.size());
    data.tensors.push_back(std::move(tensor));
  }
  return or_throw(forecast::from_data(data));
}

using OptionTuple = std::tuple<std::string, std::string, std::string, std::string, std::string,
                               std::vector<std::string>>;

std::vector<OptionTuple> options_list(const std::string& of) {
  const std::vector<forecast::OptionInfo> infos = of == "train" ? forecast::train_option_list()
                                                  : of == "predict"
                                                      ? forecast::predict_option_list()
                                                      : forecast::backtest_option_list();
  std::vector<OptionTuple> out;
  for (const forecast::OptionInfo& info : infos) {
    out.emplace_back(std::string(info.name), std::string(info.group), std::string(info.type),
                     info.default_text, std::string(info.help),
                     std::vector<std::string>(info.choices.begin(), info.choices.end()));
  }
  return out;
}

void bind_types(nb::module_& m) {
  nb::class_<TableRows>(m, "ForecastRows")
      .def("__len__", [](const TableRows& self) { return self.batch->rows(); })
      .def("stream",
           [](const TableRows& self) { return capsule_of_reader(lake::reader_of(*self.batch)); });
  nb::class_<SeriesHandle>(m, "ForecastSeries")
      .def("ids",
           [](const SeriesHandle& self) {
             std::vector<std::string> ids;
             for (const Series& one : self.set.series) {
               ids.push_back(one.id);
             }
             return ids;
           })
      .def("frequency", [](const SeriesHandle& self) { return self.set.frequency.name(); })
      .def("errors", [](const SeriesHandle& self) { return failures_of(self.set.errors); })
      .def("notes", [](const SeriesHandle& self) { return self.set.notes; });
  nb::class_<Model>(m, "ForecastModel")
      .def_static("from_parts", &model_of, "header"_a, "tensors"_a)
      .def("method", [](const Model& self) { return std::string(method_name(self.method)); })
      .def("members", [](const Model& self) { return self.members.size(); })
      .def("header", [](const Model& self) { return forecast::to_data(self).header.dump(0, true); })
      .def("tensors", &tensors_of)
      .def(
          "onnx",
          [](const Model& self, int member) {
            const forecast::OnnxFiles files = or_throw(forecast::to_onnx(self, member));
            return nb::make_tuple(nb::bytes(files.encoder.data(), files.encoder.size()),
                                  nb::bytes(files.decoder.data(), files.decoder.size()));
          },
          "member"_a);
}

}  // namespace

void bind_forecast(nb::module_& m) {
  bind_types(m);
  m.def("forecast_options", &options_list, "of"_a);
  m.def("forecast_load", &load_path, "spec"_a, "items"_a, "static_table"_a.none());
  m.def("forecast_series", &load_object, "table"_a, "spec"_a, "static_table"_a.none());
  m.def("forecast_horizon", &horizon_of, "spec"_a);
  m.def("forecast_check_static", &check_static, "spec"_a);
  m.def("forecast_actuals", &actuals_of, "spec"_a);
  m.def("forecast_train_local", &train_local, "series"_a, "options"_a, "warm"_a.none(), "threads"_a,
        "progress"_a.none());
  m.def("forecast_train_global", &train_global, "series"_a, "options"_a, "warm"_a.none(),
        "threads"_a, "progress"_a.none());
  m.def("forecast_predict", &predict, "models"_a, "is_local"_a, "series"_a, "options"_a,
        "threads"_a, "progress"_a.none());
  m.def("forecast_backtest", &backtest, "series"_a, "is_local"_a, "train"_a, "backtest"_a,
        "predict"_a, "threads"_a, "progress"_a.none());
  m.def("forecast_evaluate", &evaluate, "forecasts"_a, "training"_a, "actual"_a, "season"_a);
}

}  // namespace headrace::python
