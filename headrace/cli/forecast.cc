// SPDX-License-Identifier: Apache-2.0
// `headrace forecast train|predict|backtest|evaluate|plot`.
#include "headrace/cli/forecast.h"

#include <cstdio>
#include <string>
#include <utility>

#include "headrace/cli/forecast_options.h"
#include "headrace/flow/engine.h"

namespace headrace::cli {

namespace {

Option registry_option() {
  return {.name = "--registry",
          .help = "folder of the model registry; default HEADRACE_REGISTRY, then the user's"};
}

Option columns_model_option() {
  return {
      .name = "--model",
      .help =
          "registered model whose columns, frequency and start of wide rows the tables are read "
          "by, where none are told"};
}

/// What `--actuals` may need told apart from the table.
std::vector<Option> actuals_options() {
  return {{.name = "--actuals-start",
           .help = "first stamp of wide actuals; by default each row begins where its past ends"},
          {.name = "--actuals-format",
           .help = "of the actuals; default by the ending of their name, else --format",
           .choices = {"parquet", "csv", "wide_csv", "jsonl"}}};
}

Option table_argument() {
  return {.name = "table",
          .help = "file, folder or glob: Parquet, CSV (long or wide), GluonTS JSON lines",
          .required = true};
}

Command train_command() {
  Command command;
  command.name = "forecast train";
  command.summary = "train one DeepAR model per series, or one for all";
  command.details =
      "Without --global, a few global models are trained first; each series then gets a model of "
      "its\n"
      "own that starts from them, and a backtest on its last values chooses among local, global "
      "and\n"
      "seasonal naive. The work runs as a pipeline: stop it with Ctrl-C and go on with\n"
      "`headrace flow resume`. With --global one model is trained, in one go: Ctrl-C keeps "
      "nothing.\n"
      "Ranks that a launcher starts train that one together, each a part of every batch; rank 0 "
      "writes it.\n"
      "Training options without a value given are chosen for the scope.";
  command.examples = {
      "headrace forecast train lake/ --horizon 48",
      "headrace forecast train sales.csv --horizon 28 --frequency D --model sales",
      "headrace forecast train lake/ --horizon 48 --global --members 4 --model demand",
      "headrace run -np 2 headrace forecast train lake/ --horizon 48 --global --model demand",
      "headrace forecast train lake/ --horizon 48 --warm-start demand --model each"};
  command.options = join_options(
      {{table_argument(),
        {.name = "--local", .help = "one model per series (the default)", .kind = OptionKind::flag},
        {.name = "--global", .help = "one model for all series", .kind = OptionKind::flag},
        {.name = "--model", .help = "name in the registry; default the table's name"},
        registry_option(),
        {.name = "--global-members",
         .help = "global models to start local ones from; 0 = start cold",
         .kind = OptionKind::integer,
         .default_text = "3",
         .at_least = 0,
         .at_most = 1000},
        {.name = "--warm-start",
         .help =
             "registered model (NAME, NAME:7, NAME@alias) to start from, for local models in place "
             "of global ones of this run; a set (NAME/*, NAME/*@alias) starts each local model "
             "from the item's own"},
        {.name = "--slots",
         .help = "series trained at a time; default one per core",
         .kind = OptionKind::integer,
         .at_least = 0,
         .at_most = flow::kSlotsMax},
        {.name = "--dir",
         .help = "folder of the run; default one of its own in HEADRACE_RUNS, then ./runs"},
        {.name = "--actuals", .help = "table of what came after, to judge the forecasts"}},
       actuals_options(),
       table_options(),
       option_flags(forecast::train_option_list()),
       option_flags(forecast_infos())});
  command.run = forecast_train;
  return command;
}

Command predict_command() {
  Command command;
  command.name = "forecast predict";
  command.summary = "forecast the steps after each series with registered models";
  command.examples = {"headrace forecast predict lake/ --model m4_hourly --out forecast.parquet",
                      "headrace forecast predict lake/ --model demand@champion --out f.csv",
                      "headrace forecast predict lake/ --model 'm4_hourly/*@champion' --out f.csv"};
  command.options = join_options(
      {{table_argument(),
        {.name = "--model",
         .help = "model of all series (NAME, NAME:7, NAME@alias), or the prefix of one model per "
                 "series (NAME, NAME/*@alias)",
         .required = true},
        registry_option(),
        {.name = "--out", .help = "file to write: .parquet or .csv", .required = true},
        {.name = "--item", .help = "only this item; may be given several times", .repeated = true},
        {.name = "--all-items",
         .help = "every item, with a model that was trained on one alone too",
         .kind = OptionKind::flag}},
       table_options(),
       option_flags(forecast::predict_option_list())});
  command.run = forecast_predict;
  return command;
}

/// How scores are told beside the totals.
std::vector<Option> score_options() {
  return {{.name = "--per-step",
           .help = "print a row per step ahead too (with --json: always there, \"per_step\")",
           .kind = OptionKind::flag},
          {.name = "--per-item",
           .help = "file to write with a row per item and method: .parquet or .csv"}};
}

Command backtest_command() {
  Command command;
  command.name = "forecast backtest";
  command.summary = "forecast past stretches and compare with seasonal naive and Naive2";
  command.details = "It runs in one go: after Ctrl-C nothing is kept, and it cannot be resumed.";
  command.examples = {
      "headrace forecast backtest lake/ --horizon 48 --windows 3",
      "headrace forecast backtest lake/ --horizon 48 --global --windows 2 --stride 24",
      "headrace forecast backtest lake/ --horizon 48 --per-step --per-item scores.csv"};
  command.options = join_options(
      {{table_argument(),
        {.name = "--local", .help = "one model per series (the default)", .kind = OptionKind::flag},
        {.name = "--global", .help = "one model for all series", .kind = OptionKind::flag},
        {.name = "--item", .help = "only this item; may be given several times", .repeated = true}},
       score_options(),
       table_options(),
       option_flags(forecast::backtest_option_list()),
       option_flags(forecast::train_option_list()),
       option_flags(forecast_infos())});
  command.run = forecast_backtest;
  return command;
}

Command evaluate_command() {
  Command command;
  command.name = "forecast evaluate";
  command.summary = "judge a forecast file against what came";
  command.examples = {
      "headrace forecast evaluate forecast.parquet --history lake/ --actuals test.parquet"};
  command.options = join_options(
      {{{.name = "forecasts", .help = "file made by `headrace forecast predict`", .required = true},
        {.name = "--history", .help = "table the forecasts were made from", .required = true},
        {.name = "--actuals", .help = "table of what came", .required = true},
        columns_model_option(),
        registry_option(),
        {.name = "--season",
         .help =
             "steps of a season, for MASE and the naive methods; default that of --model, else by "
             "frequency",
         .kind = OptionKind::integer,
         .at_least = 0,
         .at_most = 1e6}},
       actuals_options(),
       score_options(),
       table_options()});
  command.run = forecast_evaluate;
  return command;
}

Command plot_command() {
  Command command;
  command.name = "forecast plot";
  command.summary = "draw one item: history, median, 50/80/95 % bands, as SVG";
  command.details =
      "The bands need the quantiles 0.025, 0.1, 0.25, 0.5, 0.75, 0.9 and 0.975, which predict and "
      "train\n"
      "write unless they are told others. Of a file with fewer the bands that it has are drawn.";
  command.examples = {
      "headrace forecast plot forecast.parquet --item H1 --history lake/ --out H1.svg"};
  command.options = join_options(
      {{{.name = "forecasts", .help = "file made by `headrace forecast predict`", .required = true},
        {.name = "--item", .help = "the item to draw", .required = true},
        {.name = "--history", .help = "table the forecasts were made from", .required = true},
        {.name = "--actuals", .help = "table of what came"},
        columns_model_option(),
        registry_option(),
        {.name = "--out", .help = "file to write: .svg", .required = true}},
       actuals_options(),
       table_options()});
  command.run = forecast_plot;
  return command;
}

}  // namespace

std::vector<Command> forecast_commands() {
  return {train_command(), predict_command(), backtest_command(), evaluate_command(),
          plot_command()};
}

}  // namespace headrace::cli
