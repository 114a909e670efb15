// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/log.h"
#include "headrace/flow/report.h"
#include "headrace/flow/run_state.h"
#include "headrace/forecast/frequency.h"
#include "headrace/jobs/actuals.h"
#include "headrace/jobs/evaluation.h"
#include "headrace/jobs/forecast_store.h"
#include "headrace/jobs/method_names.h"
#include "headrace/jobs/series_table.h"

namespace headrace::jobs {

namespace {

constexpr int64_t kHistorySteps = 336;  // of a plot: two weeks of hours

TableSpec spec_of(const Json* json) { return json == nullptr ? TableSpec() : table_spec_of(*json); }

using SeriesById = std::map<std::string, forecast::Series>;

/// What there is of a table; nothing of one that is not told or cannot be read any more.
forecast::SeriesSet series_of(const TableSpec& spec, Result<SeriesTable> table) {
  if (table.ok()) {
    return std::move(table->set);
  }
  if (!spec.url.empty()) {
    base::log_warning("report: plots lack values of " + spec.url + ": " + table.error().message());
  }
  return {};
}

SeriesById by_id(forecast::SeriesSet set) {
  SeriesById out;
  for (forecast::Series& series : set.series) {
    std::string id = series.id;
    out.emplace(std::move(id), std::move(series));
  }
  return out;
}

/// Stamp without a zone, as the report's plots want it.
std::string stamp_text(int64_t stamp_us) {
  std::string text = base::utc_text(base::Micros(stamp_us));
  text.pop_back();
  return text;
}

void set_steps(const forecast::Frequency& frequency, int64_t start_us, flow::ReportPlot* plot) {
  switch (frequency.unit) {
    case forecast::TimeUnit::month: plot->step_months = frequency.multiple; return;
    case forecast::TimeUnit::quarter: plot->step_months = 3 * frequency.multiple; return;
    case forecast::TimeUnit::year: plot->step_months = 12 * frequency.multiple; return;
    default: break;
  }
  plot->step_seconds = (forecast::add_steps(frequency, start_us, 1) - start_us) / 1000000;
}

std::optional<flow::ReportPlot> plot_of(const forecast::Forecast& forecast, const SeriesById& past,
                                        const SeriesById& future) {
  const auto has = [&](double level) {
    return std::find(forecast.levels.begin(), forecast.levels.end(), level) !=
           forecast.levels.end();
  };
  const auto values = [&](double level) {
    const auto span = forecast.quantile(level);
    return std::vector<double>(span.begin(), span.end());
  };
  if (!has(0.5)) {
    return std::nullopt;
  }
  flow::ReportPlot plot;
  plot.median = values(0.5);
  for (const auto& [percent, low, high] :
       {std::tuple{50, 0.25, 0.75}, std::tuple{80, 0.1, 0.9}, std::tuple{95, 0.025, 0.975}}) {
    if (has(low) && has(high)) {
      plot.bands.push_back({percent, values(low), values(high)});
    }
  }
  int64_t start_us = forecast.start_us;
  if (const auto series = past.find(forecast.id); series != past.end()) {
    const auto& target = series->second.target;
    const auto steps = std::min<int64_t>(kHistorySteps, series->second.length());
    plot.history.assign(target.end() - steps, target.end());
    start_us = forecast::add_steps(forecast.frequency, forecast.start_us, -steps);
  }
  if (const auto series = future.find(forecast.id); series != future.end()) {
    const auto& target = series->second.target;
    const auto offset =
        forecast::steps_between(forecast.frequency, series->second.start_us, forecast.start_us);
    for (int step = 0; offset && step < forecast.horizon; ++step) {
      const int64_t index = *offset + step;
      const bool there = index >= 0 && index < series->second.length();
      plot.actual.push_back(there ? target[static_cast<size_t>(index)] : NAN);
    }
  }
  plot.start = stamp_text(start_us);
  set_steps(forecast.frequency, start_us, &plot);
  return plot;
}

/// What the scores of a report were measured on; said beside each of them.
constexpr std::string_view kOnBacktest =
    "; on the windows at each series' end that were held out to choose by";

/// The scores by which items are compared. `on` follows each explanation; without it they are of
/// what came, and the naive methods are point forecasts.
void add_columns(std::string_view on, flow::ReportData* data) {
  const auto naive = [&](std::string_view candidate, const char* point) {
    return on.empty() ? std::string(point) : spoken_candidate(candidate);
  };
  const std::string seasonal = naive("seasonal_naive", "seasonal naive");
  const std::string naive2 = naive("naive2", "Naive2");
  const std::string levels = on.empty() ? ", at every level" : ", with the intervals of its errors";
  const auto help = [&](std::string_view text) { return fmt::format("{}{}", text, on); };
  data->columns = {
      {"mase", "MASE", help("mean absolute error in units of the in-sample seasonal error")},
      {"snaive_mase", "sNaive MASE", help("MASE of the seasonal naive forecast")},
      {"smape", "sMAPE", help("symmetric mean absolute percentage error, per cent")},
      {"mean_wql", "wQL", help("mean weighted quantile loss over the levels 0.1 to 0.9")},
      {"coverage_80", "Cover 80", help("share of values inside the 80 % interval")},
      {"train_seconds", "Train s", "seconds to train, choose and forecast"},
  };
  data->labels = {{"winner", "Winner", "what the backtest chose for this item"}};
  data->scores = {
      {"MASE",
       help("mean absolute scaled error per item; lower is better"),
       {{"mase", "headrace", "this run's forecasts"},
        {"snaive_mase", seasonal, "the last season repeated"},
        {"naive2_mase", naive2, "the benchmark of the M competitions"}}},
      {"Weighted quantile loss",
       help("mean over the levels 0.1 to 0.9 per item; lower is better"),
       {{"mean_wql", "headrace", "this run's forecasts"},
        {"snaive_mean_wql", seasonal, "the last season repeated" + levels},
        {"naive2_mean_wql", naive2, "the benchmark of the M competitions" + levels}}},
  };
}

/// How many items each method was chosen for.
void add_chosen(const Json& summary, flow::ReportData* data) {
  std::string chosen;
  if (const Json* winners = summary.find("winners"); winners != nullptr) {
    for (const auto& [name, count] : winners->members()) {
      chosen += fmt::format("{}{} {}", chosen.empty() ? "" : "; ", count.integer(),
                            spoken_candidate(name));
    }
  }
  if (!chosen.empty()) {
    data->facts.push_back({"chosen", std::move(chosen), "by backtest, per item"});
  }
}

void add_facts(const Json& summary, flow::ReportData* data) {
  const Json* model = summary.find("model");
  const Json* naive = summary.find("seasonal_naive");
  if (model == nullptr || naive == nullptr) {
    return;
  }
  const auto fact = [&](std::string_view name, const std::string& label, int digits) {
    data->facts.push_back(
        {label, fmt::format("{:.{}f}", model->get_number(name, NAN), digits),
         fmt::format("seasonal naive {:.{}f}", naive->get_number(name, NAN), digits)});
  };
  fact("mase", "mean MASE", 3);
  fact("median_mase", "median MASE", 3);
  fact("mean_wql", "mean wQL", 4);
  fact("smape", "sMAPE", 2);
  data->facts.push_back({"coverage of 80 %",
                         fmt::format("{:.1f} %", 100.0 * model->get_number("coverage_80", NAN)),
                         "share of values inside the interval"});
  add_chosen(summary, data);
}

/// Means over the items that have the score of both the run's own forecasts and seasonal naive.
void add_backtest_facts(const Json& summary, flow::ReportData* data) {
  const auto fact = [&](const std::string& name, const std::string& label, int digits) {
    double own = 0.0;
    double naive = 0.0;
    int count = 0;
    for (const flow::ReportItem& item : data->items) {
      const double both[] = {item.metrics.get_number(name, NAN),
                             item.metrics.get_number("snaive_" + name, NAN)};
      if (std::isfinite(both[0]) && std::isfinite(both[1])) {
        own += both[0];
        naive += both[1];
        ++count;
      }
    }
    if (count > 0) {
      data->facts.push_back(
          {label, fmt::format("{:.{}f}", own / count, digits),
           fmt::format("{} {:.{}f}", spoken_candidate("seasonal_naive"), naive / count, digits)});
    }
  };
  fact("mase", "mean MASE", 3);
  fact("mean_wql", "mean of the items' wQL", 4);
  fact("smape", "sMAPE", 2);
  data->facts.push_back(
      {"judged on", "backtest", std::string(kOnBacktest.substr(std::string_view("; on ").size()))});
  add_chosen(summary, data);
}

/// A method that no item has a score of is not shown.
void drop_absent_methods(flow::ReportData* data) {
  for (flow::ReportScore& score : data->scores) {
    std::erase_if(score.methods, [&](const flow::ReportColumn& method) {
      return std::ranges::none_of(data->items, [&](const flow::ReportItem& item) {
        return item.metrics.is_object() && item.metrics.find(method.name) != nullptr;
      });
    });
  }
  std::erase_if(data->scores, [](const auto& score) { return score.methods.empty(); });
}

/// The scores of what was chosen and of the naive methods, from the backtest.
void copy_backtest(const ItemForecast& item, Json* metrics) {
  const auto copy = [&](const std::string& candidate, const std::string& prefix) {
    if (const auto scores = item.scores.find(candidate); scores != item.scores.end()) {
      for (const auto& [name, value] : scores->second) {
        metrics->set(prefix + name, value);
      }
    }
  };
  copy(item.winner, "");
  copy("seasonal_naive", "snaive_");
  copy("naive2", "naive2_");
}

/// What is to be known of items, in one figure: each sentence under the number of them.
void add_notes(const Json& summary, flow::ReportData* data) {
  const Json* notes = summary.find("notes");
  if (notes == nullptr || notes->items().empty()) {
    return;
  }
  std::string all;
  for (const Json& note : notes->items()) {
    all += (all.empty() ? "" : "; ") + note.string();
  }
  data->facts.push_back({"notes", std::to_string(notes->items().size()), std::move(all)});
}

void copy_metrics(const Json& entry, Json* metrics) {
  const auto copy = [&](std::string_view from, std::string_view prefix) {
    const Json* source = entry.find(from);
    if (source == nullptr) {
      return;
    }
    for (const auto& [name, value] : source->members()) {
      metrics->set(std::string(prefix) + name, value);
    }
  };
  copy("metrics", "");
  copy("seasonal_naive", "snaive_");
  copy("naive2", "naive2_");
}

/// Items ran longest first; a reader finds them in the order of the table.
void sort_items(const forecast::SeriesSet& history, std::vector<flow::ReportItem>* items) {
  std::map<std::string_view, size_t> places;
  for (const forecast::Series& series : history.series) {
    places.emplace(series.id, places.size());
  }
  std::ranges::stable_sort(*items, {}, [&](const flow::ReportItem& item) {
    const auto found = places.find(item.key);
    return found == places.end() ? places.size() : found->second;
  });
}

void add_forecasts(const std::map<std::string, ItemForecast>& forecasts, const Json& evaluation,
                   bool on_backtest, flow::ReportData* data) {
  const TableSpec table = spec_of(evaluation.find("table"));
  const TableSpec actuals = spec_of(evaluation.find("actuals"));
  const Error none{Errc::not_found, "no table"};
  forecast::SeriesSet history =
      series_of(table, table.url.empty() ? Result<SeriesTable>(none) : load_series(table));
  const SeriesById future = by_id(series_of(
      actuals, actuals.url.empty() ? Result<SeriesTable>(none) : load_actuals(actuals, history)));
  sort_items(history, &data->items);
  const SeriesById past = by_id(std::move(history));
  const Json* items = evaluation.find("items");
  for (flow::ReportItem& item : data->items) {
    const auto known = forecasts.find(item.key);
    if (known == forecasts.end()) {
      continue;
    }
    item.metrics = Json::object({{"train_seconds", known->second.seconds}});
    item.labels = Json::object({{"winner", spoken_candidate(known->second.winner)}});
    if (on_backtest) {
      copy_backtest(known->second, &item.metrics);
    } else if (const Json* entry = items == nullptr ? nullptr : items->find(item.key)) {
      copy_metrics(*entry, &item.metrics);
    }
    item.plot = plot_of(known->second.forecast, past, future);
  }
}

bool made_global(const flow::ItemState& item) {
  return item.outputs.is_object() &&
         std::ranges::any_of(item.outputs.members(), [](const auto& output) {
           const Json* training = output.second.find("training");
           return training != nullptr && training->get_string("scope") == "global";
         });
}

/// Items that trained a model of all series are numbered by the pipeline: "0" says nothing.
void name_global_models(const flow::RunState& run, flow::ReportData* data) {
  for (const flow::ActivityState& activity : run.activities) {
    for (const flow::ItemState& item : activity.items) {
      for (flow::ReportItem& shown : data->items) {
        if (shown.activity == activity.path && shown.key == item.key && made_global(item)) {
          shown.key = "global model " + item.key;
        }
      }
    }
  }
}

}  // namespace

Result<base::Path> write_run_report(const base::Path& run_folder, base::Path path) {
  HR_TRY(const flow::RunState run, flow::load_run(run_folder));
  const base::Micros now = base::system_clock().wall();
  flow::ReportData data = flow::report_data(run, now);
  data.written = now;
  HR_TRY(const auto forecasts, read_forecasts(run_folder));
  if (!forecasts.empty()) {
    auto evaluation = read_evaluation(run_folder);
    if (!evaluation.ok() && evaluation.error().code() != Errc::not_found) {
      return std::move(evaluation).error();
    }
    const Json document = evaluation.value_or(Json::object());
    const Json none = Json::object();
    const Json* found = document.find("summary");
    const Json& summary = found == nullptr ? none : *found;
    const bool on_backtest = summary.get_string("judged_on") != "actuals";
    add_columns(on_backtest ? kOnBacktest : "", &data);
    add_forecasts(forecasts, document, on_backtest, &data);
    drop_absent_methods(&data);
    name_global_models(run, &data);
    if (on_backtest) {
      add_backtest_facts(summary, &data);
    } else {
      add_facts(summary, &data);
    }
    add_notes(summary, &data);
  }
  HR_TRY(const std::string page, flow::render_report(data));
  if (path.empty()) {
    path = run_folder / "report.html";
  }
  HR_TRY(base::replace_file(path, page));
  return path;
}

}  // namespace headrace::jobs
