// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "headrace/flow/report_page_internal.h"

namespace headrace::flow {
namespace {

/// JSON that goes into a script element: "<" is escaped, so that no text can end the element.
class ScriptJson {
 public:
  void raw(std::string_view text) { out_ += text; }

  void text(std::string_view value) {
    for (const char c : json_quote(value)) {
      if (c == '<') {
        out_ += "\\u003c";
      } else {
        out_ += c;
      }
    }
  }

  /// Four significant digits; null for what JSON has no number for.
  void number(double value) {
    if (!std::isfinite(value)) {
      out_ += "null";
      return;
    }
    // "%.4g" writes 70301 as 7.03e+04, which is longer and less exact than the integer.
    const double magnitude = std::abs(value);
    if (magnitude >= 1e4 && magnitude < 1e6) {
      fmt::format_to(std::back_inserter(out_), "{:.0f}", value);
    } else {
      fmt::format_to(std::back_inserter(out_), "{:.4g}", value);
    }
  }

  void numbers(const std::vector<double>& values) {
    raw("[");
    for (size_t i = 0; i < values.size(); ++i) {
      raw(i == 0 ? "" : ",");
      number(values[i]);
    }
    raw("]");
  }

  /// "name": with a comma before it unless it opens an object.
  void name(std::string_view name) {
    if (out_.back() != '{') {
      out_ += ',';
    }
    text(name);
    out_ += ':';
  }

  void member(std::string_view key, std::string_view value) {
    name(key);
    text(value);
  }
  void member(std::string_view key, double value) {
    name(key);
    number(value);
  }

  void separate() {
    if (out_.back() != '[') {
      out_ += ',';
    }
  }

  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

double seconds_between(base::Micros from, base::Micros to) {
  return std::chrono::duration<double>(to - from).count();
}

void put_error(const std::optional<ActivityError>& error, ScriptJson* json) {
  if (!error) {
    return;
  }
  json->name("error");
  json->raw("{");
  json->member("code", error->code);
  json->member("message", error->message);
  json->member("target", error->target);
  json->raw("}");
}

void put_columns(std::string_view name, const std::vector<ReportColumn>& columns,
                 ScriptJson* json) {
  json->name(name);
  json->raw("[");
  for (const ReportColumn& column : columns) {
    json->separate();
    json->raw("{");
    json->member("name", column.name);
    json->member("title", column.title);
    json->member("help", column.help);
    json->raw("}");
  }
  json->raw("]");
}

void put_scores(const std::vector<ReportScore>& scores, ScriptJson* json) {
  json->name("scores");
  json->raw("[");
  for (const ReportScore& score : scores) {
    json->separate();
    json->raw("{");
    json->member("title", score.title);
    json->member("help", score.help);
    put_columns("methods", score.methods, json);
    json->raw("}");
  }
  json->raw("]");
}

void put_run(const ReportData& data, ScriptJson* json) {
  json->member("title", data.title);
  json->member("run", data.run_id);
  json->member("document", data.document);
  json->member("status", status_name(data.status));
  json->member("started", base::utc_text(data.started));
  json->member("ended", data.ended ? base::utc_text(*data.ended) : std::string());
  json->member("written", base::utc_text(data.written));
  json->member("seconds", data.seconds);
  json->member("idle", data.idle_seconds);
  put_error(data.error, json);
  json->name("parameters");
  json->raw("[");
  if (data.parameters.is_object()) {
    for (const auto& [name, value] : data.parameters.members()) {
      json->separate();
      json->raw("[");
      json->text(name);
      json->raw(",");
      json->text(value.is_string() ? value.string() : value.dump());
      json->raw("]");
    }
  }
  json->raw("]");
  json->name("facts");
  json->raw("[");
  for (const ReportFact& fact : data.facts) {
    json->separate();
    json->raw("{");
    json->member("label", fact.label);
    json->member("value", fact.value);
    json->member("note", fact.note);
    json->raw("}");
  }
  json->raw("]");
}

void put_activities(const std::vector<ReportActivity>& activities, ScriptJson* json) {
  json->name("activities");
  json->raw("[");
  for (const ReportActivity& activity : activities) {
    json->separate();
    json->raw("{");
    json->member("path", activity.path);
    json->member("type", activity.type);
    json->member("status", status_name(activity.status));
    json->member("attempts", activity.attempts);
    json->member("started", activity.started_seconds);
    json->member("seconds", activity.seconds);
    json->member("items", static_cast<double>(activity.items));
    put_error(activity.error, json);
    json->raw("}");
  }
  json->raw("]");
}

Result<void> check_plot(const std::string& key, const ReportPlot& plot) {
  const size_t horizon = plot.median.size();
  if (!plot.actual.empty() && plot.actual.size() != horizon) {
    return Error{Errc::invalid_argument,
                 fmt::format("flow: report: item \"{}\": {} actual values for a horizon of {}", key,
                             plot.actual.size(), horizon)};
  }
  for (const ReportBand& band : plot.bands) {
    if (band.low.size() != horizon || band.high.size() != horizon) {
      return Error{Errc::invalid_argument,
                   fmt::format("flow: report: item \"{}\": the {} % band has {} low and {} high "
                               "values for a horizon of {}",
                               key, band.percent, band.low.size(), band.high.size(), horizon)};
    }
  }
  return {};
}

void put_plot(const ReportPlot& plot, ScriptJson* json) {
  json->name("plot");
  json->raw("{");
  json->member("start", plot.start);
  json->member("stepSeconds", static_cast<double>(plot.step_seconds));
  json->member("stepMonths", plot.step_months);
  json->name("history");
  json->numbers(plot.history);
  json->name("actual");
  json->numbers(plot.actual);
  json->name("median");
  json->numbers(plot.median);
  // Widest first: the page paints them in this order.
  std::vector<const ReportBand*> bands;
  for (const ReportBand& band : plot.bands) {
    bands.push_back(&band);
  }
  std::stable_sort(bands.begin(), bands.end(), [](const ReportBand* a, const ReportBand* b) {
    return a->percent > b->percent;
  });
  json->name("bands");
  json->raw("[");
  for (const ReportBand* band : bands) {
    json->separate();
    json->raw("{");
    json->member("percent", band->percent);
    json->name("low");
    json->numbers(band->low);
    json->name("high");
    json->numbers(band->high);
    json->raw("}");
  }
  json->raw("]}");
}

/// Metrics are stored per item as a plain array in the order of these names.
std::vector<std::string> metric_names(const ReportData& data) {
  std::vector<std::string> names;
  const auto add = [&names](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  };
  for (const ReportColumn& column : data.columns) {
    add(column.name);
  }
  for (const ReportScore& score : data.scores) {
    for (const ReportColumn& method : score.methods) {
      add(method.name);
    }
  }
  return names;
}

Result<void> put_item(const ReportData& data, const std::vector<std::string>& names,
                      const ReportItem& item, ScriptJson* json) {
  json->separate();
  json->raw("{");
  json->member("key", item.key);
  json->member("activity", item.activity);
  json->member("status", status_name(item.status));
  json->member("seconds", item.seconds);
  json->member("cpu", item.cpu_seconds);
  json->member("attempts", item.attempts);
  put_error(item.error, json);
  if (!item.log.empty()) {
    json->member("log", item.log);
  }
  json->name("metrics");
  json->raw("[");
  for (const std::string& name : names) {
    json->separate();
    const Json* value = item.metrics.find(name);
    json->number(value != nullptr && value->is_number() ? value->number() : std::nan(""));
  }
  json->raw("]");
  json->name("labels");
  json->raw("[");
  for (const ReportColumn& label : data.labels) {
    json->separate();
    json->text(item.labels.get_string(label.name));
  }
  json->raw("]");
  if (item.plot) {
    HR_TRY(check_plot(item.key, *item.plot));
    put_plot(*item.plot, json);
  }
  json->raw("}");
  return {};
}

Result<std::string> script_json(const ReportData& data) {
  ScriptJson json;
  json.raw("{");
  put_run(data, &json);
  put_columns("columns", data.columns, &json);
  put_columns("labels", data.labels, &json);
  put_scores(data.scores, &json);
  put_activities(data.activities, &json);
  const std::vector<std::string> names = metric_names(data);
  json.name("metricNames");
  json.raw("[");
  for (const std::string& name : names) {
    json.separate();
    json.text(name);
  }
  json.raw("]");
  json.name("items");
  json.raw("[");
  for (const ReportItem& item : data.items) {
    HR_TRY(put_item(data, names, item, &json));
  }
  json.raw("]}");
  return json.take();
}

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      default: out += c;
    }
  }
  return out;
}

using Place = std::pair<std::string_view, std::string_view>;

/// The page with each {{name}} replaced, in one pass: texts that were put in are not looked at
/// again, whatever they hold.
std::string fill_places(std::string_view page, std::initializer_list<Place> places) {
  std::string out;
  while (!page.empty()) {
    const size_t open = page.find("{{");
    const size_t close = open == std::string_view::npos ? open : page.find("}}", open);
    if (close == std::string_view::npos) {
      break;
    }
    out += page.substr(0, open);
    const std::string_view name = page.substr(open + 2, close - open - 2);
    const auto* place = std::find_if(places.begin(), places.end(),
                                     [name](const Place& one) { return one.first == name; });
    HR_CHECK(place != places.end(), "the page has an unknown place " + std::string(name));
    out += place->second;
    page.remove_prefix(close + 2);
  }
  out += page;
  return out;
}

ReportItem report_item(const RunState& run, const ActivityState& activity, const ItemState& item,
                       base::Micros now) {
  ReportItem out;
  out.key = item.key;
  out.activity = activity.path;
  out.status = item.status;
  out.seconds = item.duration_seconds(now, run.pauses);
  out.cpu_seconds = item.cpu_seconds;
  out.attempts = item.attempts;
  out.error = item.error;
  out.log = item.log;
  return out;
}

}  // namespace

ReportData report_data(const RunState& run, base::Micros now) {
  ReportData data;
  data.title = run.pipeline;
  data.run_id = run.run_id;
  data.document = run.pipeline_path.string();
  data.status = run.status;
  data.started = run.started;
  data.ended = run.ended;
  data.written = now;
  const base::Micros until =
      run.ended.value_or(run.driven_by ? now : std::max(run.started, run.last_event));
  data.seconds = run.worked_seconds(run.started, until);
  data.idle_seconds = seconds_between(run.started, until) - data.seconds;
  data.parameters = run.parameters;
  data.error = run.error;
  for (const ActivityState& activity : run.activities) {
    ReportActivity out;
    out.path = activity.path;
    out.type = activity.type;
    out.status = activity.status;
    out.attempts = activity.attempts;
    out.items = static_cast<int64_t>(activity.items.size());
    out.error = activity.error;
    if (activity.started) {
      out.started_seconds = run.worked_seconds(run.started, *activity.started);
      out.seconds = run.worked_seconds(*activity.started, activity.ended.value_or(until));
    }
    data.activities.push_back(std::move(out));
    for (const ItemState& item : activity.items) {
      data.items.push_back(report_item(run, activity, item, until));
    }
  }
  return data;
}

Result<std::string> render_report(const ReportData& data) {
  HR_TRY(const std::string json, script_json(data));
  const std::string title = html_text(data.title + " · " + data.run_id);
  return fill_places(
      kReportHtml,
      {{"title", title}, {"style", kReportCss}, {"script", kReportScript}, {"data", json}});
}

}  // namespace headrace::flow
