// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "headrace/base/log.h"
#include "headrace/jobs/forecast_store.h"
#include "headrace/jobs/forecast_table.h"
#include "headrace/jobs/score_table.h"

namespace headrace::jobs {

namespace {

constexpr std::string_view kFileName = "evaluation.json";

/// Items with the metrics of the model and of the naive methods, by id.
Json item_metrics(const forecast::Comparison& comparison,
                  const std::map<std::string, ItemForecast>& forecasts) {
  Json items = Json::object();
  const auto& model = comparison.model.items();
  for (const auto& item : model) {
    Json entry = Json::object({{"metrics", metrics_json(item.metrics.named())}});
    const auto known = forecasts.find(item.id);
    if (known != forecasts.end()) {
      entry.set("winner", known->second.winner);
      entry.set("model", known->second.model);
    }
    items.members().emplace_back(item.id, std::move(entry));
  }
  const auto add = [&](const forecast::Scoreboard& board, std::string_view name) {
    // The boards hold the same items in the same order.
    for (size_t i = 0; i < std::min(board.items().size(), model.size()); ++i) {
      items.members()[i].second.set(name, metrics_json(board.items()[i].metrics.named()));
    }
  };
  add(comparison.seasonal_naive, "seasonal_naive");
  add(comparison.naive2, "naive2");
  return items;
}

Json winners_of(const std::map<std::string, ItemForecast>& forecasts) {
  std::map<std::string, int64_t> counts;
  for (const auto& [id, item] : forecasts) {
    ++counts[item.winner];
  }
  Json out = Json::object();
  for (const auto& [name, count] : counts) {
    out.set(name, count);
  }
  return out;
}

std::string summary_text(const Json& summary) {
  std::string text = fmt::format("{:<16} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}\n", "method", "MASE",
                                 "median", "sMAPE", "OWA", "mean_wQL", "cover 80");
  const auto line = [&](std::string_view label, const Json& m) {
    text += fmt::format("{:<16} {:>8.3f} {:>8.3f} {:>8.2f} {:>8.3f} {:>9.4f} {:>8.1f}%\n", label,
                        m.get_number("mase", NAN), m.get_number("median_mase", NAN),
                        m.get_number("smape", NAN), m.get_number("owa", NAN),
                        m.get_number("mean_wql", NAN), 100.0 * m.get_number("coverage_80", NAN));
  };
  line("headrace", summary.at("model"));
  line("seasonal naive", summary.at("seasonal_naive"));
  line("Naive2", summary.at("naive2"));
  text += "chosen:";
  for (const auto& [name, count] : summary.at("winners").members()) {
    text += fmt::format(" {} {}", count.integer(), name);
  }
  return text;
}

Json summary_of(const forecast::Comparison& comparison,
                const std::map<std::string, ItemForecast>& forecasts) {
  Json summary = Json::object();
  summary.set("items", static_cast<int64_t>(comparison.model.items().size()));
  summary.set("judged_on", "actuals");
  summary.set("winners", winners_of(forecasts));
  const auto board = [&](const forecast::Scoreboard& scores) {
    return metrics_json(scores.named_totals(comparison.naive2));
  };
  summary.set("model", board(comparison.model));
  summary.set("seasonal_naive", board(comparison.seasonal_naive));
  summary.set("naive2", board(comparison.naive2));
  Json constant = Json::array();
  for (const std::string& id : comparison.model.constant_items()) {
    constant.push_back(id);
  }
  summary.set("constant_items", std::move(constant));
  summary.set("text", summary_text(summary));
  return summary;
}

/// Without actual values: the means of the backtest scores, by candidate and metric. Each item
/// weighs the same, so that its mean_wql becomes "mean_item_wql".
Json backtest_summary(const std::map<std::string, ItemForecast>& forecasts) {
  std::map<std::string, std::map<std::string, std::pair<double, int64_t>>> sums;
  for (const auto& [id, item] : forecasts) {
    for (const auto& [candidate, metrics] : item.scores) {
      for (const auto& [metric, value] : metrics) {
        const std::string name = metric == "mean_wql" ? "mean_item_wql" : metric;
        if (std::isfinite(value)) {
          auto& [sum, count] = sums[candidate][name];
          sum += value;
          ++count;
        }
      }
    }
  }
  Json summary = Json::object({{"items", static_cast<int64_t>(forecasts.size())},
                               {"judged_on", "backtest"},
                               {"winners", winners_of(forecasts)}});
  std::string text = "mean over items of the backtest scores\n";
  for (const auto& [candidate, metrics] : sums) {
    Json out = Json::object();
    for (const auto& [name, pair] : metrics) {
      out.set(name, pair.first / static_cast<double>(pair.second));
    }
    text += fmt::format("{:<16} MASE {:.3f}  wQL {:.4f}\n", candidate, out.get_number("mase", NAN),
                        out.get_number("mean_item_wql", NAN));
    summary.set(candidate, std::move(out));
  }
  summary.set("text", text);
  return summary;
}

/// The season that all models were told; 0, by frequency, when they differ.
int common_season(const std::map<std::string, ItemForecast>& forecasts) {
  const int first = forecasts.begin()->second.season;
  const bool same = std::all_of(forecasts.begin(), forecasts.end(),
                                [&](const auto& one) { return one.second.season == first; });
  return same ? first : 0;
}

}  // namespace

Result<forecast::Comparison> judge(std::span<const forecast::Forecast> forecasts,
                                   const forecast::SeriesSet& history,
                                   const forecast::SeriesSet& actuals, int season) {
  HR_TRY(auto comparison, forecast::evaluate(forecasts, history.series, actuals.series, season));
  for (forecast::ItemError& absent : comparison.errors) {
    for (const auto& [table, name] :
         {std::pair(&history, "history"), std::pair(&actuals, "actuals")}) {
      const auto& causes = table->errors;
      const auto cause = std::find_if(causes.begin(), causes.end(),
                                      [&](const auto& one) { return one.item == absent.item; });
      if (cause != causes.end()) {
        absent.error = cause->error;
        absent.error.add_context(name);
        break;
      }
    }
  }
  return comparison;
}

Result<Json> evaluate_run(const base::Path& run_folder, const TableSpec& table,
                          const TableSpec& actuals) {
  HR_TRY(const auto stored, read_forecasts(run_folder));
  if (stored.empty()) {
    return Error{Errc::not_found,
                 "forecast: " + run_folder.string() +
                     " holds no forecasts: no local model was trained in this run; the errors of "
                     "its items: headrace flow status RUN --items"};
  }
  std::vector<forecast::Forecast> forecasts;
  forecasts.reserve(stored.size());
  for (const auto& [id, item] : stored) {
    forecasts.push_back(item.forecast);
  }
  const forecast::ColumnNames& names = stored.begin()->second.columns;
  HR_TRY(write_forecasts(run_folder / "forecasts.parquet", forecasts, names));
  HR_TRY(write_forecasts(run_folder / "forecasts.csv", forecasts, names));

  Json document = Json::object({{"table", to_json(table)}, {"actuals", to_json(actuals)}});
  if (actuals.url.empty()) {
    document.set("summary", backtest_summary(stored));
    document.set("items", Json::object());
  } else {
    HR_TRY(const SeriesTable history, load_series(table));
    TableSpec came = actuals;
    HR_TRY(came.url, actuals_url(actuals.url, actuals.metadata), "actuals");
    HR_TRY(const SeriesTable future, load_series(came), "actuals");
    HR_TRY(const auto comparison, judge(forecasts, history.set, future.set, common_season(stored)));
    for (const forecast::ItemError& bad : comparison.errors) {
      base::log_warning("not judged: " + bad.error.message());
    }
    document.set("items", item_metrics(comparison, stored));
    document.set("summary", summary_of(comparison, stored));
  }
  HR_TRY(base::replace_file(run_folder / kFileName, document.dump(1)));
  return document.at("summary");
}

Result<Json> read_evaluation(const base::Path& run_folder) {
  const base::Path path = run_folder / kFileName;
  HR_TRY(const std::string text, base::read_file(path));
  return parse_json(text, path.string());
}

}  // namespace headrace::jobs
