// SPDX-License-Identifier: Apache-2.0
// The report of a run: one HTML file that needs nothing else, made from plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/flow/run_state.h"

namespace headrace::flow {

/// A central interval of a forecast, one value per step of the horizon.
struct ReportBand {
  int percent = 80;
  std::vector<double> low;
  std::vector<double> high;
};

/// What a plot shows: the end of the history, the forecast, and what came if that is known.
/// NaN stands for a missing value.
struct ReportPlot {
  std::string start;  ///< stamp of history[0], "2015-07-01T00:00:00"; empty: steps are numbered
  int64_t step_seconds = 0;  ///< distance of two stamps; 0 when it is counted in months
  int step_months = 0;       ///< 1, 3 or 12; 0 when it is counted in seconds
  std::vector<double> history;
  std::vector<double> actual;  ///< of the horizon; may be empty
  std::vector<double> median;  ///< decides the horizon's length
  std::vector<ReportBand> bands;
};

/// One item of a ForEach. `metrics` and `labels` are objects, read by the names in `ReportData`;
/// an item that lacks a name shows an empty cell.
struct ReportItem {
  std::string key;
  std::string activity;  ///< path of its ForEach; shown when the run has several
  Status status = Status::queued;
  double seconds = 0.0;
  double cpu_seconds = 0.0;
  int attempts = 0;
  std::optional<ActivityError> error;
  std::string log;  ///< relative to the run folder; may be empty
  Json metrics;     ///< name -> number
  Json labels;      ///< name -> text, e.g. the method that won
  std::optional<ReportPlot> plot;
};

/// A column of the table of items and how its head explains it.
struct ReportColumn {
  std::string name;   ///< in `ReportItem::metrics` or `labels`
  std::string title;  ///< "MASE"
  std::string help;   ///< one sentence, shown on hover
};

/// One score of several methods on the same items: a histogram per method, wins, and a scatter plot
/// of the first method against each other one. Lower is better.
struct ReportScore {
  std::string title;                  ///< "MASE"
  std::string help;                   ///< one sentence
  std::vector<ReportColumn> methods;  ///< names in `metrics`; the first is the run's own
};

/// A figure of the summary, ready to print.
struct ReportFact {
  std::string label;
  std::string value;
  std::string note;  ///< small print under the value; may be empty
};

struct ReportActivity {
  std::string path;
  std::string type;
  Status status = Status::queued;
  int attempts = 0;
  double started_seconds = 0.0;  ///< after the run's start
  double seconds = 0.0;          ///< 0 when it never started
  int64_t items = 0;             ///< of a ForEach
  std::optional<ActivityError> error;
};

struct ReportData {
  std::string title;  ///< name of the pipeline
  std::string run_id;
  std::string document;  ///< path of the pipeline
  Status status = Status::queued;
  base::Micros started{0};  ///< since the epoch, as are the others
  std::optional<base::Micros> ended;
  base::Micros written{0};
  double seconds = 0.0;  ///< in which an engine drove it, until its end or `written`
  double idle_seconds = 0.0;
  Json parameters;                    ///< object
  std::vector<ReportFact> facts;      ///< shown after those that every run has
  std::vector<ReportColumn> columns;  ///< metrics in the table of items
  std::vector<ReportColumn> labels;   ///< texts in the table, each with a filter
  std::vector<ReportScore> scores;
  std::vector<ReportActivity> activities;
  std::vector<ReportItem> items;
  std::optional<ActivityError> error;
};

/// What every pipeline has: status, times, activities, items with their errors. Metrics, labels,
/// scores and plots are the caller's to add. `now` stands in for ends that have not come.
HR_API ReportData report_data(const RunState& run, base::Micros now);

/// The page as UTF-8 HTML with style, script and data inside; it loads nothing. Numbers of plots
/// keep 4 significant digits, 414 items of 336 + 48 steps with 3 bands take about 2 MB.
/// `invalid_argument`: a plot's vectors disagree in length; the message names the item.
HR_API Result<std::string> render_report(const ReportData& data);

}  // namespace headrace::flow
