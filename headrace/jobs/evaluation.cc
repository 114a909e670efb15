// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "headrace/base/log.h"
#include "headrace/flow/run_list.h"
#include "headrace/jobs/actuals.h"
#include "headrace/jobs/forecast_store.h"
#include "headrace/jobs/forecast_table.h"
#include "headrace/jobs/method_names.h"
#include "headrace/jobs/score_table.h"

namespace headrace::jobs {

namespace {

constexpr std::string_view kFileName = "evaluation.json";
constexpr std::string_view kAsChosen = "as_chosen";  // in the place of a candidate

using Forecasts = std::map<std::string, ItemForecast>;  // by item

/// Items with the metrics of the model and of the naive methods, by id.
Json item_metrics(const forecast::Comparison& comparison, const Forecasts& forecasts) {
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

Json winners_of(const Forecasts& forecasts) {
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

/// "chosen: 3 local, 1 global+naive".
std::string chosen_text(const Json& summary) { return "chosen: " + winners_text(summary) + "\n"; }

/// The season that all models were told; 0, by frequency, when they differ.
int common_season(const Forecasts& forecasts) {
  const int first = forecasts.begin()->second.season;
  const bool same = std::all_of(forecasts.begin(), forecasts.end(),
                                [&](const auto& one) { return one.second.season == first; });
  return same ? first : 0;
}

/// What was settled for all items.
std::string settled_text(const Forecasts& forecasts) {
  const forecast::Forecast& one = forecasts.begin()->second.forecast;
  const int season = common_season(forecasts);
  return fmt::format("frequency {}, season {}, horizon {}\n", one.frequency.name(),
                     season > 0 ? season : forecast::season_length(one.frequency), one.horizon);
}

/// A number to so many digits; "-" where there is none.
std::string number_text(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

/// What is to be known of items, each sentence with those it is said of.
std::vector<std::string> notes_of(const Forecasts& forecasts) {
  std::vector<forecast::Note> notes;
  for (const auto& [id, item] : forecasts) {
    for (const std::string& note : item.notes) {
      notes.push_back({id, note});
    }
  }
  return forecast::group_notes(notes);
}

Json texts_json(const std::vector<std::string>& texts) {
  Json out = Json::array();
  for (const std::string& text : texts) {
    out.push_back(text);
  }
  return out;
}

/// The notes and `text` with a line for each.
void add_notes(std::string text, const Forecasts& forecasts, Json* summary) {
  const std::vector<std::string> notes = notes_of(forecasts);
  for (const std::string& note : notes) {
    text += "note: " + note + "\n";
  }
  summary->set("notes", texts_json(notes));
  summary->set("text", std::move(text));
}

std::string summary_text(const Json& summary, const Forecasts& forecasts,
                         const std::vector<std::string>& unscaled) {
  std::string text = settled_text(forecasts);
  text += fmt::format("{:<16} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}\n", "method", "MASE", "median",
                      "sMAPE", "OWA", "mean_wQL", "cover 80");
  const auto line = [&](std::string_view label, const Json& m) {
    const auto number = [&](const char* name, int digits, double unit = 1.0) {
      return number_text(unit * m.get_number(name, NAN), digits);
    };
    const std::string cover = number("coverage_80", 1, 100.0);
    text += fmt::format("{:<16} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}\n", label, number("mase", 3),
                        number("median_mase", 3), number("smape", 2), number("owa", 3),
                        number("mean_wql", 4), cover == "-" ? cover : cover + "%");
  };
  line("headrace", summary.at("model"));
  line("seasonal naive", summary.at("seasonal_naive"));
  line("Naive2", summary.at("naive2"));
  for (const std::string& items : unscaled) {
    text += items + "\n";
  }
  return text + chosen_text(summary);
}

Json summary_of(const forecast::Comparison& comparison, const Forecasts& forecasts) {
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
  summary.set("constant_items", texts_json(comparison.model.constant_items()));
  summary.set("unscaled_items", texts_json(comparison.model.unscaled_items()));
  add_notes(summary_text(summary, forecasts, without_mase(comparison.model)), forecasts, &summary);
  return summary;
}

using Scores = std::map<std::string, std::map<std::string, double>>;  // by candidate, by metric

/// How many items each candidate was scored on.
std::map<std::string, int64_t> counts_of(const Forecasts& forecasts) {
  std::map<std::string, int64_t> counts;
  for (const auto& [id, item] : forecasts) {
    for (const auto& [candidate, metrics] : item.scores) {
      ++counts[candidate];
    }
  }
  return counts;
}

/// The candidates that most items have. Those of single items, such as a combination or what a
/// short series falls back to, have averages of their own alone.
std::vector<std::string> compared(const std::map<std::string, int64_t>& counts) {
  int64_t most = 0;
  for (const auto& [candidate, count] : counts) {
    most = std::max(most, count);
  }
  std::vector<std::string> out;
  for (const auto& [candidate, count] : counts) {
    if (!candidate.ends_with("+naive") && 2 * count >= most) {
      out.push_back(candidate);
    }
  }
  return out;
}

/// The scores of the items that all of `candidates` were scored on, with that of what was chosen.
std::vector<Scores> common_scores(const Forecasts& forecasts,
                                  const std::vector<std::string>& candidates) {
  std::vector<Scores> out;
  for (const auto& [id, item] : forecasts) {
    const Scores& scores = item.scores;
    const bool all = std::ranges::all_of(
        candidates, [&](const std::string& name) { return scores.contains(name); });
    if (all && !scores.empty()) {
      out.push_back(scores);
      if (const auto taken = scores.find(item.winner); taken != scores.end()) {
        out.back()[std::string(kAsChosen)] = taken->second;
      }
    }
  }
  return out;
}

/// Means by metric of one candidate. An item counts for a metric where all of `candidates` have a
/// finite value of it. Each item weighs the same, so that its mean_wql becomes "mean_item_wql".
Json means_of(const std::string& candidate, const std::vector<Scores>& items,
              const std::vector<std::string>& candidates) {
  std::map<std::string, std::pair<double, int64_t>> sums;
  for (const Scores& scores : items) {
    const auto own = scores.find(candidate);
    if (own == scores.end()) {
      continue;
    }
    for (const auto& [metric, value] : own->second) {
      const bool finite = std::ranges::all_of(candidates, [&](const std::string& name) {
        const auto& metrics = scores.at(name);
        const auto other = metrics.find(metric);
        return other != metrics.end() && std::isfinite(other->second);
      });
      if (finite && std::isfinite(value)) {
        auto& [sum, count] = sums[metric == "mean_wql" ? "mean_item_wql" : metric];
        sum += value;
        ++count;
      }
    }
  }
  Json out = Json::object();
  for (const auto& [name, pair] : sums) {
    out.set(name, pair.first / static_cast<double>(pair.second));
  }
  return out;
}

/// Without actual values: backtest scores, comparable ones.
Json backtest_summary(const Forecasts& forecasts) {
  auto counts = counts_of(forecasts);
  const std::vector<std::string> candidates = compared(counts);
  const std::vector<Scores> items = common_scores(forecasts, candidates);
  const auto total = static_cast<int64_t>(forecasts.size());
  const auto common = std::ssize(items);
  Json summary = Json::object({{"items", total},
                               {"judged_on", "backtest"},
                               {"common_items", int64_t{common}},
                               {"winners", winners_of(forecasts)}});
  std::string text = settled_text(forecasts);
  text += fmt::format(
      "backtest scores, means over the {} of {} items that each method with a mean "
      "was scored on\n{:<26} {:>6}  {:>6} {:>8} {:>9}\n",
      common, total, "method", "chosen", "scored", "MASE", "mean_wQL");
  const auto line = [&](const std::string& label, const std::string& chosen, int64_t scored,
                        const Json& means) {
    const auto mean = [&](const char* name, int digits) {
      return number_text(means.get_number(name, NAN), digits);
    };
    text += fmt::format("{:<26} {:>6}  {:>6} {:>8} {:>9}\n", label, chosen, scored, mean("mase", 3),
                        mean("mean_item_wql", 4));
  };
  for (const auto& [candidate, count] : counts) {
    const bool comparable = std::ranges::find(candidates, candidate) != candidates.end();
    Json means = comparable ? means_of(candidate, items, candidates) : Json::object();
    // Naive2 is there for comparison: it is never chosen.
    const bool chosen = candidate != forecast::method_name(forecast::Method::naive2);
    line(candidate_label(candidate),
         chosen ? std::to_string(summary.at("winners").get_integer(candidate)) : "-", count, means);
    means.set("items", count);
    summary.set(candidate, std::move(means));
  }
  Json taken = means_of(std::string(kAsChosen), items, candidates);
  const int64_t scored = std::ranges::count_if(
      forecasts, [](const auto& one) { return one.second.scores.contains(one.second.winner); });
  line("as chosen", std::to_string(total), scored, taken);
  taken.set("items", scored);
  summary.set(kAsChosen, std::move(taken));
  add_notes(text + chosen_text(summary), forecasts, &summary);
  return summary;
}

Json unjudged_json(const forecast::Comparison& comparison) {
  Json out = Json::array();
  for (const forecast::ItemError& bad : comparison.errors) {
    out.push_back(Json::object({{"item", bad.item}, {"message", bad.error.message()}}));
  }
  return out;
}

}  // namespace

std::string winners_text(const Json& summary) {
  std::string winners;
  if (const Json* counts = summary.find("winners"); counts != nullptr) {
    for (const auto& [name, count] : counts->members()) {
      winners += (winners.empty() ? "" : ", ") +
                 fmt::format("{} {}", count.integer(), candidate_label(name));
    }
  }
  return winners;
}

std::string unjudged_text(const forecast::Comparison& comparison) {
  const size_t left_out = comparison.errors.size();
  const size_t judged = comparison.model.items().size();
  if (left_out == 0) {
    return judged == 0 ? "nothing was judged: there are no items" : "";
  }
  const std::string head =
      judged == 0 ? fmt::format("nothing was judged: none of the {} items has a score", left_out)
                  : fmt::format("{} of {} items were not judged", left_out, left_out + judged);
  return head + "; the first: " + comparison.errors.front().error.message();
}

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
                     "its items: headrace flow status " +
                     flow::run_reference(run_folder) + " --items"};
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
    HR_TRY(const SeriesTable future, load_actuals(actuals, history.set));
    HR_TRY(const auto comparison, judge(forecasts, history.set, future.set, common_season(stored)));
    for (const forecast::ItemError& bad : comparison.errors) {
      base::log_warning("not judged: " + bad.error.message());
    }
    document.set("items", item_metrics(comparison, stored));
    const bool none = comparison.model.items().empty();
    Json summary = none ? backtest_summary(stored) : summary_of(comparison, stored);
    const std::string warning = unjudged_text(comparison);
    if (!warning.empty()) {
      summary.set("warning", warning + (none ? "; these are the scores of backtests" : ""));
    }
    summary.set("not_judged", unjudged_json(comparison));
    document.set("summary", std::move(summary));
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
