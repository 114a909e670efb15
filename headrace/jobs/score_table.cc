// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/score_table.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/jobs/forecast_table.h"

namespace headrace::jobs {

namespace {

lake::Column make_column(const char* name, lake::Type type) {
  lake::Column column;
  column.field.name = name;
  column.field.type = type;
  return column;
}

void add_text(const std::string& text, lake::Column* column) {
  column->codes.push_back(static_cast<int32_t>(column->dictionary.size()));
  column->dictionary.push_back(text);
}

std::vector<lake::Column> metric_columns() {
  std::vector<lake::Column> columns;
  for (const forecast::MetricField& metric : forecast::metric_fields()) {
    columns.push_back(make_column(metric.name, lake::Type::float64));
  }
  return columns;
}

/// One row of metrics; what cannot be said is null.
void add_metrics(const forecast::Metrics& metrics, std::vector<lake::Column>* columns) {
  const std::map<std::string, double> named = metrics.named();
  for (lake::Column& column : *columns) {
    const auto found = named.find(column.field.name);
    column.reals.push_back(found == named.end() ? 0.0 : found->second);
    column.validity.push_back(found == named.end() ? 0 : 1);
  }
}

}  // namespace

Json metrics_json(const std::map<std::string, double>& named) {
  Json out = Json::object();
  for (const auto& [name, value] : named) {
    out.set(name, value);
  }
  return out;
}

std::vector<std::string> without_mase(const forecast::Scoreboard& board) {
  std::vector<std::string> out;
  const auto tell = [&](const std::vector<std::string>& items, std::string_view is,
                        std::string_view are) {
    if (!items.empty()) {
      out.push_back(fmt::format("{} {} and {} no MASE: {}", items.size(),
                                items.size() == 1 ? is : are, items.size() == 1 ? "has" : "have",
                                forecast::name_some(items)));
    }
  };
  tell(board.constant_items(), "item is constant before the forecast",
       "items are constant before the forecast");
  tell(board.unscaled_items(), "item has no two values a season apart before the forecast",
       "items have no two values a season apart before the forecast");
  return out;
}

lake::Batch item_scores(const forecast::Comparison& comparison, bool integer_ids) {
  lake::Column id = make_column("item_id", lake::Type::string);
  lake::Column method = make_column("method", lake::Type::string);
  std::vector<lake::Column> metrics = metric_columns();
  for (const forecast::Scoreboard* board :
       {&comparison.model, &comparison.seasonal_naive, &comparison.naive2}) {
    for (const forecast::Scoreboard::Item& item : board->items()) {
      add_text(item.id, &id);
      add_text(board == &comparison.model ? item.method : item.method + "_point", &method);
      add_metrics(item.metrics, &metrics);
    }
  }
  lake::Batch batch;
  batch.columns = {integer_ids ? integer_column(id) : std::move(id), std::move(method)};
  std::move(metrics.begin(), metrics.end(), std::back_inserter(batch.columns));
  return batch;
}

lake::Batch step_scores(const forecast::Scoreboard& board) {
  lake::Column step = make_column("step", lake::Type::int64);
  std::vector<lake::Column> metrics = metric_columns();
  for (size_t k = 0; k < board.steps().size(); ++k) {
    step.integers.push_back(static_cast<int64_t>(k) + 1);
    add_metrics(board.step(static_cast<int>(k)), &metrics);
  }
  lake::Batch batch;
  batch.columns = {std::move(step)};
  std::move(metrics.begin(), metrics.end(), std::back_inserter(batch.columns));
  return batch;
}

Result<void> write_item_scores(const base::Path& path, const forecast::Comparison& comparison,
                               bool integer_ids) {
  HR_TRY(check_ending(path, "scores"));
  return write_by_ending(path, item_scores(comparison, integer_ids));
}

}  // namespace headrace::jobs
