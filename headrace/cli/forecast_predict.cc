// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/pool.h"
#include "headrace/base/thread.h"
#include "headrace/cli/forecast.h"
#include "headrace/cli/forecast_options.h"
#include "headrace/cli/terminal.h"
#include "headrace/forecast/backtest.h"
#include "headrace/forecast/plot.h"
#include "headrace/jobs/actuals.h"
#include "headrace/jobs/evaluation.h"
#include "headrace/jobs/forecast_table.h"
#include "headrace/jobs/predict_many.h"
#include "headrace/jobs/score_table.h"

namespace headrace::cli {

namespace {

/// The series to forecast: those of --item, else all of the table. A model that was trained on one
/// item alone forecasts that one, unless it is told otherwise.
Result<jobs::SeriesTable> load_items(const Arguments& arguments, const jobs::ModelFacts& model,
                                     const jobs::TableSpec& spec) {
  const std::vector<std::string> items = arguments.texts("item");
  if (!items.empty() && arguments.flag("all-items")) {
    return Error{Errc::invalid_argument, "--item and --all-items exclude each other"};
  }
  if (model.item.empty() || !items.empty() || arguments.flag("all-items")) {
    return jobs::load_series(spec, items);
  }
  auto table = jobs::load_series(spec, {model.item});
  const std::string whose =
      fmt::format("{} was trained on item \"{}\" alone", model.reference, model.item);
  if (!table.ok()) {
    return std::move(table).error().add_note(
        whose + "; --item ITEM or --all-items forecast others with it");
  }
  print_lines({whose + " and forecasts that one; --all-items forecasts each item with it"});
  return table;
}

/// Of `--model`, where one is named.
Result<std::optional<jobs::ModelFacts>> named_model(const Arguments& arguments) {
  if (!arguments.has("model")) {
    return std::optional<jobs::ModelFacts>();
  }
  HR_TRY(const base::Path folder, registry::registry_path(arguments.text("registry")));
  HR_TRY(const auto registry,
         registry::Registry::open(folder, {.create = false, .read_only = true}));
  HR_TRY(auto model, jobs::facts_of_models(registry, arguments.text("model")));
  return std::optional(std::move(model));
}

/// How a table is read beside a file of forecasts: where no columns are told, by those of the model
/// or of that file.
Result<jobs::TableSpec> spec_beside(const Arguments& arguments,
                                    const std::optional<jobs::ModelFacts>& model) {
  HR_TRY(auto spec, table_spec(arguments));
  if (model) {
    spec.learned = model->columns;
  }
  HR_TRY(const auto names,
         jobs::forecast_columns(arguments.text("forecasts"), {spec.id, spec.time, ""}));
  if (spec.learned.empty()) {
    spec.learned = names;
  }
  spec.url = arguments.text("history");
  return spec;
}

/// How the table of what came is read: as the history, but that a start is its own.
jobs::TableSpec spec_of_actuals(const Arguments& arguments, jobs::TableSpec spec) {
  spec.url = arguments.text("actuals");
  spec.start = arguments.text("actuals-start");
  spec.learned.start.clear();
  return spec;
}

/// Of a wide table, when its rows were taken to begin, where nobody told it here.
void tell_start(const jobs::SeriesTable& table, const jobs::TableSpec& spec) {
  const std::string& start = table.set.columns.start;
  if (start.empty() || !spec.start.empty()) {
    return;
  }
  const std::string like = table.without_start ? ", since nothing tells their start"
                                               : ", as those that the model was trained on";
  print_lines(
      {fmt::format("the rows of {} are taken to begin at {}{}; say --start if they begin "
                   "at another stamp",
                   spec.url, start, like)});
}

Result<int> predict(const Arguments& arguments) {
  const std::string out = arguments.text("out");
  HR_TRY(jobs::check_ending(out, "forecasts"));
  HR_TRY(check_output(out));
  HR_TRY(auto spec, table_spec(arguments));
  forecast::PredictOptions options;
  const auto infos = forecast::predict_option_list();
  HR_TRY(const Json given, given_options(arguments, infos));
  HR_TRY(forecast::set_options(&options, given));
  HR_TRY(const base::Path folder, registry::registry_path(arguments.text("registry")));
  HR_TRY(const auto registry,
         registry::Registry::open(folder, {.create = false, .read_only = true}));
  HR_TRY(const auto model, jobs::facts_of_models(registry, arguments.text("model")));
  follow_model(model, &spec);
  HR_TRY(auto table, load_items(arguments, model, spec));
  print_lines(table.set.notes);
  tell_start(table, spec);

  install_interrupt_handler();
  base::Pool pool;
  Progress progress("forecast", static_cast<int64_t>(table.set.series.size()));
  jobs::PredictManyContext context;
  context.pool = &pool;
  context.stop = interrupted;
  base::Mutex progress_mu;  // Progress is for one thread at a time
  context.progress = [&](int64_t done, int64_t failed) {
    const base::MutexLock lock(progress_mu);
    progress.update(done, failed, pool.threads());
  };
  // The version that the table was read for, though an alias may lead elsewhere by now.
  const std::string name = model.shared ? model.reference : arguments.text("model");
  auto forecasts = jobs::predict_many(registry, name, table.set.series, options, context);
  progress.finish();
  if (!forecasts.ok()) {
    return std::move(forecasts).error();
  }
  std::vector<forecast::ItemError> errors = std::move(table.set.errors);
  std::move(forecasts->errors.begin(), forecasts->errors.end(), std::back_inserter(errors));
  if (forecasts->items.empty() && !errors.empty()) {
    Error first = std::move(errors.front().error);
    if (errors.size() > 1) {
      first.add_note(fmt::format("{} more items failed", errors.size() - 1));
    }
    return std::move(first.add_note(out + " was not written"));
  }
  HR_TRY(jobs::write_forecasts(out, forecasts->items, table.set.columns));
  if (arguments.flag("json")) {
    fmt::print("{}\n", Json::object({{"out", out},
                                     {"items", static_cast<int64_t>(forecasts->items.size())},
                                     {"errors", errors_json(errors)}})
                           .dump());
  } else {
    print_errors(errors);
    say(stdout, "wrote {} items to {}\n", forecasts->items.size(), out);
  }
  return errors.empty() ? kExitOk : kExitFailed;
}

std::string metric_text(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

Json board_json(const forecast::Scoreboard& board, const std::map<std::string, double>& totals) {
  Json out = jobs::metrics_json(totals);
  Json steps = Json::array();
  for (int k = 0; k < static_cast<int>(board.steps().size()); ++k) {
    Json step = jobs::metrics_json(board.step(k).named());
    step.set("step", int64_t{k} + 1);
    steps.push_back(std::move(step));
  }
  out.set("per_step", std::move(steps));
  return out;
}

/// What the forecasts were made by; "model" when not by the network alone, "forecast" when their
/// table does not say it.
std::string model_label(const forecast::Scoreboard& board) {
  for (const std::string_view label :
       {forecast::method_name(forecast::Method::deepar), std::string_view("forecast")}) {
    if (std::ranges::all_of(board.items(),
                            [&](const auto& item) { return item.method == label; })) {
      return std::string(label);
    }
  }
  return "model";
}

/// A row per step ahead: the model, and what MASE the naive methods have there.
std::string steps_text(const forecast::Comparison& comparison) {
  TextTable table(
      {"step", "MASE", "sMAPE", "mean_wQL", "cover 80", "MASE seasonal_naive", "MASE naive2"});
  for (int k = 0; k < static_cast<int>(comparison.model.steps().size()); ++k) {
    const forecast::Metrics model = comparison.model.step(k);
    table.add({std::to_string(k + 1), metric_text(model.mase, 3), metric_text(model.smape, 2),
               metric_text(model.mean_wql, 4), metric_text(100.0 * model.coverage_80, 1),
               metric_text(comparison.seasonal_naive.step(k).mase, 3),
               metric_text(comparison.naive2.step(k).mase, 3)});
  }
  return table.text();
}

/// `--per-item`, looked at before the work begins.
Result<void> check_per_item(const Arguments& arguments) {
  const std::string path = arguments.text("per-item");
  if (path.empty()) {
    return {};
  }
  HR_TRY(jobs::check_ending(path, "scores"));
  return check_output(path);
}

/// `season` is that of MASE and of the naive methods.
void print_comparison(const forecast::Comparison& comparison, int season,
                      const Arguments& arguments) {
  std::vector<std::string> head = {"method", "MASE",     "median",  "sMAPE",
                                   "OWA",    "mean_wQL", "cover 80"};
  const bool with_paths = std::isfinite(comparison.model.total().crps);
  if (with_paths) {
    head.emplace_back("CRPS");  // of forecasts that keep their paths
  }
  TextTable table(head);
  Json document = Json::object(
      {{"items", static_cast<int64_t>(comparison.model.items().size())}, {"season", season}});
  const auto add = [&](const std::string& name, const forecast::Scoreboard& board) {
    const auto totals = board.named_totals(comparison.naive2);
    const auto text = [&](const char* metric, int digits, double unit = 1.0) {
      const auto found = totals.find(metric);
      return metric_text(found == totals.end() ? NAN : unit * found->second, digits);
    };
    std::vector<std::string> row = {
        name,           text("mase", 3),     text("median_mase", 3),       text("smape", 2),
        text("owa", 3), text("mean_wql", 4), text("coverage_80", 1, 100.0)};
    if (with_paths) {
      const auto crps = totals.find("crps");
      row.push_back(crps == totals.end() ? "-" : fmt::format("{:.4g}", crps->second));
    }
    table.add(std::move(row));
    document.set(name, board_json(board, totals));
  };
  add(model_label(comparison.model), comparison.model);
  add("seasonal_naive", comparison.seasonal_naive);
  add("naive2", comparison.naive2);
  const auto names = [](const std::vector<std::string>& items) {
    return Json(Json::Array(items.begin(), items.end()));
  };
  document.set("constant_items", names(comparison.model.constant_items()));
  document.set("unscaled_items", names(comparison.model.unscaled_items()));
  document.set("notes", names(forecast::group_notes(comparison.notes)));
  document.set("errors", errors_json(comparison.errors));
  if (arguments.flag("json")) {
    fmt::print("{}\n", document.dump());
    return;
  }
  print_lines(forecast::group_notes(comparison.notes));
  print_errors(comparison.errors);
  fmt::print("{} items, season {}\n{}", comparison.model.items().size(), season, table.text());
  for (const std::string& items : jobs::without_mase(comparison.model)) {
    say(stdout, "{}\n", items);
  }
  if (arguments.flag("per-step")) {
    fmt::print("\n{}", steps_text(comparison));
  }
}

/// Print the comparison, then write `--per-item`: a file that cannot be written costs no scores.
/// `columns` are those of the table of the items.
int tell_comparison(const forecast::Comparison& comparison, int season,
                    const forecast::ColumnNames& columns, const Arguments& arguments) {
  const bool none = comparison.model.items().empty();
  if (none) {
    fmt::print(stderr, "headrace: {}\n", printable(jobs::unjudged_text(comparison), true));
  }
  if (none && !arguments.flag("json")) {
    print_errors(comparison.errors);
    return kExitFailed;
  }
  print_comparison(comparison, season, arguments);
  if (none) {
    return kExitFailed;
  }
  std::fflush(stdout);
  if (const std::string per_item = arguments.text("per-item"); !per_item.empty()) {
    const auto written = jobs::write_item_scores(per_item, comparison, columns.integer_ids);
    if (!written.ok()) {
      return report_error(written.error(), false);  // on stdout --json has its one object already
    }
    if (!arguments.flag("json")) {
      say(stdout, "wrote {}\n", per_item);
    }
  }
  return comparison.errors.empty() ? kExitOk : kExitFailed;
}

Result<int> evaluate(const Arguments& arguments) {
  HR_TRY(check_per_item(arguments));
  HR_TRY(const auto model, named_model(arguments));
  HR_TRY(auto spec, spec_beside(arguments, model));
  HR_TRY(const auto history, jobs::load_series(spec), "history");
  const forecast::Frequency& frequency = history.set.frequency;
  HR_TRY(const auto forecasts,
         jobs::read_forecast_table(arguments.text("forecasts"), frequency, history.set.columns));
  HR_TRY(const auto actuals, jobs::load_actuals(spec_of_actuals(arguments, spec), history.set));
  auto season = static_cast<int>(arguments.integer("season").value_or(0));
  if (season == 0) {
    season = model ? model->spec.season : forecast::season_length(frequency);
  }
  HR_TRY(const auto comparison, jobs::judge(forecasts, history.set, actuals.set, season));
  return tell_comparison(comparison, season, history.set.columns, arguments);
}

Result<int> backtest(const Arguments& arguments) {
  HR_TRY(check_per_item(arguments));
  HR_TRY(auto spec, table_spec(arguments));
  forecast::TrainOptions train;
  forecast::BacktestOptions options;
  const auto train_infos = forecast::train_option_list();
  const auto backtest_infos = forecast::backtest_option_list();
  HR_TRY(Json given_train, given_options(arguments, train_infos));
  HR_TRY(follow_metadata(&spec, &given_train));
  HR_TRY(forecast::set_options(&train, given_train));
  HR_TRY(const Json given, given_options(arguments, backtest_infos));
  HR_TRY(forecast::set_options(&options, given));
  forecast::PredictOptions predict;
  HR_TRY(const Json given_predict, given_options(arguments, forecast_infos()));
  HR_TRY(forecast::set_options(&predict, given_predict));
  HR_TRY(name_covariates(train, &spec));
  HR_TRY(auto table, jobs::load_series(spec, arguments.texts("item")));
  print_lines(table.set.notes);
  HR_TRY(forecast::need_series(table.set, spec.url));

  install_interrupt_handler();
  const auto& series = table.set.series;
  const bool global = arguments.flag("global");
  forecast::TrainContext context;
  context.stop = interrupted;
  forecast::Comparison total;
  if (global) {
    context.threads = base::usable_cores();
    HR_TRY(total,
           forecast::backtest(series, forecast::Scope::global, train, options, predict, context));
  } else {
    std::vector<Result<forecast::Comparison>> parts(
        series.size(), Error{Errc::cancelled, "forecast: the backtest was stopped"});
    std::vector<double> costs;
    for (const forecast::Series& one : series) {
      costs.push_back(static_cast<double>(one.length()));
    }
    base::Pool pool;
    Progress progress("backtest", static_cast<int64_t>(series.size()));
    base::Mutex progress_mu;  // Progress is for one thread at a time
    int64_t done = 0;
    pool.for_each_by_cost(
        costs,
        [&](int64_t i) {
          const auto index = static_cast<size_t>(i);
          parts[index] = forecast::backtest(std::span(&series[index], 1), forecast::Scope::local,
                                            train, options, predict, context);
          const base::MutexLock lock(progress_mu);
          progress.update(++done, 0, pool.threads());
        },
        interrupted);
    progress.finish();
    for (Result<forecast::Comparison>& part : parts) {
      HR_TRY(const auto one, std::move(part));
      total.merge(one);
    }
  }
  for (forecast::ItemError& bad : table.set.errors) {
    total.errors.push_back(std::move(bad));
  }
  const int season = train.season > 0 ? train.season : forecast::season_length(table.set.frequency);
  return tell_comparison(total, season, table.set.columns, arguments);
}

const forecast::Series* find_series(const std::vector<forecast::Series>& all,
                                    const std::string& id) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& series) { return series.id == id; });
  return found == all.end() ? nullptr : &*found;
}

Result<std::vector<double>> actual_values(const jobs::TableSpec& spec,
                                          const forecast::SeriesSet& history,
                                          const forecast::Forecast& forecast) {
  std::vector<double> values;
  if (spec.url.empty()) {
    return values;
  }
  HR_TRY(const auto table, jobs::load_actuals(spec, history, {forecast.id}));
  if (const forecast::Series* series = find_series(table.set.series, forecast.id)) {
    const auto offset =
        forecast::steps_between(series->frequency, series->start_us, forecast.start_us);
    for (int step = 0; offset && step < forecast.horizon; ++step) {
      const int64_t index = *offset + step;
      const bool there = index >= 0 && index < series->length();
      values.push_back(there ? series->target[static_cast<size_t>(index)] : NAN);
    }
  }
  return values;
}

Result<void> first_error(const std::vector<forecast::ItemError>& errors) {
  return errors.empty() ? Result<void>() : errors.front().error;
}

/// Which bands were drawn, and what the others would have needed.
void tell_plot(const forecast::PlotData& data, const Arguments& arguments) {
  const std::string out = arguments.text("out");
  Json drawn = Json::array();
  std::vector<std::string> there;
  for (const forecast::PlotBand& band : data.bands) {
    drawn.push_back(band.percent);
    there.push_back(fmt::format("{:g}", band.percent));
  }
  std::vector<std::string> absent;
  std::vector<std::string> levels;
  for (const int percent : forecast::kPlotPercents) {
    if (std::ranges::find(there, std::to_string(percent)) == there.end()) {
      absent.push_back(std::to_string(percent));
      levels.push_back(
          fmt::format("{0:g}, {1:g}", (100 - percent) / 200.0, (100 + percent) / 200.0));
    }
  }
  if (!absent.empty()) {
    say(stderr, "{} of {} % need the quantiles {}, which {} lacks\n",
        absent.size() > 1 ? "bands" : "a band", fmt::join(absent, " and "), fmt::join(levels, ", "),
        arguments.text("forecasts"));
  }
  if (arguments.flag("json")) {
    fmt::print(
        "{}\n",
        Json::object({{"item", data.title}, {"out", out}, {"bands", std::move(drawn)}}).dump());
    return;
  }
  say(stdout, "wrote {}: median{}\n", out,
      there.empty() ? "" : fmt::format(", bands of {} %", fmt::join(there, ", ")));
}

Result<void> check_svg(const base::Path& path) {
  HR_TRY(check_output(path));
  return path.extension() == ".svg"
             ? Result<void>()
             : Error{Errc::invalid_argument,
                     path.string() + ": plots are written as SVG; end its name in .svg"};
}

Result<int> plot(const Arguments& arguments) {
  HR_TRY(check_svg(arguments.text("out")));
  HR_TRY(const auto model, named_model(arguments));
  HR_TRY(auto spec, spec_beside(arguments, model));
  const std::string item = arguments.text("item");
  HR_TRY(const auto table, jobs::load_series(spec, {item}), "history");
  const forecast::Series* series = find_series(table.set.series, item);
  if (series == nullptr) {
    HR_TRY(first_error(table.set.errors));
    return Error{Errc::not_found, "forecast: " + spec.url + " has no item \"" + item + "\""};
  }
  HR_TRY(const auto forecasts, jobs::read_forecast_table(arguments.text("forecasts"),
                                                         series->frequency, table.set.columns));
  const auto forecast = std::find_if(forecasts.begin(), forecasts.end(),
                                     [&](const auto& one) { return one.id == item; });
  if (forecast == forecasts.end()) {
    return Error{Errc::not_found,
                 "forecast: " + arguments.text("forecasts") + " has no item \"" + item + "\""};
  }
  HR_TRY(auto actual,
         actual_values(spec_of_actuals(arguments, std::move(spec)), table.set, *forecast));
  HR_TRY(const auto data, forecast::plot_data(*series, *forecast, 0, std::move(actual)));
  HR_TRY(const std::string svg, forecast::forecast_svg(data));
  HR_TRY(base::replace_file(arguments.text("out"), svg));
  tell_plot(data, arguments);
  return kExitOk;
}

int finish(const Result<int>& result, const Arguments& arguments) {
  if (result.ok()) {
    return *result;
  }
  return interrupted() && result.error().code() == Errc::cancelled
             ? kExitInterrupted
             : report_error(result.error(), arguments.flag("json"));
}

}  // namespace

int forecast_predict(const Arguments& arguments) { return finish(predict(arguments), arguments); }
int forecast_backtest(const Arguments& arguments) { return finish(backtest(arguments), arguments); }
int forecast_evaluate(const Arguments& arguments) { return finish(evaluate(arguments), arguments); }
int forecast_plot(const Arguments& arguments) { return finish(plot(arguments), arguments); }

}  // namespace headrace::cli
